package consent

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/kit/viewtest"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/search"
)

// A history is a group of the strict mode in virtual time, whose processes crash and
// start again. It remembers the highest fence that was granted.
type history struct {
	*rand.Rand
	t       *testing.T
	now     int64
	delayed func() int64 // how long a message takes
	runs    []*process   // by member; nil if there is none
	ahead   []int64      // the clocks, in nanoseconds
	events  search.Agenda[func()]
	count   int                 // of processes
	last    map[[2]uint64]int64 // when the last message arrives, by lives
	highest uint64              // fence
	grants  map[uint64]uint64   // by epoch
}

type process struct {
	*Machine
	deaf bool // it is paused
}

func newHistory(t *testing.T, n int, seed uint64) *history {
	h := &history{
		Rand: rand.New(rand.NewPCG(seed, 0)), t: t, now: aDay, runs: make([]*process, n), ahead: make([]int64, n),
		last: make(map[[2]uint64]int64), grants: make(map[uint64]uint64),
	}
	h.delayed = func() int64 { return 100_000 + h.Int64N(millisecond) }
	return h
}

func (h *history) after(delay int64, do func()) {
	h.events.Plan(h.now+delay, do)
}

func (h *history) clock(i int) uint64 { return uint64(h.now+h.ahead[i]) / millisecond }

// start begins a process, which meets the others.
func (h *history) start(i int) {
	var members []dmutex.NodeID
	for j := range h.runs {
		members = append(members, dmutex.NodeID(j+1))
	}
	h.count++
	life := uint64(h.now+h.ahead[i])/millisecond*millisecond + uint64(h.count)
	m, err := New(Config{Self: dmutex.NodeID(i + 1), Members: members, Life: life, Clock: h.clock(i)})
	require.NoError(h.t, err)
	h.runs[i] = &process{Machine: m}
	h.input(i, func(m *Machine) membership.Output { return m.Tick(h.now) })
	for j, other := range h.runs {
		if j != i && other != nil {
			h.join(i, j)
		}
	}
}

// join lets two processes meet soon.
func (h *history) join(i, j int) {
	for _, pair := range [2][2]*process{{h.runs[i], h.runs[j]}, {h.runs[j], h.runs[i]}} {
		h.after(2*h.delayed(), func() { h.meet(pair[0], pair[1]) })
	}
}

func (h *history) meet(p, other *process) {
	if i := int(p.me().node) - 1; h.runs[i] == p && !p.deaf && p.member(other.me().node).life != other.life {
		h.input(i, func(m *Machine) membership.Output { return m.Met(h.now, other.me().node, other.life) })
	}
}

// crash ends a process, and the others notice it.
func (h *history) crash(i int) {
	gone := h.runs[i]
	h.runs[i] = nil
	for j, p := range h.runs {
		if p != nil {
			h.after(millisecond, func() {
				if h.runs[j] == p && p.member(gone.me().node).life == gone.life {
					h.input(j, func(m *Machine) membership.Output { return m.Lost(h.now, gone.me().node) })
				}
			})
		}
	}
}

func (h *history) input(i int, do func(m *Machine) membership.Output) {
	p := h.runs[i]
	p.Clock(h.clock(i))
	for out := do(p.Machine); ; out = p.Report(h.now, nil) {
		for _, msg := range out.Messages {
			h.post(p, msg)
		}
		if !viewtest.Installs(out) {
			return
		}
	}
}

func (h *history) post(p *process, msg membership.Message) {
	j := int(msg.To) - 1
	other := h.runs[j]
	if other == nil || p.member(msg.To).life != other.life {
		return
	}
	way := [2]uint64{p.life, other.life}
	h.last[way] = max(h.last[way], h.now+h.delayed())
	h.after(h.last[way]-h.now, func() {
		if h.runs[j] != other || other.deaf {
			return
		}
		h.meet(other, p)
		h.input(j, func(m *Machine) membership.Output {
			out, err := m.Handle(h.now, msg)
			require.NoError(h.t, err)
			return out
		})
	})
}

// pass lets time pass.
func (h *history) pass(long int64) { h.until(h.now+long, func() bool { return false }) }

