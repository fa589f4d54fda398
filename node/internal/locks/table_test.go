package locks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport/memlink"
)

// told is an Up that records what it is told.
type told struct {
	mail.Handler
	troubles []error
	refused  []error
	ended    []Event
}

func (u *told) Trouble(_ uint64, err error)        { u.troubles = append(u.troubles, err) }
func (u *told) Refused(_ dmutex.NodeID, err error) { u.refused = append(u.refused, err) }
func (u *told) Expired()                           {}
func (u *told) tell(e Event)                       { u.ended = append(u.ended, e) }

// alone returns the Table of node 1, which acts alone in the view of epoch 1.
func alone(t *testing.T) (*Table, *told) {
	net, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	u := new(told)
	m, err := mail.New(mail.Config{Life: 1, Link: net.Link(1), Handler: u})
	require.NoError(t, err)
	table := New(Config{Algorithm: ricart.New, Mail: m, Tell: u.tell, Up: u})
	view(table, 1, 1)
	table.Act(1, nil, nil)
	return table, u
}

func view(t *Table, epoch uint64, members ...dmutex.NodeID) []membership.Hold {
	t.Freeze(epoch, dmutex.Start{Self: 1, Members: members, Fence: epochs.First(epoch), Limit: epochs.Last(epoch)})
	holds, _, _ := t.Frozen(epoch, true)
	return holds
}

// by returns what a member has reported.
func by(node dmutex.NodeID, holds ...membership.Hold) membership.Holding {
	return membership.Holding{Node: node, Holds: holds}
}

func (t *Table) acquire(tb testing.TB, name string) *Held {
	_, h, err := t.Join(tb.Context(), name, Want{}, nil)
	require.NoError(tb, err)
	return h
}

func release(tb testing.TB, h *Held) {
	require.NoError(tb, h.Release())
	ended := h.lock.table.cfg.Up.(*told).ended
	require.Equal(tb, h.fence, ended[len(ended)-1].Fence)
}

// A wait that a view change ends is its caller's as soon as that is told, with the memory of the list that it began: another
// call, of another Table even, may have both already.
func TestWaiterIsItsCallers(t *testing.T) {
	table, _ := alone(t)
	view(table, 2, 1, 2)
	table.Act(2, nil, nil)
	var next *Waiter
	_, _, err := table.Join(t.Context(), "x", Want{Try: true}, func(w *Waiter) {
		require.ErrorIs(t, w.err, ErrViewChanged)
		next = w
		w.alone[0] = w // as if it waited again, elsewhere
	})
	require.NoError(t, err)
	require.Nil(t, next)
	view(table, 3, 1, 2)
	require.NotNil(t, next)
	require.Equal(t, next, next.alone[0])
}

// If the report of a peer makes the peer the holder of a lock, this process loses the lock, and
// nothing else happens.
func TestOverruled(t *testing.T) {
	table, u := alone(t)
	held, kept := table.acquire(t, "x"), table.acquire(t, "kept")
	holds := view(table, 2, 1, 2)
	require.Len(t, holds, 2)
	table.Act(2, []membership.Holding{by(2, membership.Hold{Lock: "x", Fence: held.Fence() + 1}), by(1, holds...)}, nil)
	require.ErrorIs(t, held.Err(), ErrReplaced)
	require.NoError(t, kept.Err())
	require.ErrorIs(t, held.Release(), ErrReplaced)
	require.Empty(t, u.ended, "it ended with the view")
	require.Equal(t, dmutex.None, table.Status("x").Holder)
}

