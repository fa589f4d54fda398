package consent

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/kit/viewtest"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/carryover"
)

// A soloist is one life of a group of three, alone with the test, which plays its
// peers. The lives of member 2 have the numbers 20, 21 and so on.
type soloist struct {
	*Machine
	t   *testing.T
	now int64
	out []string // of the last input
}

func solo(t *testing.T, life, clock uint64) *soloist {
	m, err := New(Config{Self: of(life), Members: []dmutex.NodeID{1, 2, 3}, Life: life, Clock: clock})
	require.NoError(t, err)
	return &soloist{Machine: m, t: t}
}

// acting returns a life that acts in 1{1#10,2#20,3#30}.
func acting(t *testing.T, life uint64) *soloist {
	s := solo(t, life, 0)
	var peers []uint64
	for _, peer := range []uint64{10, 20, 30} {
		if peer != life {
			peers = append(peers, peer)
		}
	}
	s.met(peers...)
	s.enters(peers[0], first)
	s.hears(from(peers[0]).report(first), from(peers[1]).report(first))
	require.Equal(t, Acting, s.Phase())
	return s
}

// exiting returns a life that acts in the first view and knows of 2{2#20,3#30}.
func exiting(t *testing.T) *soloist {
	s := acting(t, 10)
	s.leaves()
	s.hears(from(20).promise(2, first, first), from(30).promise(2, first, first))
	return s
}

var first = view(1, 10, 20, 30)

func of(life uint64) dmutex.NodeID { return dmutex.NodeID(life / 10) }

func view(epoch uint64, lives ...uint64) membership.View {
	v := membership.View{Epoch: epoch}
	for _, life := range lives {
		v.Members = append(v.Members, membership.Member{Node: of(life), Life: life})
	}
	return v
}

// from is the life of a peer, which sends messages.
type from uint64

func (f from) prepare(round uint64) membership.Message {
	return membership.Message{Kind: membership.Prepare, From: of(uint64(f)), Round: round}
}

// asks is a question in doubt about a later view.
func (f from) asks(round uint64, about membership.View) membership.Message {
	return membership.Message{Kind: membership.Prepare, From: of(uint64(f)), Round: round, View: about}
}

func (f from) promise(round uint64, installed, completed membership.View) membership.Message {
	return membership.Message{Kind: membership.Promise, From: of(uint64(f)), Round: round, Installed: installed, Completed: completed}
}

func (f from) refuse(round uint64, later uint64) membership.Message {
	return membership.Message{Kind: membership.Refuse, From: of(uint64(f)), Round: round, Life: later}
}

func (f from) decide(v membership.View) membership.Message {
	return membership.Message{Kind: membership.Decide, From: of(uint64(f)), View: v}
}

func (f from) report(v membership.View, holds ...membership.Hold) membership.Message {
	return membership.Message{Kind: membership.Report, From: of(uint64(f)), View: v, Holds: holds}
}

func (f from) complete(v membership.View) membership.Message {
	return membership.Message{Kind: membership.Complete, From: of(uint64(f)), View: v}
}

// input notes the output of an input. The driver of a soloist holds nothing.
func (s *soloist) input(out membership.Output) {
	s.out = nil
	for _, msg := range out.And(s.Report(s.now, nil)).Messages {
		s.out = append(s.out, viewtest.Message(&msg))
	}
}

func (s *soloist) met(lives ...uint64) {
	for _, life := range lives {
		s.input(s.Met(s.now, of(life), life))
	}
}

func (s *soloist) lost(life uint64) { s.input(s.Lost(s.now, of(life))) }
func (s *soloist) leaves()          { s.input(s.Leave(s.now)) }

func (s *soloist) waits() {
	s.now = s.Deadline()
	s.input(s.Tick(s.now))
}

// outlived lets both peers of life 10 tell it of a later one.
func (s *soloist) outlived() {
	s.hears(from(20).refuse(2, 11), from(30).refuse(2, 11))
	s.is(Stopped)
}

func (s *soloist) evicts(node dmutex.NodeID) {
	out, err := s.Evict(s.now, node)
	require.NoError(s.t, err)
	s.input(out)
}

