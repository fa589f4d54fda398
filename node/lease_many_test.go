package node_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
)

// manyLocks starts two members that hold many locks. To go through these takes each of them several
// seconds. Then it starts a third.
func manyLocks(t *testing.T, g *group) (all []*member, held [2][]lock.Held) {
	all = g.open(2)
	for i, s := range all {
		for k := range 900 {
			held[i] = append(held[i], s.acquire(fmt.Sprint(i, " holds ", k)))
		}
		s.OnBreath(func() { time.Sleep(leaseOf / 6) })
	}
	g.join()
	time.Sleep(leaseOf / 100)
	require.False(t, all[0].Status().View.Acts)
	return all, held
}

// worst returns, of some members until a time, the least that their leases remain, and the longest that their
// peers are silent.
func worst(all []*member, until func() bool) (remains, silent time.Duration) {
	remains = leaseOf
	for !until() {
		for _, s := range all {
			st := s.Status()
			remains = min(remains, st.Lease.Remains)
			for _, p := range st.Peers {
				silent = max(silent, p.Silent)
			}
		}
		time.Sleep(leaseOf / 200)
	}
	return remains, silent
}

// Renewals and signs of life do not wait until a change of the view has gone through all locks, however long
// that takes: here longer than from one renewal to the next.
func TestLeaseManyHeld(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		all, held := manyLocks(t, g)
		began := time.Now()
		remains, silent := worst(all, func() bool { return all[0].Status().View.Acts && all[1].Status().View.Acts })
		require.Greater(t, time.Since(began), leaseOf/2)
		idle := time.Now().Add(2 * leaseOf)
		usually, silentUsually := worst(all, func() bool { return time.Now().After(idle) })
		const late, sample = 50 * time.Millisecond, leaseOf / 200
		require.Greater(t, remains, usually-late-sample)
		require.Less(t, silent, silentUsually+late+sample)
		for i, of := range held {
			for k, h := range of {
				require.NoError(t, h.Err())
				if k%2 == 0 {
					require.NoError(t, h.Release())
				}
				if k%60 == 0 {
					require.NoError(t, g.all[2].acquire(fmt.Sprint(i, " holds ", k)).Release())
				}
			}
		}
		for _, s := range g.all {
			require.Zero(t, s.Status().Lease.Exclusions)
			require.Zero(t, s.Status().Refused)
		}
	})
}

// A lease that ends while a change of the view goes through the locks ends what is held in time. A member that
// comes back then has no locks, and its former ones are free.
func TestLeaseLapsesDuringAChange(t *testing.T) {
	bubbleLease(t, central.Witnessed, func(t *testing.T, g *group) {
		all, held := manyLocks(t, g)
		ctx := held[0][899].Context()
		all[0].isolate(true)
		left := all[0].Status().Lease.Remains
		began := time.Now()
		<-ctx.Done()
		require.LessOrEqual(t, time.Since(began), left+50*time.Millisecond+2*leaseOf/6)
		require.ErrorIs(t, held[0][0].Err(), node.ErrLost)
		all[0].isolate(false)
		time.Sleep(10 * leaseOf)
		for _, k := range []int{0, 449, 899} {
			require.NoError(t, all[1].acquire(fmt.Sprint("0 holds ", k)).Release())
			require.NoError(t, held[1][k].Release())
			require.NoError(t, all[0].acquire(fmt.Sprint("1 holds ", k)).Release())
		}
	})
}

// A member that closes while a change of the view goes through its locks gives them all back, and its lease is
// looked after until it has left.
func TestLeaseClosesDuringAChange(t *testing.T) {
	bubbleLease(t, central.Witnessed, func(t *testing.T, g *group) {
		all, held := manyLocks(t, g)
		ctx := held[0][899].Context()
		require.NoError(t, all[0].Close(t.Context()))
		require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
		require.ErrorIs(t, context.Cause(ctx), node.ErrClosed)
		began := time.Now()
		for _, k := range []int{0, 449, 899} {
			require.NoError(t, all[1].acquire(fmt.Sprint("0 holds ", k)).Release())
			require.NoError(t, held[1][k].Release())
		}
		require.Less(t, time.Since(began), 3*leaseOf)
		require.Zero(t, all[1].Status().Lease.Exclusions)
	})
}

// A lock that is held over two changes of the view, while its machine is born nowhere else, stays taken
// until its hold has lapsed, and is free then; so does one that is given back between the changes. What its member
// does not hold is never waited for.
func TestLeaseBirthsOverTwoChanges(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		all := g.open(2)
		const locks = 8
		name := func(k int) string { return fmt.Sprint("lock ", k) }
		var held []lock.Held
		for k := range locks {
			held = append(held, all[1].acquire(name(k)))
		}
		change := func(members int, gone ...*member) { // by one that joins
			g.join()
			for _, s := range g.all {
				for !slices.Contains(gone, s) && (len(s.Status().View.Members) != members || !s.Status().View.Acts) {
					time.Sleep(leaseOf / 100)
				}
			}
		}
		change(3)
		require.NoError(t, held[0].Release())
		change(4)
		for k := 1; k < locks; k++ {
			require.NoError(t, held[k].Err())
			_, err := g.all[2+k%2].Mutex(name(k)).TryAcquire(t.Context())
			require.ErrorIs(t, err, lock.ErrBusy, name(k))
		}
		ends := held[1].Context()
		all[1].isolate(true) // the hold lapses, and this member is excluded
		waits := make(map[int]<-chan outcome)
		for k := range locks {
			waits[k] = g.all[[]int{0, 2, 3}[k%3]].acquireLater(t.Context(), name(k))
		}
		change(4, all[1])
		for k := range locks {
			h := granted(t, waits[k])
			if k > 0 {
				require.Error(t, ends.Err(), "granted before the hold has lapsed: %s", name(k))
			}
			require.NoError(t, h.Release())
		}
		all[1].isolate(false)
		time.Sleep(2 * leaseOf)
		for k := range locks {
			require.NoError(t, all[1].acquire(name(k)).Release())
			if k > 0 {
				require.ErrorIs(t, held[k].Err(), lock.ErrLost)
			}
		}
		for _, s := range g.all {
			require.Zero(t, s.Status().Refused)
		}
	})
}