// A trace has what a machine has refused, with the reason, and a replay of it is refused likewise.
func TestRefusedInputsAreRecorded(t *testing.T) {
	table, u := alone(t)
	var file bytes.Buffer
	table.cfg.Trace = trace.NewRecorder(&file)
	require.NoError(t, table.cfg.Trace.Open(trace.Header{Self: 1, Members: []dmutex.NodeID{1, 2}}))
	view(table, 2, 1, 2)
	table.Act(2, nil, nil)
	reply := trace.Message{Seq: 7, Message: dmutex.Message{Kind: dmutex.Reply, From: 2, To: 1, Attempt: 5, Fence: epochs.First(2)}}
	table.Handle([]byte("x"), &reply)
	require.Len(t, u.refused, 1, "no request was made")
	table.Freeze(3, dmutex.Start{Self: 1, Members: []dmutex.NodeID{1, 2}, Fence: epochs.First(3), Known: epochs.Last(3), Limit: epochs.Last(3)})
	table.Act(3, nil, nil)
	w, _, err := table.Join(t.Context(), "y", Want{}, nil)
	require.NoError(t, err)
	require.False(t, w.Over(), "it waits for the next view")
	require.ErrorIs(t, u.troubles[0], dmutex.ErrExhausted)

	require.NoError(t, table.cfg.Trace.Flush(t.Context()))
	tr, err := trace.Read("f", &file)
	require.NoError(t, err)
	var refused []trace.Event
	for _, e := range tr.Events {
		if e.Err != "" {
			refused = append(refused, e)
		}
	}
	require.Len(t, refused, 2)
	require.Equal(t, trace.Handle, refused[0].What)
	require.Equal(t, reply, refused[0].In)
	require.Equal(t, u.refused[0].Error(), refused[0].Err)
	require.Equal(t, trace.Request, refused[1].What)
	require.ErrorContains(t, u.troubles[0], refused[1].Err)
	replayed, err := dmutextest.Replay(tr, ricart.New)
	require.NoError(t, err)
	require.Equal(t, dmutextest.Replayed{Machines: 2, Inputs: 2}, replayed)
}

// If the lease ends while Until runs, the result is not in the far future.
func TestUntilAfterTheEnd(t *testing.T) {
	table, _ := alone(t)
	table.cfg.Clock = func() int64 { return 100 }
	table.SetTerm(leases.From(100, 100))
	held := table.acquire(t, "x")
	table.SetTerm(leases.Term{}) // and nothing has ended the hold yet
	require.False(t, held.Until().After(time.Now()))
}

// Early messages take no more room than the buffer has, and give it back. A message of a later view
// makes room for one of an earlier view.
func TestEarlyRoom(t *testing.T) {
	table, u := alone(t)
	quarter := func(more int) early {
		e := early{strings.Repeat("x", 64), trace.Message{Message: dmutex.Message{Kind: dmutex.Request, From: 2, To: 1, Attempt: 1}}}
		e.message.Fence = epochs.First(table.epoch + uint64(more))
		e.message.Nodes = make([]dmutex.NodeID, 16)
		e.message.Numbers = make([]uint64, (EarlyBuffer/4-192-64-8*16)/8)
		require.Equal(t, EarlyBuffer/4, e.size())
		return e
	}
	kept := func(epochs ...uint64) {
		t.Helper()
		var got []uint64
		for _, e := range table.early {
			got = append(got, e.epoch()-table.epoch)
		}
		require.Equal(t, epochs, got)
		require.Equal(t, len(epochs)*EarlyBuffer/4, table.room)
	}
	for _, n := range []int{2, 4, 3, 1} {
		e := quarter(n)
		table.Handle([]byte(e.name), &e.message)
	}
	kept(2, 4, 3, 1)
	require.False(t, table.dropped, "there was room")
	table.keep(quarter(4))
	table.keep(quarter(5))
	kept(2, 4, 3, 1)
	require.True(t, table.dropped)
	table.keep(quarter(2))
	kept(2, 3, 1, 2)
	table.keep(quarter(1))
	kept(2, 1, 2, 1)
	table.keep(quarter(2))
	kept(2, 1, 2, 1)
	table.keep(quarter(1))
	kept(1, 1, 1)
	table.rehandle(true)
	kept(1, 1, 1)
	view(table, 4, 1)
	require.Empty(t, table.early, "messages of views that will never act")
	require.Zero(t, table.room)
	table.Act(4, nil, nil)
	require.Equal(t, []error{errEarly}, u.troubles, "once")
	view(table, 5, 1)
	table.Act(5, nil, nil)
	require.Len(t, u.troubles, 1)
}

