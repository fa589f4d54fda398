package dmutex

import "slices"

// A Shared is what the machines of many locks at one node have in common, so
// that each costs less memory: who the members are, and the output of the last
// input. The zero Shared is ready; the driver gives it to each machine by
// [Start.Shared].
//
// The machines are of one [Algorithm] and one group, and get their inputs one at
// a time. What one returns is overwritten by the next input to any of them.
type Shared struct {
	group *group
	out   []Message
}

// A group is what does not change; clones share it.
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

// Derive returns what an algorithm derives from the members, such as a quorum,
// and never changes. It is derived once for all machines of a [Shared].
func Derive[T any](s *Site, derive func() T) T {
	g := s.shared.group
	if g.derived == nil {
		g.derived = derive()
	}
	return g.derived.(T)
}
