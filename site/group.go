package site

import (
	"math"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
)

// A common is what the machines of many locks at one node share, so that each takes
// less memory: the members, and the output of the last input.
type common struct {
	group *group
	out   []dmutex.Message
}

// commonOf returns what a new machine shares with its sibling, nil if there is none.
func commonOf(sibling dmutex.Machine) *common {
	if m, ok := sibling.(interface{ shares() *common }); ok {
		return m.shares()
	}
	return new(common)
}

func (s *Site) shares() *common { return s.common }

// A group is the part that does not change; clones share it.
type group struct {
	self    dmutex.NodeID
	place   int             // of self in members
	members []dmutex.NodeID // ascending
	peers   []dmutex.NodeID // the same without self
	fence   uint64          // Start.Fence
	limit   uint64          // Start.Limit, the highest number if that is 0
}

// A node requests only while the highest fence that it knows is below asked. A grant
// that reaches asked tells its own node so. So at most one grant a node comes after
// that, and no correct node gets beyond heard. If a peer claims that much, there is
// room for the requests that are pending, one a node.
func (g *group) asked() uint64 { return g.limit - 2*uint64(len(g.members)) }
func (g *group) heard() uint64 { return g.limit - uint64(len(g.members)) }

// is reports whether a dmutex.Start with these members, ascending, describes the group.
func (g *group) is(s dmutex.Start, members []dmutex.NodeID) bool {
	return g.self == s.Self && g.fence == s.Fence && g.limit == s.Limit && slices.Equal(g.members, members)
}

// groupOf returns the group of a dmutex.Start. The first machine of a common makes it.
func (s *common) groupOf(start dmutex.Start) (*group, error) {
	if start.Limit == 0 {
		start.Limit = math.MaxUint64
	}
	if s.group != nil && s.group.is(start, start.Members) {
		return s.group, nil
	}
	members, self, err := canon.Members("Start.", start.Members, start.Self)
	switch {
	case err != nil:
		return nil, dmutex.Misuse(err.Error())
	case start.Limit < start.Fence || start.Limit-start.Fence < 2*uint64(len(members)):
		return nil, dmutex.Misuse("Start.Limit leaves no room above Start.Fence: begin a group with higher fences")
	case s.group != nil && !s.group.is(start, members):
		return nil, dmutex.Misuse("Start.Sibling belongs to another node or group")
	case s.group != nil:
		return s.group, nil
	}
	return &group{
		self:    start.Self,
		place:   self,
		members: members,
		peers:   slices.Concat(members[:self], members[self+1:]),
		fence:   start.Fence,
		limit:   start.Limit,
	}, nil
}