// until lets time pass until done, and at most until the time given.
func (h *history) until(end int64, done func() bool) {
	for !done() {
		next, who := end, -1
		if h.events.Len() > 0 {
			next = min(next, h.events.Next())
		}
		for i, p := range h.runs {
			if p != nil && !p.deaf && p.Deadline() < next {
				next, who = p.Deadline(), i
			}
		}
		h.now = max(h.now, next)
		switch {
		case who >= 0:
			h.input(who, func(m *Machine) membership.Output { return m.Tick(h.now) })
			require.Greater(h.t, h.runs[who].Deadline(), h.now, "a machine asks for the same moment again and again")
		case h.events.Len() > 0 && h.events.Next() <= h.now:
			_, do := h.events.Take()
			do()
		default:
			return
		}
	}
}

// settle lets all processes come to act in one view, soon.
func (h *history) settle() {
	h.t.Helper()
	begun := h.now
	h.until(h.now+60*second, h.settled)
	require.True(h.t, h.settled(), "after a minute")
	require.Less(h.t, time.Duration(h.now-begun), 5*time.Second)
}

// settled reports whether all processes act in one view.
func (h *history) settled() bool {
	for _, p := range h.runs {
		if p == nil || p.Phase() != Acting || len(p.View().Members) < len(h.runs) || p.View().Epoch != h.runs[0].View().Epoch {
			return false
		}
	}
	return true
}

// grant grants the lock at a member that acts. Its fence must be higher than all before.
func (h *history) grant(i int) {
	h.t.Helper()
	epoch := h.runs[i].View().Epoch
	h.grants[epoch]++
	fence := epochs.First(epoch) + h.grants[epoch]
	require.Greater(h.t, fence, h.highest, "the fence falls, from epoch %d to %d", epochs.Of(h.highest), epoch)
	h.highest = fence
}

// A member that is restarted once a second, as supervisors do, uses no epochs up while
// another is down: after a restart of all, fences rise.
func TestRestartedWhileOneIsDown(t *testing.T) {
	h := newHistory(t, 3, 1)
	for i := range 3 {
		h.start(i)
	}
	h.settle()
	h.crash(2)
	for range 180 {
		h.crash(1)
		h.start(1)
		h.pass(second)
	}
	h.start(2)
	h.settle()
	h.grant(0)
	require.LessOrEqual(t, epochs.Of(h.highest), h.clock(0))
	for i := range 3 {
		h.crash(i)
	}
	h.pass(millisecond)
	for i := range 3 {
		h.start(i)
	}
	h.settle()
	h.grant(0)
}

