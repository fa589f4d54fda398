package consent

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/kit/viewtest"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/search"
)

// A timeline is a group in time. If all messages take equally long, members that begin
// together collide at every step.
type timeline struct {
	now      int64
	delayed  func() int64 // how long the next message takes
	machines []*Machine
	reported []uint64
	wire     search.Agenda[membership.Message]
	last     map[[2]dmutex.NodeID]int64 // when the last message arrives
}

// newTimeline returns a group whose members have just met.
func newTimeline(t *testing.T, n int, delay time.Duration) *timeline {
	tl := bareTimeline(t, n, delay)
	for i := range n {
		for id := range dmutex.NodeID(n) {
			tl.input(i, func(m *Machine) membership.Output { return m.Met(tl.now, id+1, uint64(id+1)) })
		}
	}
	return tl
}

// bareTimeline returns a group whose members have not met. The arrival of a message of no
// kind lets two members meet.
func bareTimeline(t *testing.T, n int, delay time.Duration) *timeline {
	tl := &timeline{delayed: func() int64 { return int64(delay) }, reported: make([]uint64, n), last: make(map[[2]dmutex.NodeID]int64)}
	var members []dmutex.NodeID
	for i := range n {
		members = append(members, dmutex.NodeID(i+1))
	}
	for _, id := range members {
		m, err := New(Config{Self: id, Members: members, Life: uint64(id)})
		require.NoError(t, err)
		tl.machines = append(tl.machines, m)
	}
	return tl
}

// acts reports whether all machines act.
func (tl *timeline) acts() bool {
	return !slices.ContainsFunc(tl.machines, func(m *Machine) bool { return m.Phase() != Acting })
}

func (tl *timeline) input(i int, do func(m *Machine) membership.Output) {
	m := tl.machines[i]
	for out := do(m); ; out = m.Report(tl.now, nil) {
		for _, msg := range out.Messages {
			way := [2]dmutex.NodeID{msg.From, msg.To}
			tl.last[way] = max(tl.last[way], tl.now+tl.delayed()) // messages do not overtake each other
			tl.wire.Plan(tl.last[way], msg)
		}
		if !viewtest.Installs(out) {
			return
		}
	}
}

// run goes on until done, and returns how long that took.
func (tl *timeline) run(t *testing.T, done func() bool) time.Duration {
	t.Helper()
	begun := tl.now
	for !done() {
		next, who := int64(due.Never), -1
		for i, m := range tl.machines {
			if at := m.Deadline(); at < next {
				next, who = at, i
			}
		}
		require.False(t, who < 0 && tl.wire.Len() == 0, "nothing is to happen any more")
		if tl.wire.Len() > 0 && tl.wire.Next() <= next {
			at, l := tl.wire.Take()
			tl.now = max(tl.now, at)
			tl.input(int(l.To)-1, func(m *Machine) membership.Output {
				var met membership.Output
				if m.member(l.From).life == 0 {
					met = m.Met(tl.now, l.From, uint64(l.From))
				}
				if l.Kind == 0 {
					return met
				}
				out, err := m.Handle(tl.now, l)
				require.NoError(t, err)
				return met.And(out)
			})
		} else {
			tl.now = max(tl.now, next)
			tl.input(who, func(m *Machine) membership.Output { return m.Tick(tl.now) })
			require.Greater(t, tl.machines[who].Deadline(), tl.now, "a machine asks for the same moment again and again")
		}
		require.Less(t, tl.now-begun, int64(time.Hour), "it takes too long")
	}
	return time.Duration(tl.now - begun)
}

// Members whose sessions begin one after the other, over a slow network, agree soon after
// the last session. No Tick is in vain.
func TestMeetSlowly(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		n := 2 + rng.IntN(5)
		tl := bareTimeline(t, n, 0)
		tl.delayed = func() int64 { return rng.Int64N(int64(300 * time.Millisecond)) }
		for i := range n {
			for j := range n {
				if i != j {
					tl.wire.Plan(tl.delayed(), membership.Message{From: dmutex.NodeID(j + 1), To: dmutex.NodeID(i + 1)})
				}
			}
		}
		took := tl.run(t, tl.acts)
		require.Less(t, took, 10*time.Second, "seed %d, %d members", seed, n)
	}
}

// Members that leave together are out within some round trips, or some pauses if these are
// longer.
func TestLeaveTogether(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond} {
		for n := 2; n <= 6; n++ {
			for leavers := range 1 << n {
				tl := newTimeline(t, n, delay)
				tl.run(t, tl.acts)
				leaves := func(i int) bool { return leavers&(1<<i) != 0 }
				for i := range n {
					if leaves(i) {
						tl.input(i, func(m *Machine) membership.Output { return m.Leave(tl.now) })
					}
				}
				took := tl.run(t, func() bool {
					for i, m := range tl.machines {
						if leaves(i) && m.Phase() != Left {
							return false
						}
					}
					return true
				})
				require.Less(t, took, 500*time.Millisecond+20*delay, "of %d members, %b leave, and a message takes %v", n, leavers, delay)
			}
		}
	}
}
