package membership

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
)

// doubts are the rules of doubt, one by one. Life 10 acts in the first view, with 20 and 30.
var doubts = []struct {
	name string
	play func(t *testing.T, s *soloist)
}{
	{"one word stops nothing for good, and asks", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11))
		s.is(Frozen)
		s.says("1->2 PREPARE round=2", "1->3 PREPARE round=2")
		by, later := s.Doubt()
		require.Equal(t, dmutex.NodeID(3), by)
		require.EqualValues(t, 11, later)
	}},
	{"so does a later view without it that is complete", func(t *testing.T, s *soloist) {
		s.hears(from(30).complete(view(2, 20, 30)))
		s.is(Frozen)
		s.says("1->2 PREPARE round=3", "1->3 PREPARE round=3")
		by, later := s.Doubt()
		require.Equal(t, dmutex.NodeID(3), by)
		require.Zero(t, later)
	}},
	{"and a view with a later life", func(t *testing.T, s *soloist) {
		s.hears(from(30).decide(view(2, 11, 20, 30)))
		s.is(Frozen)
		s.says("1->2 PREPARE round=3", "1->3 PREPARE round=3")
	}},
	{"and the word of a session", func(t *testing.T, s *soloist) {
		s.input(s.Taken(s.now, 3, 11))
		s.is(Frozen)
		s.input(s.Taken(s.now, 2, 11))
		s.is(Stopped)
		require.EqualValues(t, 11, s.Later())
	}},
	{"of a peer", func(t *testing.T, s *soloist) {
		s.input(s.Taken(s.now, 1, 11))
		s.input(s.Taken(s.now, 7, 11))
		s.is(Acting)
	}},

	{"an earlier view is no word", func(t *testing.T, s *soloist) {
		s.enters(20, view(3, 10, 20, 30))
		s.hears(from(30).complete(view(2, 20, 30)))
		require.False(t, s.inDoubt())
	}},
	{"nor is a later one, if this life has never acted", func(t *testing.T, _ *soloist) {
		s := solo(t, 10, 0)
		s.met(20, 30)
		s.hears(from(20).prepare(2), from(20).decide(view(2, 10, 20, 30)), from(20).complete(view(3, 20, 30)))
		require.False(t, s.inDoubt())
	}},

	// It ends.
	{"two words end it", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11), from(20).complete(view(2, 20, 30)))
		s.is(Stopped)
		require.EqualValues(t, 11, s.Later())
	}},
	{"two words of an eviction", func(t *testing.T, s *soloist) {
		s.hears(from(30).complete(view(2, 20, 30)), from(20).complete(view(2, 20, 30)))
		s.is(Stopped)
		require.Zero(t, s.Later())
	}},
	{"one member has one word", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11), from(30).refuse(1, 12), from(30).complete(view(2, 20, 30)))
		s.met(31)
		s.hears(from(31).refuse(1, 11))
		s.is(Frozen)
	}},
	{"a word without an answer ends it after a second", func(t *testing.T, s *soloist) {
		s.lost(20)
		s.hears(from(30).complete(view(2, 20, 30)))
		for s.now < maxDoubt {
			s.is(Frozen)
			s.waits()
		}
		s.is(Stopped)
		require.EqualValues(t, maxDoubt, s.now)
	}},
	{"and it asks until then", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11), from(20).refuse(7, 0))
		s.waits()
		require.EqualValues(t, askPause, s.now)
		s.says("1->2 PREPARE round=8", "1->3 PREPARE round=8")
		s.hears(from(20).promise(8, first, first))
		s.is(Acting)
	}},

	// It goes on.
	{"a member of its view contradicts", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11), from(20).promise(2, first, first))
		s.is(Acting)
		require.Equal(t, int64(never), s.Deadline())
		by, _ := s.Doubt()
		require.Zero(t, by)
	}},
	{"against a complete view, too", func(t *testing.T, s *soloist) {
		s.hears(from(30).complete(view(2, 30)), from(20).promise(3, first, first))
		s.is(Acting)
		s.says()
	}},
	{"a member that said so takes it back", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11), from(30).promise(2, first, first))
		s.is(Acting)
	}},
	{"a later view with this life contradicts", func(t *testing.T, s *soloist) {
		s.hears(from(20).prepare(2), from(30).refuse(1, 11), from(20).decide(view(2, 10, 20, 30)))
		require.Equal(t, first, s.View(), "a view is not installed in doubt")
		s.hears(from(20).promise(3, view(2, 10, 20, 30), first))
		s.is(Acting)
		s.says("1->2 PREPARE round=4", "1->3 PREPARE round=4")
	}},
	{"what was contradicted is forgotten", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11), from(20).promise(2, first, first), from(20).refuse(1, 11))
		s.is(Frozen)
	}},
	{"a liar uses up no epochs", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11), from(20).promise(2, first, first), from(30).refuse(1, 11))
		s.is(Frozen)
		s.says()
		s.waits()
		require.EqualValues(t, askPause, s.now)
		s.says("1->2 PREPARE round=3", "1->3 PREPARE round=3")
	}},

	// What contradicts nothing.
	{"a later view without this life does not", func(t *testing.T, s *soloist) {
		s.hears(from(30).complete(view(2, 20, 30)), from(20).promise(3, view(2, 20, 30), first))
		s.is(Frozen)
	}},
	{"nor does a promise of another round", func(t *testing.T, s *soloist) {
		s.input(s.Trouble(0, 1))
		s.waits()
		s.hears(from(30).refuse(1, 11))
		s.says("1->2 PREPARE round=3", "1->3 PREPARE round=3")
		s.hears(from(20).promise(2, first, first))
		s.is(Frozen)
	}},
	{"nor a member that leaves", func(t *testing.T, s *soloist) {
		promise := from(20).promise(2, first, first)
		promise.Leaving = true
		s.hears(from(30).refuse(1, 11), promise)
		s.is(Frozen)
	}},
	{"nor a life that is not in the view", func(t *testing.T, s *soloist) {
		s.met(21)
		s.hears(from(30).refuse(1, 11))
		s.says("1->2 PREPARE round=3", "1->3 PREPARE round=3")
		s.hears(from(21).promise(3, View{}, View{}))
		s.is(Frozen)
	}},
	{"nor a life that was replaced", func(t *testing.T, s *soloist) {
		s.hears(from(30).complete(view(2, 21, 30)), from(20).promise(3, first, first))
		s.is(Frozen)
	}},

	// What it does not do in doubt.
	{"it promises nothing", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11), from(20).prepare(5))
		s.says("1->2 REFUSE round=5")
	}},
	{"it decides nothing", func(t *testing.T, s *soloist) {
		s.input(s.Trouble(0, 1))
		s.waits()
		s.hears(from(20).promise(2, first, first), from(30).refuse(1, 11), from(30).promise(2, first, first))
		s.is(Frozen)
		s.says()
		require.Equal(t, first, s.View())
	}},
	{"it begins nothing", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11))
		s.input(s.Trouble(0, 1))
		require.EqualValues(t, askPause, s.Deadline())
		_, err := s.Evict(0, 2)
		require.ErrorIs(t, err, dmutex.ErrMisuse)
	}},
	{"it installs nothing", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11), from(30).decide(view(5, 10, 20, 30)))
		require.Equal(t, first, s.View())
	}},

	// Others have nothing to lose.
	{"a life that leaves believes one word", func(t *testing.T, s *soloist) {
		s.leaves()
		s.hears(from(30).refuse(2, 11))
		s.is(Stopped)
	}},
	{"also when it leaves in doubt", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(2, 11))
		s.leaves()
		s.is(Stopped)
		require.EqualValues(t, 11, s.Later())
	}},
	{"an eviction does not keep it from leaving", func(t *testing.T, s *soloist) {
		s.hears(from(30).complete(view(2, 20, 30)))
		s.leaves()
		s.is(Acting)
		s.says("1->2 PREPARE round=4 leaving", "1->3 PREPARE round=4 leaving")
	}},
}

func TestDoubt(t *testing.T) {
	for _, tt := range doubts {
		t.Run(tt.name, func(t *testing.T) { tt.play(t, acting(t, 10)) })
	}
}

// A life in no view believes one word, and takes a higher number.
func TestNoDoubtOutside(t *testing.T) {
	s := solo(t, 10, 0)
	s.met(20)
	s.input(s.Taken(0, 2, 11))
	s.is(Outside)
	s.hears(from(20).refuse(1, 11))
	s.is(Older)
}
