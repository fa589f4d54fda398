package dmutex

import "slices"

// A Shared is what the machines of many locks at one node can have in common, so
// that a lock costs little while nothing happens to it: who the members are, the
// output of the last input, and what a machine needs only now and then. The zero
// Shared is ready; the driver gives it to each machine by [Start.Shared].
//
// The machines are of one [Algorithm] and one group, and get their inputs one at
// a time. What one returns is overwritten by the next input to any of them.
type Shared struct {
	group *group
	out   []Message
	spare []any // see Site.Lay
}

// A group is what does not change; clones share it.
type group struct {
	self    NodeID
	place   int      // of self in members
	members []NodeID // ascending
	peers   []NodeID // the same without self
	common  any      // see Site.Common
}

// keepSpare is how many spare parts a Shared keeps: enough for as many locks of
// one Shared at a time to come and go without garbage.
const keepSpare = 8

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

// Common returns what the algorithm derives from the members, such as a quorum,
// and never changes. It is derived for the first machine of a [Shared], and the
// others and all clones have the same; after that derive may be nil.
func (s *Site) Common(derive func() any) any {
	g := s.shared.group
	if g.common == nil {
		g.common = derive()
	}
	return g.common
}

// Lay lays aside what this machine does not need at present, for [Site.Take]. It
// is a pointer; a message that the present input sends may still refer to what
// is in it.
func (s *Site) Lay(part any) {
	if len(s.shared.spare) < keepSpare {
		s.shared.spare = append(s.shared.spare, part)
	}
}

// Take returns what some machine of the same [Shared] laid aside, as it was then,
// or nil if there is nothing.
func (s *Site) Take() any {
	last := len(s.shared.spare) - 1
	if last < 0 {
		return nil
	}
	part := s.shared.spare[last]
	s.shared.spare[last] = nil
	s.shared.spare = s.shared.spare[:last]
	return part
}