func (s *soloist) hears(msgs ...membership.Message) {
	for _, msg := range msgs {
		msg.To = s.me().node
		out, err := s.Handle(s.now, msg)
		require.NoError(s.t, err)
		s.input(out)
	}
}

// enters lets the life promise and install a view of a peer's round.
func (s *soloist) enters(peer uint64, v membership.View) {
	s.hears(from(peer).prepare(v.Epoch), from(peer).decide(v))
	require.Equal(s.t, v, s.View())
}

// says checks the output of the last input.
func (s *soloist) says(want ...string) {
	s.t.Helper()
	require.Equal(s.t, want, s.out)
}

// is checks the phase.
func (s *soloist) is(p Phase) {
	s.t.Helper()
	require.Equal(s.t, p, s.Phase())
}

// rules are conditions in the machine, each with the input that shows it.
var rules = []struct {
	name string
	play func(t *testing.T)
}{
	// The evicted may have granted in epochs that nobody else knows, but in none beyond
	// the clock.
	{"an eviction is above the clock", func(t *testing.T) {
		s := acting(t, 10)
		s.lost(30)
		s.Clock(105)
		s.evicts(3)
		s.says("1->2 PREPARE round=105")
	}},

	// The others would refuse its round, and the operator would wait in vain.
	{"an eviction is not above what is believed", func(t *testing.T) {
		s := acting(t, 10)
		s.lost(30)
		s.hears(from(20).refuse(epochs.Day-1, 0))
		_, err := s.Evict(0, 3)
		require.ErrorIs(t, err, dmutex.ErrMisuse)
		require.Zero(t, s.round)
		s.Clock(epochs.Minute)
		s.evicts(3)
		s.says("1->2 PREPARE round=86400000")
	}},

	// Nobody may count on a life that is over.
	{"the ended promise nothing", func(t *testing.T) {
		s := acting(t, 10)
		s.outlived()
		s.hears(from(20).prepare(5))
		s.says()
		s.met(20)
		s.says()
	}},

	// An ended life needs no other view.
	{"the ended begin no round", func(t *testing.T) {
		s := acting(t, 10)
		s.leaves()
		s.hears(from(20).refuse(2, 11))
		s.is(Stopped)
		s.says()
		require.Equal(t, int64(due.Never), s.Deadline())
	}},

	// The open round of a life ends with it.
	{"the ended have no open round", func(t *testing.T) {
		s := acting(t, 10)
		s.lost(30)
		s.input(s.Trouble(0, 1))
		s.waits()
		s.says("1->2 PREPARE round=2")
		require.Equal(t, []dmutex.NodeID{2, 3}, s.Missing(nil))
		s.met(30)
		s.outlived()
		require.Empty(t, s.Missing(nil))
		require.Zero(t, s.round)
	}},

	// Its driver has been told that it left in good order.
	{"the left are not stopped", func(t *testing.T) {
		s := exiting(t)
		s.hears(from(20).complete(view(2, 20, 30)), from(30).complete(view(2, 20, 30)))
		s.is(Left)
		s.hears(from(20).decide(view(3, 11, 20, 30)))
		s.is(Left)
		s.lost(20)
		s.met(20)
		s.says()
	}},

	// A peer that restarts during the farewell makes no mistake.
	{"the ended hear those that they meet", func(t *testing.T) {
		s := acting(t, 10)
		s.outlived()
		s.met(21)
		s.hears(from(21).prepare(5))
		s.lost(21)
		s.met(21)
		s.hears(from(21).prepare(6))
		s.says()
	}},

	// A message to a life that is gone is lost.
	{"only a life that is there is told that it is old", func(t *testing.T) {
		s := acting(t, 10)
		s.enters(20, view(3, 10, 30))
		s.lost(20)
		s.hears(from(30).promise(1, view(4, 21, 30), first))
		s.says()
		s.met(20)
		s.says("1->2 REFUSE round=3 life=21")
	}},

	// Otherwise one member that lies makes a second tell its lie.
	{"hearsay about a member of the view is not passed on", func(t *testing.T) {
		s := acting(t, 10)
		s.hears(from(30).promise(1, view(4, 21, 30), first))
		s.says()
		s.enters(30, view(5, 10, 21, 30))
		s.says("1->2 REFUSE round=5 life=21", "1->3 REPORT 5{1#10,2#21,3#30}")
	}},

	// A report before the driver's would say that nothing is held.
	{"only the driver reports", func(t *testing.T) {
		s := solo(t, 30, 0)
		s.met(10, 20)
		_, err := s.Handle(0, membership.Message{Kind: membership.Decide, From: 1, To: 3, View: first})
		require.NoError(t, err)
		require.Empty(t, s.Met(0, 2, 20))
		for _, peer := range []from{10, 20} {
			_, err = s.Handle(0, membership.Message{Kind: membership.Refuse, From: of(uint64(peer)), To: 3, Round: 1, Life: 31})
			require.NoError(t, err)
		}
		s.is(Stopped)
		s.input(membership.Output{}) // the driver reports after that
		s.says()
	}},

	// The alarm may be about a replaced view, or a repeated one.
	{"one trouble, one round", func(t *testing.T) {
		s := acting(t, 10)
		s.input(s.Trouble(0, 0))
		require.Equal(t, int64(due.Never), s.Deadline())
		s.input(s.Trouble(0, 1))
		s.input(s.Trouble(0, 1))
		require.Equal(t, int64(membership.MinPause), s.Deadline())
		s.enters(20, view(2, 10, 20, 30))
		s.input(s.Trouble(0, 2))
		require.Equal(t, int64(2*membership.MinPause), s.Deadline())
	}},

	// A round of its own would be refused without an answer, again and again.
	{"a round that nobody would believe waits", func(t *testing.T) {
		s := acting(t, 10)
		s.hears(from(20).refuse(epochs.Day-1, 0))
		s.input(s.Trouble(s.now, 1))
		s.waits()
		s.says()
		require.Equal(t, int64(membership.MinPause+epochs.Minute*millisecond), s.Deadline())
		s.Clock(epochs.Minute)
		s.waits()
		s.says("1->2 PREPARE round=86400000", "1->3 PREPARE round=86400000")
	}},

	// A view that lasted is no quarrel.
	{"a calm time ends a quarrel", func(t *testing.T) {
		for long, pause := range map[int64]int64{membership.Calm: 4 * membership.MinPause, membership.Calm + 1: 2 * membership.MinPause} {
			s := acting(t, 10)
			s.input(s.Trouble(s.now, 1))
			s.enters(20, view(2, 10, 20, 30))
			s.now += long
			s.input(s.Trouble(s.now, 2))
			s.enters(20, view(4, 10, 20, 30))
			s.input(s.Trouble(s.now, 4))
			require.Equal(t, s.now+pause, s.Deadline())
		}
	}},

	// A back-off is for members whose rounds would meet again.
	{"another's round is no failure of a life that wants none", func(t *testing.T) {
		s := acting(t, 10)
		s.hears(from(20).prepare(2))
		require.Zero(t, s.fails)
		require.Equal(t, int64(due.Never), s.Deadline())
		s.input(s.Trouble(0, 1))
		s.hears(from(20).prepare(3))
		require.Equal(t, 1, s.fails)
	}},

	// Otherwise members that come again and again would cause rounds without end.
	{"an arrival ends no pause", func(t *testing.T) {
		s := acting(t, 10)
		s.input(s.Trouble(s.now, 1))
		s.waits()
		s.says("1->2 PREPARE round=2", "1->3 PREPARE round=2")
		pause := int64(membership.MinPause)
		for round := uint64(2); round < 12; round++ {
			s.hears(from(20).refuse(round, 0))
			require.Equal(t, s.now+pause, s.Deadline())
			s.lost(30)
			s.met(30)
			s.says("1->3 REPORT 1{1#10,2#20,3#30}")
			require.Equal(t, s.now+pause, s.Deadline())
			s.waits()
			pause = min(2*pause, membership.MinPause<<membership.MaxFails)
		}
	}},

	// A second Leave would give up the open round.
	{"a life leaves once", func(t *testing.T) {
		s := acting(t, 10)
		s.leaves()
		s.leaves()
		s.says()
	}},

	// Views also name lives of the past.
	{"old news is no news", func(t *testing.T) {
		s := acting(t, 10)
		s.met(21)
		s.hears(from(30).promise(1, first, first))
		require.Equal(t, uint64(21), s.member(2).newest)
	}},

	// Members of a view have the same holders, whatever a peer reports later.
	{"the first report counts", func(t *testing.T) {
		s := acting(t, 10)
		second := view(2, 10, 20, 30)
		s.enters(20, second)
		s.hears(from(20).report(second, membership.Hold{Lock: "b", Fence: 1<<22 + 1}), from(20).report(second, membership.Hold{Lock: "d", Fence: 1<<22 + 1}))
		s.hears(from(30).report(second, membership.Hold{Lock: "a", Fence: 1<<22 + 1}), from(30).report(second, membership.Hold{Lock: "c", Fence: 1<<22 + 1}))
		require.Equal(t, []carryover.Holder{{Node: 3, Hold: membership.Hold{Lock: "a", Fence: 1<<22 + 1}}, {Node: 2, Hold: membership.Hold{Lock: "b", Fence: 1<<22 + 1}}}, viewtest.Carried(s.in.Holdings...))
	}},
	// A hold of one view may be released in the next.
	{"a report is of its view", func(t *testing.T) {
		s := acting(t, 10)
		s.enters(20, view(2, 10, 20, 30))
		s.hears(from(20).report(first))
		require.Equal(t, []dmutex.NodeID{2, 3}, s.Missing(nil))
	}},

	// The proposer can decide once the last complete view is known.
	{"a promise is brought up to date", func(t *testing.T) {
		s := acting(t, 10)
		s.enters(20, view(2, 10, 20, 30))
		s.hears(from(20).prepare(3), from(20).report(view(2, 10, 20, 30)), from(30).report(view(2, 10, 20, 30)))
		s.says("1->2 PROMISE round=3 installed=2{1#10,2#20,3#30} completed=2{1#10,2#20,3#30}")
	}},

	// The earlier proposer may have a round of its own with the number of the later one.
	{"only a promise of the last round is brought up to date", func(t *testing.T) {
		s := acting(t, 10)
		s.enters(20, view(2, 10, 20, 30))
		s.hears(from(20).prepare(3), from(30).prepare(4), from(20).report(view(2, 10, 20, 30)), from(30).report(view(2, 10, 20, 30)))
		s.says("1->3 PROMISE round=4 installed=2{1#10,2#20,3#30} completed=2{1#10,2#20,3#30}")
	}},

	// The round of the view itself is over.
	{"a promise of a round that is over is not brought up to date", func(t *testing.T) {
		s := acting(t, 10)
		s.enters(20, view(2, 10, 20, 30))
		s.hears(from(20).report(view(2, 10, 20, 30)), from(30).report(view(2, 10, 20, 30)))
		s.says()
	}},

	// The later life of the proposer has not asked, and may have a round of its own
	// with this number.
	{"a promise to a life that is gone is not brought up to date", func(t *testing.T) {
		s := acting(t, 30)
		s.enters(10, view(2, 10, 20, 30))
		s.hears(from(20).report(view(2, 10, 20, 30)), from(20).prepare(3))
		s.met(21)
		s.hears(from(10).report(view(2, 10, 20, 30)))
		s.says()
		require.True(t, s.in.IsComplete())
	}},

	// A life that is gone may be followed by a life that has promised nothing.
	{"a promise is lost with its life", func(t *testing.T) {
		s := acting(t, 10)
		s.leaves()
		s.hears(from(20).promise(2, first, first))
		s.lost(20)
		s.hears(from(30).promise(2, first, first))
		s.says()
	}},

	// Its successor has forgotten it.
	{"a promise of a replaced life is dropped", func(t *testing.T) {
		s := acting(t, 10)
		s.hears(from(30).prepare(4))
		s.leaves()
		s.says("1->2 PREPARE round=5 leaving", "1->3 PREPARE round=5 leaving")
		s.hears(from(20).promise(5, first, first), from(30).promise(5, view(4, 21, 30), first))
		s.says()
	}},
	{"a promise of a replaced life is not taken", func(t *testing.T) {
		s := acting(t, 10)
		s.hears(from(30).prepare(4))
		s.leaves()
		s.hears(from(30).promise(5, view(4, 21, 30), first), from(20).promise(5, first, first))
		s.says()
	}},

	// A promise allows no view of a later round.
	{"a promise is of its round", func(t *testing.T) {
		s := acting(t, 10)
		s.leaves()
		s.hears(from(20).refuse(3, 0))
		s.waits()
		s.says("1->2 PREPARE round=4 leaving", "1->3 PREPARE round=4 leaving")
		s.hears(from(30).promise(4, first, first), from(20).promise(2, first, first))
		s.says()
	}},

	// A peer that refuses is there, perhaps in no view.
	{"a refusal is news", func(t *testing.T) {
		s := acting(t, 10)
		s.met(31)
		s.enters(20, view(3, 10, 20)) // it forgets what was new
		s.says("1->2 REPORT 3{1#10,2#20}")
		s.hears(from(31).refuse(4, 0))
		s.says("1->2 PREPARE round=5", "1->3 PREPARE round=5")
	}},

	// Somebody has vouched that it is dead, so what it holds is free.
	{"an evicted life is not taken in again", func(t *testing.T) {
		s := acting(t, 10)
		s.lost(30)
		s.enters(20, view(3, 10, 20))
		s.hears(from(20).report(view(3, 10, 20)))
		s.met(30)
		s.says("1->3 COMPLETE 3{1#10,2#20}", "1->2 PREPARE round=4", "1->3 PREPARE round=4")
		s.hears(from(20).promise(4, view(3, 10, 20), view(3, 10, 20)), from(30).promise(4, first, first))
		s.says("1->2 VIEW 4{1#10,2#20}", "1->3 VIEW 4{1#10,2#20}", "1->2 REPORT 4{1#10,2#20}")
	}},

	// An evicted life may not know of its eviction. Even so, its round is decided only once.
	{"an evicted life decides for the others", func(t *testing.T) {
		s := acting(t, 10)
		s.hears(from(20).refuse(3, 0))
		s.input(s.Trouble(s.now, 1))
		s.waits()
		s.says("1->2 PREPARE round=4", "1->3 PREPARE round=4")
		s.hears(from(20).promise(4, view(3, 20, 30), view(3, 20, 30)), from(30).promise(4, view(3, 20, 30), view(3, 20, 30)))
		s.says("1->2 VIEW 4{2#20,3#30}", "1->3 VIEW 4{2#20,3#30}", "1->2 PREPARE round=5", "1->3 PREPARE round=5")
	}},

	// A life that has promised a later round cannot decide its own.
	{"a later promise ends the open round", func(t *testing.T) {
		s := acting(t, 10)
		s.lost(30)
		s.evicts(3)
		s.says("1->2 PREPARE round=2")
		s.hears(from(20).prepare(3), from(20).promise(2, first, first))
		s.says()
	}},

	// Nobody knows better whether a process is dead. An older promise may be of one that has died since.
	{"a promise refutes an operator's word", func(t *testing.T) {
		s := acting(t, 10)
		s.input(s.Trouble(s.now, 1))
		s.waits()
		s.evicts(3)
		s.says("1->2 PREPARE round=3", "1->3 PREPARE round=3")
		for round := uint64(1); round < 4; round++ {
			s.hears(from(30).promise(round, first, first))
			_, refuted := s.Newest(3)
			require.Equal(t, round == 3, refuted == 3)
		}
		s.lost(30)
		s.hears(from(20).promise(3, first, first))
		s.says()
		s.met(30)
		s.hears(from(30).promise(3, first, first))
		s.says("1->2 VIEW 3{1#10,2#20,3#30}", "1->3 VIEW 3{1#10,2#20,3#30}", "1->2 REPORT 3{1#10,2#20,3#30}", "1->3 REPORT 3{1#10,2#20,3#30}")
	}},

	// The lives of the later view promise no lower round.
	{"a later view ends the open round", func(t *testing.T) {
		s := acting(t, 10)
		s.lost(30)
		s.evicts(3)
		s.hears(from(20).decide(view(3, 20, 30)))
		s.says("1->2 PREPARE round=4")
	}},

	// An epoch has one view.
	{"a view of its epoch ends the open round", func(t *testing.T) {
		s := acting(t, 10)
		s.lost(30)
		s.evicts(3)
		s.hears(from(20).decide(view(2, 10, 20)), from(20).promise(2, first, first))
		s.says()
	}},

	// A peer that makes up a view costs time, and the group goes on above it.
	{"no round below the view is promised", func(t *testing.T) {
		s := acting(t, 10)
		s.hears(from(20).decide(view(5, 10, 20, 30)), from(30).prepare(4))
		s.says("1->3 REFUSE round=5")
	}},

	// The others may not be in the new view yet.
	{"a new view does not act", func(t *testing.T) {
		s := acting(t, 10)
		s.enters(20, view(2, 10, 20, 30))
		s.is(Frozen)
	}},

	// The others went on, and took this life in again.
	{"an earlier view stops nobody", func(t *testing.T) {
		s := acting(t, 10)
		s.enters(20, view(3, 10, 20, 30))
		s.hears(from(30).complete(view(2, 20, 30)))
		s.is(Frozen)
	}},

	// A life that never acted has nothing to lose. The others have not waited for its
	// reports, so it asks them to take it in.
	{"a life that never acted asks", func(t *testing.T) {
		s := solo(t, 10, 0)
		s.met(20, 30)
		s.hears(from(20).prepare(2), from(20).decide(view(2, 10, 20, 30)), from(20).complete(view(3, 20, 30)))
		s.is(Frozen)
		s.says("1->2 PREPARE round=4", "1->3 PREPARE round=4")
	}},

	// A leaver waits for the view without it. It asks for another only if a later round
	// may have begun: the members may then never install that view.
	{"a leaver asks once", func(t *testing.T) {
		s := exiting(t)
		s.says("1->2 VIEW 2{2#20,3#30}", "1->3 VIEW 2{2#20,3#30}")
		require.Equal(t, int64(due.Never), s.Deadline())
		s.hears(from(20).refuse(3, 0))
		s.says("1->2 PREPARE round=4 leaving", "1->3 PREPARE round=4 leaving")
	}},

	// A view with a life that is dead may never be complete.
	{"a leaver asks again if a member of the view is replaced", func(t *testing.T) {
		s := exiting(t)
		s.met(31)
		s.says("1->2 PREPARE round=3 leaving", "1->3 PREPARE round=3 leaving")
	}},

	// Its message may be lost with the session.
	{"a leaver tells the view again", func(t *testing.T) {
		s := exiting(t)
		s.lost(20)
		s.met(20)
		s.says("1->2 REPORT 1{1#10,2#20,3#30}", "1->2 VIEW 2{2#20,3#30}")
	}},

	// The members of the later view may leave before it is complete.
	{"any complete view without it lets a leaver go", func(t *testing.T) {
		s := exiting(t)
		s.hears(from(20).prepare(3), from(20).decide(view(3, 30)), from(30).decide(view(2, 20, 30)))
		require.Equal(t, []dmutex.NodeID{3}, s.Missing(nil), "the newest is waited for")
		s.hears(from(20).complete(view(2, 20, 30)))
		s.is(Acting)
		s.hears(from(30).complete(view(2, 20, 30)))
		s.is(Left)
	}},

	// Its successor knows nothing of the view.
	{"the word of a replaced life lets no leaver go", func(t *testing.T) {
		s := exiting(t)
		s.hears(from(30).complete(view(2, 20, 30)))
		s.met(31)
		s.hears(from(20).complete(view(2, 20, 30)))
		s.is(Acting)
	}},

	// A leaver may be a member of the view of a round that it promised before it began to
	// leave. That view comes after the view without it.
	{"a view before one that it may be in lets no leaver go", func(t *testing.T) {
		s := acting(t, 10)
		s.hears(from(20).prepare(5))
		s.leaves()
		s.says("1->2 PREPARE round=6 leaving", "1->3 PREPARE round=6 leaving")
		for _, peer := range []uint64{20, 30} {
			s.hears(from(peer).complete(view(3, 20, 30)))
			s.says()
		}
		s.is(Acting)
	}},

	// The member may be in a later view, by a former life.
	{"a view of another's round lets no life outside go", func(t *testing.T) {
		s := solo(t, 31, 0)
		s.met(10, 20)
		s.leaves()
		s.hears(from(10).complete(view(3, 10, 20)), from(20).complete(view(3, 10, 20)))
		s.is(Outside)
	}},

	// All members of the last view are leaving, and a life that is there, outside of it,
	// would hear of no view.
	{"leavers wait for a life that is excused", func(t *testing.T) {
		s := acting(t, 10)
		s.met(31)
		s.enters(20, view(3, 10, 20)) // it forgets what was new
		s.hears(from(20).report(view(3, 10, 20)))
		s.says("1->3 COMPLETE 3{1#10,2#20}")
		s.leaves()
		leaving := from(20).promise(4, view(3, 10, 20), view(3, 10, 20))
		leaving.Leaving = true
		s.hears(leaving)
		s.says()
		s.hears(from(31).promise(4, membership.View{}, membership.View{}))
		s.says("1->2 VIEW 4{3#31}", "1->3 VIEW 4{3#31}")
	}},

	// A life in no view goes if all that are there say that nobody waits for its member.
	{"a life in no view leaves", func(t *testing.T) {
		s := solo(t, 10, 0)
		s.met(20)
		s.leaves()
		s.says("1->2 PREPARE round=2 leaving")
		s.waits()
		s.is(Outside)
		s.hears(from(20).promise(2, membership.View{}, membership.View{}))
		s.is(Left)
	}},

	// The view can be replaced only with a promise of the later life.
	{"a life in no view stays if its member is in a view", func(t *testing.T) {
		s := solo(t, 11, 0)
		s.met(20)
		s.leaves()
		s.hears(from(20).promise(2, view(1, 10, 20), membership.View{}))
		s.is(Outside)
	}},

	// A view that is only installed does not excuse: see the package comment.
	{"a life in no view stays if its member was in the last complete view", func(t *testing.T) {
		s := solo(t, 11, 0)
		s.met(20)
		s.hears(from(20).refuse(2, 0))
		s.leaves()
		s.hears(from(20).promise(3, view(2, 20, 30), first))
		s.is(Outside)
	}},

	// The others may be in that view, and wait for its report.
	{"a life in no view stays if it was told of a view with it", func(t *testing.T) {
		s := solo(t, 30, 0)
		s.met(10, 20)
		s.hears(from(10).prepare(1), from(20).prepare(2), from(10).decide(first))
		s.lost(10)
		s.lost(20)
		s.leaves()
		s.is(Outside)
	}},

	// The proposer may have decided a view with it.
	{"a life in no view stays if it is bound by a promise", func(t *testing.T) {
		s := solo(t, 30, 0)
		s.met(10, 20)
		s.hears(from(10).prepare(1))
		s.lost(10)
		s.leaves()
		s.hears(from(20).promise(2, membership.View{}, membership.View{}))
		s.is(Outside)
	}},

	// Nobody is there who could have decided.
	{"a life in no view leaves if it is alone", func(t *testing.T) {
		s := solo(t, 30, 0)
		s.met(10)
		s.hears(from(10).prepare(1))
		s.lost(10)
		s.leaves()
		s.is(Left)
	}},

	// The later life does not know what the former life has decided.
	{"a promise binds even if the proposer has a later life", func(t *testing.T) {
		s := solo(t, 30, 0)
		s.met(10)
		s.hears(from(10).prepare(1))
		s.met(11)
		s.leaves()
		s.hears(from(11).promise(2, membership.View{}, membership.View{}))
		s.is(Outside)
	}},
}

// The conditions in the machine, one by one. See also the mutants.
func TestRules(t *testing.T) {
	for _, tt := range rules {
		t.Run(tt.name, tt.play)
	}
}

// Members whose rounds have met, and failed, do not begin at the same time again, however
// often each has failed before.
func TestRoundsPart(t *testing.T) {
	times := make(map[int64]string)
	for self := dmutex.NodeID(1); self <= 5; self++ {
		m, err := New(Config{Self: self, Members: dmutextest.Nodes(5), Life: 1})
		require.NoError(t, err)
		for i := range m.members {
			m.members[i].life = 1
		}
		for range membership.MaxFails + 1 {
			m.fail(0, m.in.Pause())
			require.Zero(t, m.beginAt%m.in.Pause())
			if m.fails < membership.MaxFails {
				who := fmt.Sprintf("member %v after %d", self, m.fails)
				require.Empty(t, times[m.beginAt], who)
				times[m.beginAt] = who
			}
		}
	}
}