// The locks that were used last are remembered, in the order of their last use.
func TestRestingLocks(t *testing.T) {
	table, _ := alone(t)
	held := table.acquire(t, "held")
	for i := range 3 * keepResting {
		release(t, table.acquire(t, "again"))
		release(t, table.acquire(t, fmt.Sprint(i)))
		require.Len(t, table.locks, min(i+1, keepResting-1)+2)
		require.Equal(t, min(i+2, keepResting), table.listed())
	}
	require.Same(t, held.lock, table.locks["held"])
	require.Contains(t, table.locks, "again")
	require.Contains(t, table.locks, fmt.Sprint(3*keepResting-1))
	for _, l := range table.resting {
		require.Same(t, table.locks[l.name], l)
	}
	view(table, 2, 1)
	require.Zero(t, table.listed())
	table.Act(2, []membership.Holding{by(1, membership.Hold{Lock: "held"})}, nil)
	table.Sweep()
	require.Len(t, table.locks, 1)
	release(t, held)
	require.Equal(t, 1, table.listed())
}

// listed returns the number of idle locks, which may be forgotten.
func (t *Table) listed() (n int) {
	for _, l := range t.resting {
		if l != nil {
			n++
		}
	}
	return n
}

// The owner of a hold does not own the next hold.
func TestOwner(t *testing.T) {
	table, _ := alone(t)
	has := func(want any, wantHeld bool) {
		t.Helper()
		owner, held := table.Owner("a")
		require.Equal(t, want, owner)
		require.Equal(t, wantHeld, held)
	}
	has(nil, false)
	a := table.acquire(t, "a")
	has(nil, true)
	a.Own(1)
	has(1, true)
	release(t, a)
	has(nil, false)
	table.acquire(t, "a")
	has(nil, true)
}

// While the table is halted, a try does not report a free lock as busy.
func TestTryWhileHalted(t *testing.T) {
	table, _ := alone(t)
	table.Halt()
	_, _, err := table.Join(t.Context(), "x", Want{Try: true}, nil)
	require.ErrorIs(t, err, ErrViewChanged)
	table.Resume()
	table.Settle()
	_, h, err := table.Join(t.Context(), "x", Want{Try: true}, nil)
	require.NoError(t, err)
	release(t, h)
}

// Metrics read the totals again and again, so Totals allocates little, even with many locks.
func TestTotalsAreCheap(t *testing.T) {
	table, _ := alone(t)
	for i := range 5000 {
		table.acquire(t, fmt.Sprint(i))
	}
	require.Equal(t, 5000, table.Totals().Held)
	require.Less(t, testing.AllocsPerRun(10, func() { table.Totals() }), 64.0)
}

// A keeper is a machine that never equals a fresh one, and says whether it only keeps something.
type keeper struct {
	dmutex.Machine
	keeps *bool
}

func (keeper) Forget() (clock, known uint64, fresh bool) { return 0, 0, false }
func (k keeper) Keeps() bool                             { return *k.keeps }

// A lock is in use until its machine is fresh, or only keeps something, such as a token.
func TestAtRest(t *testing.T) {
	table, _ := alone(t)
	inUse := func() (names []string) {
		for name := range table.InUse() {
			names = append(names, name)
		}
		return names
	}
	h := table.acquire(t, "fresh")
	require.Equal(t, []string{"fresh"}, inUse())
	release(t, h)
	require.Empty(t, inUse())

	keeps := false
	table.cfg.Algorithm = func(s dmutex.Start) (dmutex.Machine, error) {
		m, err := ricart.New(s)
		return keeper{m, &keeps}, err
	}
	release(t, table.acquire(t, "kept"))
	require.Equal(t, []string{"kept"}, inUse())
	keeps = true
	require.Empty(t, inUse())
}

