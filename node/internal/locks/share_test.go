package locks

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/carryover"
	"github.com/dmutex/dmutex/maekawa"
)

func (t *Table) share(tb testing.TB, name string) *Held {
	_, h, err := t.Join(tb.Context(), name, Want{Shares: true}, nil)
	require.NoError(tb, err)
	return h
}

func (t *Table) later(tb testing.TB, name string, shares bool) *Waiter {
	w, h, err := t.Join(tb.Context(), name, Want{Shares: shares}, nil)
	require.NoError(tb, err)
	require.Nil(tb, h)
	return w
}

// A hold to share that is released while the view does not act is carried into the view. It is no
// grant for a caller that wants the lock alone: another node may share it.
func TestSharedFrozen(t *testing.T) {
	table, _ := alone(t)
	h := table.share(t, "x")
	holds := view(table, 2, 1, 2)
	require.Equal(t, []membership.Hold{{Lock: "x", Fence: h.fence, Shared: true}}, holds)
	require.NoError(t, h.Release())
	w := table.later(t, "x", false)
	table.Act(2, []membership.Holding{by(1, holds[0]), by(2, holds[0])}, nil)
	require.False(t, w.Over())
	require.Equal(t, dmutex.Waiting, table.locks["x"].machine.Phase())
	require.False(t, table.locks["x"].shares())
}

// If the first waiter gives up and the next one does not share, the request to share is withdrawn.
func TestSharerGivesUp(t *testing.T) {
	table, _ := alone(t)
	view(table, 2, 1, 2)
	table.Act(2, nil, nil)
	w, next := table.later(t, "x", true), table.later(t, "x", false)
	require.Equal(t, dmutex.Waiting, table.locks["x"].machine.Phase())
	w.GiveUp(errors.New("too long"))
	require.Equal(t, dmutex.Idle, table.locks["x"].machine.Phase())
	require.True(t, table.locks["x"].machine.Pending())
	require.False(t, next.Over())
}

// Readers that wait behind a writer of this node do not go on waiting for what it has asked, when it gives
// up: the request is withdrawn, and they ask to share as soon as that has had its turn.
func TestWriterGivesUp(t *testing.T) {
	table, _ := alone(t)
	view(table, 2, 1, 2)
	table.Act(2, nil, nil)
	w, next := table.later(t, "x", false), table.later(t, "x", true)
	machine := table.locks["x"].machine
	require.Equal(t, dmutex.Waiting, machine.Phase())
	require.False(t, table.locks["x"].shares())
	w.GiveUp(errors.New("too long"))
	require.Equal(t, dmutex.Idle, machine.Phase(), "the next one does not ask alone")
	require.True(t, machine.Pending())
	require.False(t, next.Over())
	again := table.later(t, "x", false)
	next.GiveUp(errors.New("too long"))
	require.Equal(t, dmutex.Waiting, machine.Phase(), "a writer resumes it")
	require.False(t, again.Over())
}

// A reader need not wait for former members that are waited for only by a writer before it.
func TestWriterBeforeFormerGivesUp(t *testing.T) {
	table, _ := alone(t)
	view(table, 2, 1)
	table.Act(2, nil, nil)
	former := []membership.Former{{Node: 3, Epoch: 1}}
	table.past = carryover.About(&membership.Past{Former: former})
	w, next := table.later(t, "x", false), table.later(t, "x", true)
	table.past = carryover.About(&membership.Past{})
	require.False(t, next.Over())
	w.GiveUp(errors.New("too long"))
	require.True(t, next.Over(), "it does not go on waiting")
}

// A client that lies about the mode of what it holds gets no lock while a withdrawn request to share it
// has not had its turn.
func TestClaimBehindSharer(t *testing.T) {
	table, _ := alone(t)
	view(table, 2, 1, 2)
	table.Act(2, nil, nil)
	table.later(t, "x", true).GiveUp(errors.New("too long"))
	require.True(t, table.locks["x"].machine.Pending())
	table.past = carryover.About(&membership.Past{Former: []membership.Former{{Node: 3, Epoch: 1}}})
	w, _, _ := table.Join(t.Context(), "x", Want{Claims: []dmutex.NodeID{3}}, func(*Waiter) {})
	_, err := w.Result()
	require.ErrorIs(t, err, ErrClaim)
}

