package group

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

// describe sums up the Config. It finds out whether the algorithm takes this group at all,
// and sums it up as the fresh machines of members describe themselves, at home with the
// first of them or with the last. Its name is the first word of such a description: that of
// the package, or of the variant.
//
// The sum has 8 bits for each field that all members must agree on, from which two members
// can tell in what they differ, and then 32 bits of everything.
func (g *Group) describe(members []dmutex.NodeID) error {
	h := sha256.New()
	for i := range 2 * len(members) {
		m, err := g.cfg.Algorithm(dmutex.Start{
			Self: members[i/2], Members: members, Home: members[i%2*(len(members)-1)],
		})
		if err != nil {
			return err
		}
		if _, ok := m.(dmutex.Ticker); ok {
			return dmutex.Misuse("Config.Algorithm needs ticks, which a node does not give: choose one without, such as ring.New for ring.Circulate")
		}
		text, err := m.AppendText(nil)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "\n%s", text)
		word, _, _ := strings.Cut(string(text), " ")
		g.algorithm = word[:min(len(word), maxWord)]
	}
	algorithm := [sha256.Size]byte(h.Sum(nil))
	g.settings = fmt.Sprintf("algorithm %s %x, group %q, deadlock %v", g.algorithm, algorithm[:4], g.cfg.Group, g.cfg.Deadlock)
	if g.cfg.Clients {
		g.settings += ", clients"
	}
	everything := sha256.New()
	for _, sum := range [len(agreed)][sha256.Size]byte{
		sha256.Sum256(fmt.Append(nil, g.cfg.Members)),
		algorithm,
		sha256.Sum256([]byte(g.cfg.Group)),
		sha256.Sum256(fmt.Append(nil, int64(g.cfg.Deadlock))),
	} {
		g.sum = g.sum<<8 | uint64(sum[0])
		everything.Write(sum[:])
	}
	g.sum = g.sum<<32 | uint64(binary.BigEndian.Uint32(everything.Sum(nil)))
	return nil
}

// differs is the ErrConfig of a peer whose sum is not ours. The state of a machine
// contains its members, so if the members differ, nothing is known of the algorithm.
func (g *Group) differs(sum uint64) error {
	var fields []string
	for i, other := 0, sum^g.sum; i < len(agreed); i, other = i+1, other<<8 {
		field := agreed[i]
		switch {
		case other>>56 == 0 || field == "Algorithm" && len(fields) > 0:
			continue
		case field == "Algorithm":
			field += " (here " + g.algorithm + ")"
		}
		fields = append(fields, field)
	}
	if len(fields) == 0 {
		return ErrConfig
	}
	return fmt.Errorf("%w; these differ: %s", ErrConfig, strings.Join(fields, ", "))
}
