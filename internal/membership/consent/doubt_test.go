package consent

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/membership"
)

// doubts are the rules of doubt, one by one. Life 10 acts in the first view, with 20 and 30. A word
// says that the others go on without it.
var doubts = []struct {
	name string
	play func(t *testing.T, s *soloist)
}{
	{"one word freezes a life, and it asks", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11))
		s.is(Doubting)
		s.says("1->2 PREPARE round=2", "1->3 PREPARE round=2")
		by, later := s.Doubt()
		require.Equal(t, dmutex.NodeID(3), by)
		require.EqualValues(t, 11, later)
	}},
	{"a complete later view without it is a word", func(t *testing.T, s *soloist) {
		s.hears(from(30).complete(view(2, 20, 30)))
		s.is(Doubting)
		s.says("1->2 PREPARE round=3 2{2#20,3#30}", "1->3 PREPARE round=3 2{2#20,3#30}")
		by, later := s.Doubt()
		require.Equal(t, dmutex.NodeID(3), by)
		require.Zero(t, later)
	}},
	{"a view with a later life of its number is a word", func(t *testing.T, s *soloist) {
		s.hears(from(30).decide(view(2, 11, 20, 30)))
		s.is(Doubting)
		s.says("1->2 PREPARE round=3", "1->3 PREPARE round=3")
	}},
	{"a session gives a word", func(t *testing.T, s *soloist) {
		s.input(s.Taken(s.now, 3, 11))
		s.is(Doubting)
		s.input(s.Taken(s.now, 2, 11))
		s.is(Stopped)
		require.EqualValues(t, 11, s.Later())
	}},
	{"a session of a stranger gives no word", func(t *testing.T, s *soloist) {
		s.input(s.Taken(s.now, 1, 11))
		s.input(s.Taken(s.now, 7, 11))
		s.is(Acting)
	}},

	{"a view that does not act yet is doubted, too", func(t *testing.T, _ *soloist) {
		s := solo(t, 10, 0)
		s.met(20, 30)
		s.enters(20, first)
		s.is(Frozen)
		s.hears(from(30).refuse(1, 11), from(20).report(first), from(30).report(first))
		s.is(Doubting)
		s.hears(from(20).promise(s.question, first, first))
		s.is(Acting)
	}},
	{"after a doubt a view waits for its reports", func(t *testing.T, _ *soloist) {
		s := solo(t, 10, 0)
		s.met(20, 30)
		s.enters(20, first)
		s.hears(from(30).refuse(1, 11), from(20).promise(2, first, first))
		s.is(Frozen)
	}},
	{"an earlier view is no word", func(t *testing.T, s *soloist) {
		s.enters(20, view(3, 10, 20, 30))
		s.hears(from(30).complete(view(2, 20, 30)))
		require.False(t, s.phase == Doubting)
	}},
	{"a later view is no word for a life that has never acted", func(t *testing.T, _ *soloist) {
		s := solo(t, 10, 0)
		s.met(20, 30)
		s.hears(from(20).prepare(2), from(20).decide(view(2, 10, 20, 30)), from(20).complete(view(3, 20, 30)))
		require.False(t, s.phase == Doubting)
	}},

	// The life ends.
	{"two words end it", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11), from(20).complete(view(2, 20, 30)))
		s.is(Stopped)
		require.EqualValues(t, 11, s.Later())
	}},
	{"two words of an eviction end it", func(t *testing.T, s *soloist) {
		s.hears(from(30).complete(view(2, 20, 30)), from(20).complete(view(2, 20, 30)))
		s.is(Stopped)
		require.Zero(t, s.Later())
	}},
	{"one member has one word", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11), from(30).refuse(1, 12), from(30).complete(view(2, 20, 30)))
		s.met(31)
		s.hears(from(31).refuse(1, 11))
		s.is(Doubting)
	}},
	{"a word that nobody contradicts ends it after a second", func(t *testing.T, s *soloist) {
		s.lost(20)
		s.hears(from(30).complete(view(2, 20, 30)))
		for s.now < maxDoubt {
			s.is(Doubting)
			s.waits()
		}
		s.is(Stopped)
		require.EqualValues(t, maxDoubt, s.now)
	}},
	{"it asks until somebody contradicts", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11), from(20).refuse(7, 0))
		s.waits()
		require.EqualValues(t, askPause, s.now)
		s.says("1->2 PREPARE round=8", "1->3 PREPARE round=8")
		s.hears(from(20).promise(8, first, first))
		s.is(Acting)
	}},

	// Only the member itself takes back what it says again. Until then the two do not talk.
	{"a word that is said again ends it after ten seconds", func(t *testing.T, s *soloist) {
		s.input(s.Taken(s.now, 3, 11))
		s.hears(from(20).promise(2, first, first))
		s.is(Acting)
		s.input(s.Taken(s.now, 3, 11))
		said := s.now
		for s.now < said+maxDispute {
			s.is(Doubting)
			s.waits()
			s.hears(from(20).promise(s.question, first, first))
		}
		s.is(Stopped)
		require.EqualValues(t, 11, s.Later())
		require.Equal(t, said+maxDispute, s.now)
	}},
	{"a later view that is told again ends it, too", func(t *testing.T, s *soloist) {
		s.hears(from(30).complete(view(2, 30)), from(20).promise(3, first, first))
		s.is(Acting)
		s.hears(from(30).complete(view(2, 30)))
		for s.now < maxDispute {
			s.is(Doubting)
			s.waits()
		}
		s.is(Stopped)
	}},
	{"a member takes back what it has said again", func(t *testing.T, s *soloist) {
		for range 3 {
			s.input(s.Taken(s.now, 3, 11))
			if s.is(Doubting); s.out == nil {
				s.waits()
			}
			s.hears(from(20).promise(s.question, first, first))
			s.is(Acting)
			s.input(s.Taken(s.now, 3, 11))
			s.is(Doubting)
			s.waits()
			s.hears(from(20).promise(s.question, first, first))
			s.is(Doubting)
			s.hears(from(30).promise(s.question, first, first))
			s.is(Acting)
		}
	}},
	{"a dispute covers for nobody else", func(t *testing.T, s *soloist) {
		s.input(s.Taken(s.now, 3, 11))
		s.hears(from(20).promise(2, first, first))
		s.input(s.Taken(s.now, 3, 11))
		s.is(Doubting)
		s.input(s.Taken(s.now, 2, 11))
		s.is(Stopped)
	}},
	{"a former life may end yet", func(t *testing.T, s *soloist) {
		for range 3 {
			s.input(s.Taken(s.now, 3, 9))
			s.is(Doubting)
			if s.out == nil {
				s.waits()
			}
			s.hears(from(20).promise(s.question, first, first))
			s.is(Acting)
		}
	}},

	// A question tells what it is about. That is no word of the member that asks.
	{"a question about a later view without it freezes it, too", func(t *testing.T, s *soloist) {
		s.hears(from(20).asks(3, view(2, 30)))
		s.is(Doubting)
		s.says("1->2 PREPARE round=4 2{3#30}", "1->3 PREPARE round=4 2{3#30}", "1->2 REFUSE round=4")
		by, later := s.Doubt()
		require.Equal(t, dmutex.NodeID(2), by)
		require.Zero(t, later)
		s.hears(from(20).refuse(4, 0))
		s.waits()
		s.says("1->2 PREPARE round=5 2{3#30}", "1->3 PREPARE round=5 2{3#30}")
		for s.now < maxDoubt {
			s.is(Doubting)
			s.waits()
		}
		s.is(Stopped)
	}},
	{"what a member has heard is not its word", func(t *testing.T, s *soloist) {
		s.hears(from(20).asks(3, view(2, 30)), from(30).complete(view(2, 30)))
		s.is(Doubting)
		s.hears(from(30).promise(4, first, first))
		s.is(Acting)
	}},
	{"a question about a view with it is no accusation", func(t *testing.T, s *soloist) {
		s.hears(from(20).asks(3, view(2, 10, 30)))
		s.is(Acting)
		s.says("1->2 PROMISE round=3 installed=1{1#10,2#20,3#30} completed=1{1#10,2#20,3#30}")
	}},
	{"a question tells of no life", func(t *testing.T, s *soloist) {
		s.hears(from(20).asks(3, view(2, 11, 31)))
		s.is(Doubting)
		require.EqualValues(t, 10, s.member(1).newest)
		require.EqualValues(t, 30, s.member(3).newest)
		s.hears(from(30).promise(4, first, first))
		s.is(Acting)
	}},
	{"a view that was contradicted is asked about in vain", func(t *testing.T, s *soloist) {
		s.hears(from(20).asks(3, view(2, 30)), from(30).promise(4, first, first), from(20).asks(5, view(2, 30)))
		s.is(Acting)
		s.says("1->2 PROMISE round=5 installed=1{1#10,2#20,3#30} completed=1{1#10,2#20,3#30}")
		s.hears(from(20).asks(7, view(6, 30)))
		s.is(Doubting)
	}},

	// The life goes on.
	{"a member of its view contradicts", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11), from(20).promise(2, first, first))
		s.is(Acting)
		require.Equal(t, int64(due.Never), s.Deadline())
		by, _ := s.Doubt()
		require.Zero(t, by)
	}},
	{"a member contradicts a complete view, too", func(t *testing.T, s *soloist) {
		s.hears(from(30).complete(view(2, 30)), from(20).promise(3, first, first))
		s.is(Acting)
		s.says()
	}},
	{"a member takes its word back", func(t *testing.T, s *soloist) {
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
	{"a contradicted word is forgotten", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11), from(20).promise(2, first, first), from(20).refuse(1, 11))
		s.is(Doubting)
	}},
	{"liars use up no epochs", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11), from(20).promise(2, first, first), from(20).refuse(1, 11))
		s.is(Doubting)
		s.says()
		s.waits()
		require.EqualValues(t, askPause, s.now)
		s.says("1->2 PREPARE round=3", "1->3 PREPARE round=3")
	}},

	// What contradicts nothing.
	{"a later view without this life does not contradict", func(t *testing.T, s *soloist) {
		s.hears(from(30).complete(view(2, 20, 30)), from(20).promise(3, view(2, 20, 30), first))
		s.is(Doubting)
	}},
	{"a promise of another round does not contradict", func(t *testing.T, s *soloist) {
		s.input(s.Trouble(0, 1))
		s.waits()
		s.hears(from(30).refuse(1, 11))
		s.says("1->2 PREPARE round=3", "1->3 PREPARE round=3")
		s.hears(from(20).promise(2, first, first))
		s.is(Doubting)
	}},
	{"a leaving member does not contradict", func(t *testing.T, s *soloist) {
		promise := from(20).promise(2, first, first)
		promise.Leaving = true
		s.hears(from(30).refuse(1, 11), promise)
		s.is(Doubting)
	}},
	{"a life outside the view does not contradict", func(t *testing.T, s *soloist) {
		s.met(21)
		s.hears(from(30).refuse(1, 11))
		s.says("1->2 PREPARE round=3", "1->3 PREPARE round=3")
		s.hears(from(21).promise(3, membership.View{}, membership.View{}))
		s.is(Doubting)
	}},
	{"a replaced life does not contradict", func(t *testing.T, s *soloist) {
		s.hears(from(30).complete(view(2, 21, 30)), from(20).promise(3, first, first))
		s.is(Doubting)
	}},

	// What it does not do in doubt.
	{"in doubt it promises nothing", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11), from(20).prepare(5))
		s.says("1->2 REFUSE round=5")
	}},
	{"in doubt it decides nothing", func(t *testing.T, s *soloist) {
		s.input(s.Trouble(0, 1))
		s.waits()
		s.hears(from(20).promise(2, first, first), from(30).refuse(1, 11), from(30).promise(2, first, first))
		s.is(Doubting)
		s.says()
		require.Equal(t, first, s.View())
	}},
	{"in doubt it begins nothing", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11))
		s.input(s.Trouble(0, 1))
		require.EqualValues(t, askPause, s.Deadline())
		_, err := s.Evict(0, 2)
		require.ErrorIs(t, err, dmutex.ErrMisuse)
	}},
	{"in doubt it installs nothing", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(1, 11), from(30).decide(view(5, 10, 20, 30)))
		require.Equal(t, first, s.View())
	}},

	// A life that leaves has nothing to lose.
	{"a life that leaves believes one word", func(t *testing.T, s *soloist) {
		s.leaves()
		s.hears(from(30).refuse(2, 11))
		s.is(Stopped)
	}},
	{"a life that leaves in doubt believes the word", func(t *testing.T, s *soloist) {
		s.hears(from(30).refuse(2, 11))
		s.leaves()
		s.is(Stopped)
		require.EqualValues(t, 11, s.Later())
	}},
	{"the word of an eviction does not keep a life from leaving", func(t *testing.T, s *soloist) {
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
