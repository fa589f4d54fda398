package maekawa

import (
	"slices"

	"github.com/dmutex/dmutex"
)

// Quorums says whom a site asks: the quorum of site, one of members, which are
// ascending. It is a function of its arguments alone, the same at every node of
// the group; it must not change members, and what it returns is only read.
//
// Any two quorums of one group must share a node. A site need not be in its own
// quorum, but saves messages if it is. The smaller the quorums, the fewer
// messages; about the square root of the group's size is the least.
//
// A machine's birth calls it once for every member, so what is costly to find
// is better found before.
type Quorums func(members []dmutex.NodeID, site dmutex.NodeID) []dmutex.NodeID

// Grid writes the members row by row into a square, of which the last row may
// be short, and lets a site ask its row and its column: at most 2*ceil(sqrt N)-1
// nodes, itself among them. Any two sites share a node: where the one's row
// meets the other's column, or, if the short row ends before, the other way
// round.
func Grid(members []dmutex.NodeID, site dmutex.NodeID) []dmutex.NodeID {
	columns := 1
	for columns*columns < len(members) {
		columns++
	}
	at, _ := slices.BinarySearch(members, site)
	var quorum []dmutex.NodeID
	for i, member := range members {
		if i/columns == at/columns || i%columns == at%columns {
			quorum = append(quorum, member)
		}
	}
	return quorum
}

// New returns the machine of a fresh lock, or one that [dmutex.Start.Holder]
// holds, with the quorums of [Grid]. It has the shape of [dmutex.Algorithm].
func New(s dmutex.Start) (dmutex.Machine, error) {
	m, err := newMachine(s, Grid)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// With returns the algorithm with the given quorums, for which all nodes of a
// group must take the same. A Start is refused with [dmutex.ErrMisuse] if a
// quorum contains what is no member, or if that of Start.Self shares no node
// with another. (Each node checks its own against everybody's, so if any two
// share none, both refuse.)
func With(quorums Quorums) dmutex.Algorithm {
	return func(s dmutex.Start) (dmutex.Machine, error) {
		m, err := newMachine(s, quorums)
		if err != nil {
			return nil, err
		}
		members := slices.Sorted(slices.Values(s.Members))
		for _, site := range members {
			if err := m.meets(members, site, quorums(members, site)); err != nil {
				return nil, err
			}
		}
		return m, nil
	}
}

// meets returns an error unless the quorum of site is lawful and shares a node
// with ours.
func (m *Machine) meets(members []dmutex.NodeID, site dmutex.NodeID, quorum []dmutex.NodeID) error {
	shared := false
	for _, k := range quorum {
		if _, member := slices.BinarySearch(members, k); !member {
			return dmutex.Misuse("the quorum of node " + site.String() + " contains " + k.String() + ", which is not among Start.Members")
		}
		_, ours := slices.BinarySearch(m.quorum, k)
		shared = shared || ours
	}
	switch {
	case len(quorum) == 0:
		return dmutex.Misuse("the quorum of node " + site.String() + " is empty")
	case !shared:
		return dmutex.Misuse("the quorums of nodes " + m.site.Self().String() + " and " + site.String() + " share no node: both could enter at once")
	}
	return nil
}

func newMachine(s dmutex.Start, quorums Quorums) (*Machine, error) {
	site, err := dmutex.NewSite(s)
	if err != nil {
		return nil, err
	}
	members := slices.Sorted(slices.Values(s.Members))
	m := &Machine{site: site}
	m.quorum = slices.Compact(slices.Sorted(slices.Values(quorums(members, s.Self))))
	m.ballots = make([]ballot, len(m.quorum))
	if s.Holder != dmutex.None && slices.Contains(quorums(members, s.Holder), s.Self) {
		m.vote = dmutex.Stamp{Clock: dmutex.Carried, Node: s.Holder}
	}
	return m, nil
}
