package locks

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/carryover"
	"github.com/dmutex/dmutex/trace"
)

// claimed returns the Table of node 1 in a view with node 2, and two who wait for a lock that node 3 may hold: a
// client's claim, and behind it a caller, who waits for node 3, too.
func claimed(t *testing.T) (table *Table, claim, next *Waiter) {
	table, _ = alone(t)
	view(table, 2, 1, 2)
	table.Act(2, nil, &membership.Past{Former: []membership.Former{{Node: 3, Epoch: 1}}})
	next = table.later(t, "x", false)
	require.Equal(t, dmutex.Idle, table.locks["x"].machine.Phase(), "it waits for node 3")
	claim, _, err := table.Join(t.Context(), "x", Want{Claims: []dmutex.NodeID{3}}, func(*Waiter) {})
	require.NoError(t, err)
	require.Equal(t, dmutex.Waiting, table.locks["x"].machine.Phase())
	require.False(t, claim.Over())
	return table, claim, next
}

// The request of a claim serves that claim only. The next caller waits for the former member, and does not
// inherit it: the client may go on with yet another member.
func TestClaimServesNobodyElse(t *testing.T) {
	table, claim, next := claimed(t)
	claim.GiveUp(errors.New("the session is over"))
	machine := table.locks["x"].machine
	require.Equal(t, dmutex.Idle, machine.Phase())
	require.False(t, next.Over())

	table, claim, next = claimed(t)
	replies(table, 2)
	held, err := claim.Result()
	require.NoError(t, err)
	require.NoError(t, held.Err())
	claim.GiveUp(errors.New("the session is over"))
	require.Equal(t, dmutex.Idle, table.locks["x"].machine.Phase())
	require.False(t, next.Over(), "nor the grant")
	require.True(t, table.Clear(1, 0))
	table.Settle()
	require.Equal(t, dmutex.Waiting, table.locks["x"].machine.Phase(), "the wait is over")
}

// A claim is over when the view ends, for in the next one another member may be a former that the client has not
// named. A caller goes on waiting.
func TestClaimEndsWithItsView(t *testing.T) {
	table, claim, next := claimed(t)
	require.Empty(t, view(table, 3, 1))
	_, err := claim.Result()
	require.ErrorIs(t, err, ErrViewChanged)
	table.Act(3, nil, &membership.Past{Former: []membership.Former{{Node: 2, Epoch: 3}, {Node: 3, Epoch: 1}}})
	require.False(t, next.Over())
	require.True(t, table.Clear(3, 0))
	table.Settle()
	require.True(t, next.Over())
}

