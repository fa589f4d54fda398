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
	spare []any
}

// A group is what does not change; clones share it.
type group struct {
	self    NodeID
	place   int      // of self in members
	members []NodeID // ascending
	peers   []NodeID // the same without self
	common  any
}

// keepSpare is how many spare parts a Shared keeps. Two or three are needed
// where no machine keeps one for itself.
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

// Common returns what the algorithm derives from the group and never changes. It
// is made for the first machine of a [Shared]; clones have it too.
func (s *Site) Common(first func(*Site) any) any {
	g := s.shared.group
	if g.common == nil {
		g.common = first(s)
	}
	return g.common
}

// Lay keeps a part that this machine does not need at present: a pointer, whose
// contents no longer matter once the next input begins. See [Take].
func (s *Site) Lay(part any) {
	if len(s.shared.spare) < keepSpare {
		s.shared.spare = append(s.shared.spare, part)
	}
}

// Take returns a part of that type that some machine of the same [Shared] laid
// aside, with what was in it then, or nil if there is none.
func Take[T any](s *Site) *T {
	spare := s.shared.spare
	last := len(spare) - 1
	for i := last; i >= 0; i-- {
		if part, ok := spare[i].(*T); ok {
			spare[i], spare[last] = spare[last], nil
			s.shared.spare = spare[:last]
			return part
		}
	}
	return nil
}
