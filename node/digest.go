package node

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/dmutex/dmutex"
)

// agreed is what all members must agree on: fields of Config. With a store its record
// has the members, and what these agree on.
var agreed = [...]string{"Members", "Algorithm", "Group", "Deadlock"}

// maxWord bounds the name of an algorithm in the texts and in the record.
const maxWord = 32

// digest sums up what all members must agree on: 8 bits for each field, from which
// two members can tell in what they differ, and then 32 bits of everything. It also
// finds out whether the algorithm takes this group at all.
func (n *Node) digest() (digest uint64, err error) {
	_, algorithm, err := n.describe()
	if err != nil {
		return 0, err
	}
	everything := sha256.New()
	for _, sum := range [len(agreed)][sha256.Size]byte{
		sha256.Sum256(fmt.Append(nil, n.cfg.Members)),
		algorithm,
		sha256.Sum256([]byte(n.cfg.Group)),
		sha256.Sum256(fmt.Append(nil, int64(n.cfg.Deadlock))),
	} {
		digest = digest<<8 | uint64(sum[0])
		everything.Write(sum[:])
	}
	return digest<<32 | uint64(binary.BigEndian.Uint32(everything.Sum(nil))), nil
}

// settings is what the record says that its members agree on.
func (n *Node) settings() (string, error) {
	name, algorithm, err := n.describe()
	return fmt.Sprintf("algorithm %s %x, group %q, deadlock %v", name, algorithm[:4], n.cfg.Group, n.cfg.Deadlock), err
}

// describe sums up the algorithm as the fresh machines of all members describe
// themselves, or those of three if the members come and go. The name is the first word of
// such a description: that of the package, or of the variant.
func (n *Node) describe() (name string, sum [sha256.Size]byte, err error) {
	h := sha256.New()
	members := n.cfg.Members
	if n.cfg.Store != nil {
		members = []dmutex.NodeID{1, 2, 3}
	}
	for _, id := range members {
		m, err := n.cfg.Algorithm(dmutex.Start{Self: id, Members: members})
		if err != nil {
			return name, sum, err
		}
		if _, ok := m.(dmutex.Ticker); ok {
			return name, sum, dmutex.Misuse("Config.Algorithm needs ticks, which a node does not give: choose one without, such as ring.New for ring.Circulate")
		}
		text, err := m.AppendText(nil)
		if err != nil {
			return name, sum, err
		}
		fmt.Fprintf(h, "\n%s", text)
		word, _, _ := strings.Cut(string(text), " ")
		name = word[:min(len(word), maxWord)]
	}
	return name, [sha256.Size]byte(h.Sum(nil)), nil
}

// differs is the ErrConfig of a peer whose digest is not ours. The state of a machine
// contains its members, so if the members differ, nothing is known of the algorithm.
func (n *Node) differs(digest uint64) error {
	var fields []string
	for i, other := 0, digest^n.sum; i < len(agreed); i, other = i+1, other<<8 {
		if other>>56 != 0 && (agreed[i] != "Algorithm" || len(fields) == 0) {
			field := agreed[i]
			if field == "Algorithm" {
				name, _, _ := n.describe() // no error: Open has described it
				field += " (here " + name + ")"
			}
			fields = append(fields, field)
		}
	}
	if len(fields) == 0 {
		return ErrConfig
	}
	return fmt.Errorf("%w; these differ: %s", ErrConfig, strings.Join(fields, ", "))
}
