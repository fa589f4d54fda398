package maekawa

import (
	"slices"

	"github.com/dmutex/dmutex"
)

// New returns the machine of a fresh lock, or one that [dmutex.Start.Holder]
// holds. It has the shape of [dmutex.Algorithm].
//
// The quorums are those of a grid, for any number of nodes: the members are
// written row by row into a square, of which the last row may be short, and
// each asks its row and its column, at most 2*ceil(sqrt N)-1 nodes with itself.
func New(s dmutex.Start) (dmutex.Machine, error) {
	m, err := newMachine(s, rowAndColumn)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// rowAndColumn returns whom a site asks in the grid. Those of any two share a
// node: where the row of the one meets the column of the other, or, if the short
// row ends before, the other way round.
func rowAndColumn(members []dmutex.NodeID, site dmutex.NodeID) []dmutex.NodeID {
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

// With returns the algorithm with the given quorums: site asks quorum(site).
// Any two quorums must share a node, and all nodes of a group must be given the
// same. A site need not be in its own, but saves messages if it is.
//
// A Start is refused with [dmutex.ErrMisuse] if the quorum of some member is
// empty or contains what is no member, or if that of Start.Self shares no node
// with another. (A node checks its own against everybody's, so of two that share
// none, both refuse.)
//
// The function is called for every member at each birth of a machine, perhaps
// by several goroutines at once. What it returns is only read.
func With(quorum func(site dmutex.NodeID) []dmutex.NodeID) dmutex.Algorithm {
	return func(s dmutex.Start) (dmutex.Machine, error) {
		m, err := newMachine(s, func(_ []dmutex.NodeID, site dmutex.NodeID) []dmutex.NodeID { return quorum(site) })
		if err != nil {
			return nil, err
		}
		for _, site := range append([]dmutex.NodeID{s.Self}, m.site.Peers()...) {
			if why := m.unlawful(site, quorum(site)); why != "" {
				return nil, dmutex.Misuse(why)
			}
		}
		return m, nil
	}
}

// unlawful says what is wrong with the quorum of a site, and "" if it has
// members only and shares one with ours.
func (m *Machine) unlawful(site dmutex.NodeID, quorum []dmutex.NodeID) string {
	shared := false
	for _, k := range quorum {
		_, peer := slices.BinarySearch(m.site.Peers(), k)
		if !peer && k != m.site.Self() {
			return "the quorum of node " + site.String() + " contains " + k.String() + ", which is not among Start.Members"
		}
		_, ours := slices.BinarySearch(m.quorum(), k)
		shared = shared || ours
	}
	switch {
	case len(quorum) == 0:
		return "the quorum of node " + site.String() + " is empty"
	case !shared:
		return "the quorums of nodes " + m.site.Self().String() + " and " + site.String() + " share no node: both could enter at once"
	}
	return ""
}

func newMachine(s dmutex.Start, quorum func(members []dmutex.NodeID, site dmutex.NodeID) []dmutex.NodeID) (*Machine, error) {
	site, err := dmutex.NewSite(s)
	if err != nil {
		return nil, err
	}
	m := &Machine{site: site}
	site.Common(func() any {
		return slices.Compact(slices.Sorted(slices.Values(quorum(site.Members(), s.Self))))
	})
	if s.Holder != dmutex.None && slices.Contains(quorum(site.Members(), s.Holder), s.Self) {
		m.vote = dmutex.Stamp{Clock: dmutex.Carried, Node: s.Holder}
	}
	return m, nil
}

// quorum returns whom this node asks, ascending. All machines of a node share it.
func (m *Machine) quorum() []dmutex.NodeID { return m.site.Common(nil).([]dmutex.NodeID) }
