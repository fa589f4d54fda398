package dmutex

import "slices"

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
	derived any      // see Derive
}

// groupOf returns the group that a Start describes. The first machine of a
// Shared makes it.
func (s *Shared) groupOf(start Start) (*group, error) {
	if s.group != nil && s.group.self == start.Self && slices.Equal(s.group.members, start.Members) {
		return s.group, nil
	}
	members := slices.Sorted(slices.Values(start.Members))
	self, found := slices.BinarySearch(members, start.Self)
	switch {
	case len(members) > 0 && members[0] == None:
		return nil, Misuse("Start.Members contains 0, which names nobody: number nodes from 1")
	case len(slices.Compact(slices.Clone(members))) < len(members):
		return nil, Misuse("Start.Members names a node twice")
	case !found:
		return nil, Misuse("Start.Self " + start.Self.String() + " is not among Start.Members")
	case s.group != nil && (s.group.self != start.Self || !slices.Equal(s.group.members, members)):
		return nil, Misuse("Start.Shared belongs to another node or group")
	case s.group != nil:
		return s.group, nil
	}
	return &group{
		self:    start.Self,
		place:   self,
		members: members,
		peers:   slices.Concat(members[:self], members[self+1:]),
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