// A claim is refused unless its client may hold the lock, by a former member that may have lent it, and nobody
// else may.
func TestClaimRefused(t *testing.T) {
	of := []dmutex.NodeID{3}
	for name, tt := range map[string]struct {
		want   Want
		change func(t *testing.T, table *Table)
		taken  bool
	}{
		"nothing is wrong":        {Want{Claims: of}, func(*testing.T, *Table) {}, true},
		"to share":                {Want{Claims: of, Shares: true}, func(*testing.T, *Table) {}, false},
		"of a member":             {Want{Claims: []dmutex.NodeID{2}}, func(*testing.T, *Table) {}, false},
		"of nobody that may hold": {Want{Claims: []dmutex.NodeID{4}}, func(*testing.T, *Table) {}, false},
		"nothing is granted":      {Want{Claims: of}, func(_ *testing.T, table *Table) { table.Halt() }, false},
		"another one may hold it": {Want{Claims: of}, func(_ *testing.T, table *Table) {
			table.past = carryover.About(&membership.Past{Former: append(table.past.Former, membership.Former{Node: 4, Epoch: 1})})
		}, false},
		"it is asked for": {Want{Claims: of}, func(t *testing.T, table *Table) {
			_, _, err := table.Join(t.Context(), "x", Want{Claims: of}, func(*Waiter) {})
			require.NoError(t, err)
		}, false},
		"it is held": {Want{Claims: of}, func(t *testing.T, table *Table) {
			former := table.past
			table.past = nil
			table.later(t, "x", false)
			replies(table, 2)
			table.past = former
		}, false},
		"with a loan": {Want{Claims: of, Key: "k"}, func(_ *testing.T, table *Table) {
			table.past.Former[0].Parting = &membership.Parting{Lent: []membership.Loan{{Lock: "x", Key: "k"}}}
		}, true},
		"with the loan of another client": {Want{Claims: of, Key: "a"}, func(_ *testing.T, table *Table) {
			table.past.Former[0].Parting = &membership.Parting{Lent: []membership.Loan{{Lock: "x", Key: "k"}}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			table, _ := alone(t)
			view(table, 2, 1, 2)
			table.Act(2, nil, &membership.Past{Former: []membership.Former{{Node: 3, Epoch: 1}}})
			tt.change(t, table)
			claim, _, err := table.Join(t.Context(), "x", tt.want, func(*Waiter) {})
			require.NoError(t, err)
			if tt.taken {
				require.False(t, claim.Over())
				require.Equal(t, dmutex.Waiting, table.locks["x"].machine.Phase())
			} else {
				_, err := claim.Result()
				require.ErrorIs(t, err, ErrClaim)
			}
		})
	}
}

// What a former member has lent is free as soon as its client has gone on with another one, also if that is known
// before the view acts.
func TestFreed(t *testing.T) {
	x, y := membership.Loan{Lock: "x", Key: "k"}, membership.Loan{Lock: "y", Key: "k"}
	table, _ := alone(t)
	view(table, 2, 1)
	table.Freed(3, x)
	table.freed = append(make([]freed, keepFreed-1), table.freed...)
	table.Freed(3, y)
	require.Len(t, table.freed, keepFreed)
	table.Act(2, nil, &membership.Past{Former: []membership.Former{{Node: 3, Epoch: 1, Parting: &membership.Parting{Lent: []membership.Loan{x, y}}}}})
	require.NotNil(t, table.acquire(t, "x"))
	w := table.later(t, "y", false)
	table.Freed(3, membership.Loan{Lock: "y", Key: "another"})
	table.Freed(4, y)
	require.False(t, w.Over())
	table.Freed(3, y)
	require.True(t, w.Over())
}

// The last word of a node tells what it has lent, in the order of the locks.
func TestLoans(t *testing.T) {
	table, _ := alone(t)
	var want []membership.Loan
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		_, lent := table.acquire(t, name).Lend("web-2", "k"+name)
		require.True(t, lent)
		want = append(want, membership.Loan{Lock: name, Key: "k" + name})
	}
	for range 2 {
		_, lent := table.share(t, "shared").Lend("web-2", "k")
		require.True(t, lent)
	}
	table.acquire(t, "held")
	_, works := table.acquire(t, "works").Work()
	require.True(t, works)
	require.Equal(t, append(want, membership.Loan{Lock: "shared", Key: "-"}), table.Loans())
}

// A loan that is lost twice is over when it was lost first.
func TestLostTwice(t *testing.T) {
	table, _ := alone(t)
	h := table.acquire(t, "x")
	_, lent := h.Lend("web-2", "k")
	require.True(t, lent)
	h.Lose(errors.New("the session is over"))
	sent := table.cfg.Mail.Now().Add(time.Second)
	table.lease.Store(&lease{lent: sent.Add(time.Hour)})
	table.Lapse(errors.New("lease ended"))
	require.Len(t, table.Return(sent), 1)
}

// replies lets node 2 reply to the first request of lock x.
func replies(t *Table, epoch uint64) {
	t.Handle([]byte("x"), &trace.Message{Seq: 1, Message: dmutex.Message{Kind: dmutex.Reply, From: 2, To: 1, Attempt: 1, Fence: epochs.First(epoch)}})
}
