package maekawa

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/site"
)

// New is a [dmutex.Algorithm].
//
// The quorums are those of a grid, for any number of nodes: the members are
// written row by row into a square whose last row may be short, and each asks
// its row and its column, at most 2*ceil(sqrt N)-1 nodes including itself.
func New(s dmutex.Start) (dmutex.Machine, error) {
	own, err := site.New(s)
	if err != nil {
		return nil, err
	}
	return newMachine(own, s.Holder, rowAndColumn), nil
}

// An assignment returns the nodes that a site asks, one of the members.
type assignment func(members []dmutex.NodeID, site dmutex.NodeID) []dmutex.NodeID

// rowAndColumn returns the nodes that a site asks in the grid. Any two quorums
// share a node: where the row of one meets the column of the other or, if the
// short row ends before that, the other way round.
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
// Any two quorums must share a node, and all nodes of a group must use the same
// quorums. A site need not be in its own quorum, but saves messages if it is.
//
// The algorithm returns [dmutex.ErrMisuse] if the quorum of some member is empty or
// contains a node that is not a member, or if the quorum of Start.Self shares no node with
// another one. (So if two quorums share no node, both their nodes refuse.)
//
// The function is called for every member when a machine is made, and later, possibly by
// several goroutines at once. It always gives a member the same quorum, which is only read.
func With(quorum func(site dmutex.NodeID) []dmutex.NodeID) dmutex.Algorithm {
	given := func(_ []dmutex.NodeID, site dmutex.NodeID) []dmutex.NodeID { return quorum(site) }
	return func(s dmutex.Start) (dmutex.Machine, error) {
		own, err := site.New(s)
		if err != nil {
			return nil, err
		}
		m := newMachine(own, s.Holder, given)
		for _, other := range append([]dmutex.NodeID{s.Self}, m.Peers()...) {
			if why := m.unlawful(other, quorum(other)); why != "" {
				return nil, dmutex.Misuse(why)
			}
		}
		return m, nil
	}
}

// unlawful says what is wrong with the quorum of a site, and "" if it has
// members only and shares one with ours.
func (m *machine) unlawful(site dmutex.NodeID, quorum []dmutex.NodeID) string {
	shared := false
	for _, k := range quorum {
		if _, member := slices.BinarySearch(m.Members(), k); !member {
			return "the quorum of node " + site.String() + " contains " + k.String() + ", which is not among Start.Members"
		}
		_, ours := slices.BinarySearch(m.quorum, k)
		shared = shared || ours
	}
	switch {
	case len(quorum) == 0:
		return "the quorum of node " + site.String() + " is empty"
	case !shared:
		return "the quorums of nodes " + m.Self().String() + " and " + site.String() + " share no node: both could enter at once"
	}
	return ""
}

func newMachine(own site.Site, holder dmutex.NodeID, quorums assignment) *machine {
	ours := slices.Compact(slices.Sorted(slices.Values(quorums(own.Members(), own.Self()))))
	m := &machine{Site: own, quorums: quorums, quorum: ours, ballots: make([]ballot, len(ours))}
	if holder != dmutex.None && m.votesFor(holder) {
		m.vote = dmutex.Stamp{Clock: site.Carried, Node: holder}
	}
	return m
}

// votesFor reports whether a node needs our vote.
func (m *machine) votesFor(node dmutex.NodeID) bool {
	return slices.Contains(m.quorums(m.Members(), node), m.Self())
}
