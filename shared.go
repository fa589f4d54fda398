package dmutex

import (
	"math"
	"slices"

	"github.com/dmutex/dmutex/internal/canon"
)

// A Shared is what the machines of many locks at one node have in common, so
// that each takes less memory: the members, and the output of the last input.
// The zero Shared is ready to use. The driver gives it to each machine in
// [Start.Shared].
//
// All machines of a Shared have one [Algorithm] and one group, and get their
// inputs one at a time. The next input to any of them overwrites what the last
// call returned.
type Shared struct {
	group *group
	out   []Message
}

// A group is the part that does not change; clones share it.
type group struct {
	self    NodeID
	place   int      // of self in members
	members []NodeID // ascending
	peers   []NodeID // the same without self
	fence   uint64   // Start.Fence
	limit   uint64   // Start.Limit, the highest number if that is 0
	derived any      // see Derive
}

// A node requests only while the highest fence that it knows is below asked. A grant
// that reaches asked tells its own node so. So at most one grant a node comes after
// that, and no correct node gets beyond heard. If a peer claims that much, there is
// room for the requests that are pending, one a node.
func (g *group) asked() uint64 { return g.limit - 2*uint64(len(g.members)) }
func (g *group) heard() uint64 { return g.limit - uint64(len(g.members)) }

// is reports whether a Start with these members, ascending, describes the group.
func (g *group) is(s Start, members []NodeID) bool {
	return g.self == s.Self && g.fence == s.Fence && g.limit == limitOf(s) && slices.Equal(g.members, members)
}

func limitOf(s Start) uint64 {
	if s.Limit == 0 {
		return math.MaxUint64
	}
	return s.Limit
}

// groupOf returns the group that a Start describes. The first machine of a
// Shared makes it.
func (s *Shared) groupOf(start Start) (*group, error) {
	if s.group != nil && s.group.is(start, start.Members) {
		return s.group, nil
	}
	members, self, err := canon.Members("Start.", start.Members, start.Self)
	switch {
	case err != nil:
		return nil, Misuse(err.Error())
	case limitOf(start) < start.Fence || limitOf(start)-start.Fence < 2*uint64(len(members)):
		return nil, Misuse("Start.Limit leaves no room above Start.Fence: begin a group with higher fences")
	case s.group != nil && !s.group.is(start, members):
		return nil, Misuse("Start.Shared belongs to another node or group")
	case s.group != nil:
		return s.group, nil
	}
	return &group{
		self:    start.Self,
		place:   self,
		members: members,
		peers:   slices.Concat(members[:self], members[self+1:]),
		fence:   start.Fence,
		limit:   limitOf(start),
	}, nil
}

// Derive returns what an algorithm derives from the members and never changes,
// such as a quorum. It calls derive once for all machines of a [Shared].
func Derive[T any](s *Site, derive func() T) T {
	g := s.shared.group
	if g.derived == nil {
		g.derived = derive()
	}
	return g.derived.(T)
}