// Fences rise over restarts of all, however soon after each other, with clocks that differ
// by up to a second, and some restarts of one between.
func TestFencesRise(t *testing.T) {
	const restarts = 20
	for seed := range uint64(50) {
		h := newHistory(t, 2+int(seed%3), seed)
		for i := range h.ahead {
			h.ahead[i] = h.Int64N(second)
		}
		for range restarts {
			for _, i := range h.Perm(len(h.runs)) {
				h.start(i)
				h.pass(h.Int64N(50 * millisecond))
			}
			for range h.IntN(3) {
				h.settle()
				i := h.IntN(len(h.runs))
				h.grant(i)
				h.crash(i)
				h.start(i)
			}
			h.settle()
			h.grant(h.IntN(len(h.runs)))
			for i := range h.runs {
				h.crash(i)
			}
			h.pass(h.Int64N(10 * millisecond))
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// A process that was paused and replaced goes on after its successor and the other member
// have crashed. The new life of the other member has promised the epoch of its clock, so
// the two do not act below the successor's epoch.
func TestReplacedGoesOn(t *testing.T) {
	h := newHistory(t, 2, 1)
	h.start(0)
	h.start(1)
	h.settle()
	paused := h.runs[0]
	paused.deaf = true
	h.pass(10 * second)
	h.runs[0] = nil
	h.start(0) // the successor
	h.settle()
	h.grant(0)
	h.crash(0)
	h.crash(1)
	h.pass(second)
	h.start(1)
	h.runs[0], paused.deaf = paused, false
	h.ahead[0] = -9 * second // its machine was suspended, and so was its clock
	h.join(0, 1)
	h.settle()
	h.grant(1)
}

// A message about a life more than a day ahead of the clock has no effect. Otherwise the
// member would be locked out for good: no later life could be above it.
func TestLivesAreBounded(t *testing.T) {
	const now = uint64(aDay / millisecond)
	const most = (now + epochs.Day + epochs.Minute) * millisecond
	fresh := func() *Machine {
		m, err := New(Config{Self: 1, Members: []dmutex.NodeID{1, 2, 3}, Life: 7, Clock: now})
		require.NoError(t, err)
		m.Met(0, 2, 5)
		return m
	}
	for _, life := range []uint64{most + 1, 1<<64 - 1} {
		v := membership.View{Epoch: now, Members: []membership.Member{{Node: 2, Life: 5}, {Node: 3, Life: life}}}
		for _, msg := range []membership.Message{
			{Kind: membership.Refuse, Life: life},
			{Kind: membership.Decide, View: v},
			{Kind: membership.Promise, Round: now, Installed: v},
			{Kind: membership.Promise, Round: now, Completed: v},
			{Kind: membership.Complete, View: v},
		} {
			m := fresh()
			before, _ := m.AppendText(nil)
			msg.From, msg.To = 2, 1
			_, err := m.Handle(0, msg)
			require.ErrorIs(t, err, dmutex.ErrPeer)
			require.ErrorContains(t, err, "more than a day ahead of this node's clock")
			require.Empty(t, m.Met(0, 3, life))
			after, _ := m.AppendText(nil)
			require.Equal(t, string(before), string(after))
			require.Zero(t, m.member(3).newest)
		}
	}
	m := fresh()
	_, err := m.Handle(0, membership.Message{Kind: membership.Refuse, From: 2, To: 1, Life: most})
	require.NoError(t, err)
	require.Equal(t, Older, m.Phase())
	require.Equal(t, most, m.Later())
}

// One member has heard of a round, or of a life, so far ahead that it just believes it. The
// others, whose clocks are a little behind, do not. The group goes on as soon as they do.
func TestFarAheadOfSomeClocksOnly(t *testing.T) {
	nodes := []dmutex.NodeID{1, 2, 3}
	const ahead = aDay/millisecond + 5000
	clocks := []uint64{0, ahead, aDay / millisecond, aDay / millisecond}
	lives := []uint64{0, 1, 2, (ahead + epochs.Day) * millisecond} // the last is what sessions of member 1 just believe
	members := make([]*Machine, 4)
	for _, id := range nodes {
		m, err := New(Config{Self: id, Members: nodes, Life: lives[id], Clock: clocks[id]})
		require.NoError(t, err)
		members[id] = m
	}
	now := int64(0)
	var wire []membership.Message
	send := func(m *Machine, out membership.Output) {
		if viewtest.Installs(out) {
			out = out.And(m.Report(now, nil))
		}
		wire = append(wire, out.Messages...)
	}
	carry := func(m *Machine, out membership.Output) {
		for send(m, out); len(wire) > 0; {
			msg := wire[0]
			wire = wire[1:]
			more, _ := members[msg.To].Handle(now, msg)
			send(members[msg.To], more)
		}
	}
	pass := func(seconds int) {
		for end := now + int64(seconds)*second; now < end; now += 10 * millisecond {
			for _, id := range nodes {
				clocks[id] += 10
				members[id].Clock(clocks[id])
				carry(members[id], members[id].Tick(now))
			}
		}
	}
	for _, id := range nodes {
		for _, peer := range nodes {
			carry(members[id], members[id].Met(now, peer, lives[peer]))
		}
	}
	pass(2)
	for _, id := range nodes {
		require.Equal(t, Acting, members[id].Phase(), "member %d", id)
	}

	_, err := members[1].Handle(now, membership.Message{Kind: membership.Prepare, From: 3, To: 1, Round: members[1].latest()})
	require.NoError(t, err)
	carry(members[1], members[1].Leave(now))
	pass(70)
	require.Equal(t, Left, members[1].Phase())
	require.Equal(t, Acting, members[2].Phase())
	require.Equal(t, []dmutex.NodeID{2, 3}, members[2].View().Nodes())
}

// Two members that are alive are evicted together. Neither keeps the other in the old view, in which
// they could hold what the third member grants.
func TestEvictedTogether(t *testing.T) {
	for seed := range uint64(800) {
		h := newHistory(t, 3, seed)
		for i := range h.runs {
			h.start(i)
		}
		h.settle()
		h.pass(2 * second)
		h.input(1, func(m *Machine) membership.Output {
			out, err := m.Evict(h.now, 1, 3)
			require.NoError(t, err)
			return out
		})
		h.pass(2 * second)
		require.Equal(t, []Phase{Stopped, Acting, Stopped}, []Phase{h.runs[0].Phase(), h.runs[1].Phase(), h.runs[2].Phase()}, "seed %d", seed)
	}
}