// Callers share each other's grant, but not one that was lost: its fence may be older than that of
// a hold in between.
func TestShareLost(t *testing.T) {
	table, u := alone(t)
	h, other := table.share(t, "x"), table.share(t, "x")
	require.Equal(t, h.fence, other.fence)
	table.Lapse(errors.New("lease ended"))
	w := table.later(t, "x", true)
	require.Len(t, table.GiveBack(table.Lapses()), 2)
	got, err := w.Result()
	require.NoError(t, err)
	require.Greater(t, got.fence, h.fence)

	more := table.share(t, "x")
	got.Lose(errors.New("its client is gone"))
	w = table.later(t, "x", true)
	require.Error(t, got.Release())
	third, err := w.Result()
	require.NoError(t, err, "the door is open again")
	release(t, third)
	release(t, more)
	require.Equal(t, dmutex.Idle, table.locks["x"].machine.Phase())
	require.Len(t, u.ended, 3)
}

// Those that share a grant release it in any order, while others join. The status is of the one that
// has held it longest.
func TestSharersInAnyOrder(t *testing.T) {
	table, _ := alone(t)
	l := table.lock("x")
	var left []*Held
	join := func() { left = append(left, table.share(t, "x")) }
	leave := func(i int) {
		release(t, left[i])
		require.False(t, l.has(left[i]))
		left = slices.Delete(left, i, i+1)
		require.ElementsMatch(t, left, l.held())
		if len(left) > 0 {
			require.Equal(t, left[0].since, l.oldest().since)
		}
	}
	join()
	join()
	for _, i := range []int{0, 1, 2, 2, 1, 0, 2, 0, 1} {
		join()
		leave(i)
	}
	leave(1)
	leave(0)
	require.Equal(t, dmutex.Idle, l.machine.Phase())
}

// A later hold that another member reports ends all handles of a shared one.
func TestSharersOverruled(t *testing.T) {
	table, _ := alone(t)
	h, other := table.share(t, "x"), table.share(t, "x")
	_, lent := other.Lend("web-2", "k")
	require.True(t, lent)
	holds := view(table, 2, 1, 2)
	table.Act(2, []membership.Holding{by(1, holds...), by(2, membership.Hold{Lock: "x", Fence: h.Fence() + 1})}, nil)
	require.ErrorIs(t, h.Err(), ErrReplaced)
	require.ErrorIs(t, other.Err(), ErrReplaced)
	require.Empty(t, table.locks["x"].held())
	require.Empty(t, table.Used(true), "Close need not wait for it")
}

// All handles of a shared grant are given back when the table is abandoned, but for those under
// which a function runs.
func TestSharersAbandoned(t *testing.T) {
	table, _ := alone(t)
	h, works, other := table.share(t, "x"), table.share(t, "x"), table.share(t, "x")
	_, working := works.Work()
	require.True(t, working)
	table.Abandon(errors.New("closed"))
	require.Len(t, table.Vacate(), 2)
	require.True(t, table.locks["x"].has(works))
	require.False(t, table.locks["x"].has(h))
	require.False(t, table.locks["x"].has(other))
	require.Error(t, works.Err())
	require.Error(t, works.Release())
	require.Equal(t, dmutex.Idle, table.locks["x"].machine.Phase())
}

// Under an algorithm that does not share, a peer's report of a shared hold is the mistake of that
// peer, and nobody holds the lock. Calls that wanted to share it while the view did not act fail.
func TestLyingSharer(t *testing.T) {
	table, u := alone(t)
	table.cfg.Algorithm = maekawa.New
	view(table, 2, 1, 2)
	w := table.later(t, "x", true)
	table.Act(2, []membership.Holding{by(2, membership.Hold{Lock: "x", Shared: true})}, nil)
	require.Len(t, u.refused, 1)
	require.Equal(t, dmutex.Idle, table.locks["x"].machine.Phase())
	_, err := w.Result()
	require.ErrorIs(t, err, ErrUnshared)
	_, _, err = table.Join(t.Context(), "x", Want{Shares: true}, nil)
	require.ErrorIs(t, err, ErrUnshared)
}

// What was lent and is lost is given back only by an operation that was sent when no client held it any more.
func TestReturn(t *testing.T) {
	table, _ := alone(t)
	h := table.share(t, "x")
	_, lent := h.Lend("web-2", "k")
	require.True(t, lent)
	sent := table.cfg.Mail.Now().Add(-time.Second)
	h.Lose(errors.New("the session is over"))
	require.Empty(t, table.Return(sent))
	require.Equal(t, dmutex.Held, table.locks["x"].machine.Phase())
	require.Len(t, table.Return(table.cfg.Mail.Now().Add(time.Second)), 1)
	require.Equal(t, dmutex.Idle, table.locks["x"].machine.Phase())
}
