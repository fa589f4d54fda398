package node_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport/memlink"
)

// BenchmarkManyHeld reports for how long others' grants stop when one member joins, leaves or dies
// while two others hold many locks, all in this process; how late the mutex of a group is got
// meanwhile, for which renewals and signs of life wait; how late the machine wakes a goroutine meanwhile that waits
// for nothing but a millisecond; and how many of the locks are lost. It is run with -benchtime 1x.
func BenchmarkManyHeld(b *testing.B) {
	for _, held := range []int{0, 10_000, 30_000, 100_000, 200_000, 400_000} {
		b.Run(fmt.Sprint(held), func(b *testing.B) {
			for b.Loop() {
				manyHeld(b, held)
			}
		})
	}
}

// A many is a member that notes how many members the last view had that acted.
type many struct {
	*node.Node
	cut     *atomic.Bool
	members atomic.Int64
}

func manyHeld(b *testing.B, count int) {
	net, err := memlink.New(memlink.Config{})
	require.NoError(b, err)
	var record store.Memory
	open := func() *many {
		m := &many{cut: new(atomic.Bool)}
		link := outagetest.Link{DynamicLink: net.Link(dmutex.None), Cut: m.cut}
		m.Node, err = node.Open(b.Context(), &record, link, node.Config{Algorithm: central.Witnessed, Observer: &node.Observer{
			View: func(v node.ViewStatus) { m.members.Store(int64(len(v.Members))) },
		}})
		require.NoError(b, err)
		return m
	}
	all := []*many{open(), open()}
	are := func(n int64) bool { return all[0].members.Load() == n && all[1].members.Load() == n }
	await := func(n int64) {
		for !are(n) {
			time.Sleep(time.Millisecond)
		}
	}
	await(2)
	var held []lock.Held
	for i, name := range names(count) {
		h, err := all[i%2].Mutex(name).Acquire(b.Context())
		require.NoError(b, err)
		held = append(held, h)
	}
	free := nameAt(1, []dmutex.NodeID{1, 2, 3, 4}) // its witness is the second
	hurry, cancel := context.WithCancel(b.Context())
	cancel()
	late, asleep := time.Duration(0), time.Duration(0)
	during := func(what string, n int64, change func()) {
		stops, lates, sleeps := make(chan time.Duration), make(chan time.Duration), make(chan time.Duration)
		every := func(longest chan<- time.Duration, act func()) {
			most := time.Duration(0)
			for last := false; !last; {
				last = are(n)
				began := time.Now()
				act()
				most = max(most, time.Since(began))
				time.Sleep(time.Millisecond)
			}
			longest <- most
		}
		go every(stops, func() {
			if h, err := all[1].Mutex(free).Acquire(b.Context()); err == nil {
				_ = h.Release()
			}
		})
		go every(lates, func() {
			_ = all[0].Ready(hurry)
			_ = all[1].Ready(hurry)
		})
		go every(sleeps, func() { time.Sleep(time.Millisecond) })
		change()
		b.ReportMetric((<-stops).Seconds()*1000, what+"-ms")
		late, asleep = max(late, <-lates), max(asleep, <-sleeps-time.Millisecond)
	}
	var third *many
	during("join", 3, func() { third = open() })
	during("leave", 2, func() { require.NoError(b, third.Close(b.Context())) })
	third = open()
	await(3)
	during("death", 2, func() {
		third.cut.Store(true)
		_ = third.Close(hurry) // the record still has it
	})
	lost := 0
	for _, h := range held {
		if h.Err() != nil {
			lost++
		}
	}
	b.ReportMetric(late.Seconds()*1000, "late-ms")
	b.ReportMetric(asleep.Seconds()*1000, "asleep-ms")
	b.ReportMetric(float64(lost), "lost")
	b.ReportMetric(0, "ns/op")
	for _, m := range all {
		_ = m.Node.Close(hurry)
	}
}

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