// A hold that is lost keeps the lock until it is released, and its outcome is the loss.
func TestLose(t *testing.T) {
	table, u := alone(t)
	h := table.acquire(t, "x")
	why := errors.New("why")
	h.Lose(why)
	require.ErrorIs(t, h.Err(), why)
	require.ErrorIs(t, context.Cause(h.Context()), why)
	w, _, _ := table.Join(t.Context(), "x", Want{}, nil)
	require.Equal(t, dmutex.Held, table.Status("x").Phase)
	require.ErrorIs(t, h.Release(), why)
	require.Equal(t, h.fence, u.ended[0].Fence)
	require.ErrorIs(t, u.ended[0].Err, why)
	next, err := w.Result()
	require.NoError(t, err)
	release(t, next)
}

// There may be very many handles, so a handle is small.
func TestHeldIsSmall(t *testing.T) {
	if strconv.IntSize == 64 {
		require.EqualValues(t, 48, reflect.TypeFor[Held]().Size(), "as much as is allocated for it; docs/performance.md promises memory for held locks")
	}
}

// A process that was excluded takes part in no view, also if the one in which it was is about to act.
func TestActAfterExclusion(t *testing.T) {
	table, _ := alone(t)
	held := table.acquire(t, "x")
	holds := view(table, 2, 1, 2)
	table.Freeze(2, dmutex.Start{})
	require.False(t, table.Act(2, []membership.Holding{by(1, holds...)}, nil))
	require.NoError(t, held.Err())
	w, _, err := table.Join(t.Context(), "y", Want{}, nil)
	require.NoError(t, err)
	require.False(t, w.Over())
}

// A member is told what its node knows of a view in each newer one, until one of these acts.
func TestWordIsKept(t *testing.T) {
	table, _ := alone(t)
	table.cfg.Clock = func() int64 { return 0 }
	table.SetTerm(leases.Term{})
	freeze := func(epoch uint64) (known uint64) {
		table.Freeze(epoch, dmutex.Start{Self: 1, Members: []dmutex.NodeID{1}, Fence: epochs.First(epoch), Limit: epochs.Last(epoch)})
		_, word, frozen := table.Frozen(epoch, true)
		require.True(t, frozen)
		if word == nil {
			return 0
		}
		return word.Epoch
	}
	require.EqualValues(t, 1, freeze(2))
	require.EqualValues(t, 1, freeze(3))
	require.True(t, table.Act(3, nil, nil))
	require.EqualValues(t, 3, freeze(4))
	table.Freeze(4, dmutex.Start{})
	require.Zero(t, freeze(5))
}

// What lapses while earlier losses are given back stays taken: its holder has time to stop.
func TestGiveBackOfOneLapse(t *testing.T) {
	table, _ := alone(t)
	table.acquire(t, "first")
	table.Lapse(errors.New("lease ended"))
	first := table.Lapses()
	table.acquire(t, "second")
	table.Lapse(errors.New("lease ended again"))
	require.Len(t, table.GiveBack(first), 1)
	require.Equal(t, dmutex.Held, table.locks["second"].machine.Phase())
	require.Len(t, table.GiveBack(table.Lapses()), 1)
}

// What is given back after it was reported, and before the view acts, is free in the view.
func TestReleasedBeforeTheViewActs(t *testing.T) {
	table, _ := alone(t)
	h := table.acquire(t, "x")
	holds := view(table, 2, 1)
	require.Len(t, holds, 1)
	release(t, h)
	require.True(t, table.Act(2, []membership.Holding{by(1, holds...)}, nil))
	for name := range table.carried.All() {
		t.Errorf("%q is still held", name)
	}
	release(t, table.acquire(t, "x"))
}
