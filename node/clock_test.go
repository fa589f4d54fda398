package node

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport/memlink"
)

// LESSONS L12, L55: what the wall clock runs ahead of the monotonic one counts as time,
// such as that of a machine that slept. What it runs behind does not, and hides no later
// sleep. Small steps, as of a clock that is being disciplined, add up.
func TestLeaseClock(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steps [][2]time.Duration // by the monotonic clock, and by the wall clock
		want  time.Duration
	}{
		{"awake", [][2]time.Duration{{time.Second, time.Second}}, time.Second},
		{"asleep", [][2]time.Duration{{time.Second, time.Hour}}, time.Hour},
		{"asleep twice", [][2]time.Duration{{0, time.Minute}, {time.Second, time.Minute}}, 2 * time.Minute},
		{"set back", [][2]time.Duration{{time.Second, -time.Hour}}, time.Second},
		{"set back, then asleep", [][2]time.Duration{{0, -time.Hour}, {0, time.Minute}}, time.Minute},
		{"a little fast", [][2]time.Duration{{time.Second, 1006 * time.Millisecond}, {time.Second, 1006 * time.Millisecond}}, 2012 * time.Millisecond},
		{"restless", [][2]time.Duration{{time.Second, 1009 * time.Millisecond}, {time.Second, 991 * time.Millisecond}, {time.Second, 1009 * time.Millisecond}}, 3 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c clock
			var passed, wall time.Duration
			for _, step := range tc.steps {
				passed, wall = passed+step[0], wall+step[1]
				c.at(int64(passed), int64(wall))
			}
			now, slept := c.at(int64(passed), int64(wall))
			require.EqualValues(t, tc.want, now)
			require.EqualValues(t, tc.want-passed, slept)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		time.Sleep(time.Hour)
		require.EqualValues(t, time.Hour, c.now())
	})
}

// A machine that has slept for longer than the lease loses its locks within a second,
// and goes on in time afterwards.
func TestLeaseAfterSleep(t *testing.T) {
	for _, lease := range []time.Duration{DefaultLease, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(30 * 365 * 24 * time.Hour) // to a time that counts for epochs
			net, err := memlink.New(memlink.Config{})
			require.NoError(t, err)
			n, err := Open(t.Context(), Config{
				Algorithm: ricart.New, Link: net.Link(dmutex.None), Store: new(store.Memory), Lease: lease,
			})
			require.NoError(t, err)
			defer func() { require.NoError(t, n.Close(t.Context())) }()
			held, err := n.Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			n.views.who.(*record).time.slept.Add(int64(lease))
			woke := time.Now()
			<-held.Context().Done()
			require.LessOrEqual(t, time.Since(woke), min(lease/askShare, time.Second))
			require.ErrorIs(t, held.Err(), ErrLease)
			held, err = n.Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			time.Sleep(2 * lease)
			require.NoError(t, held.Release())
		})
	}
}

// The time of an input contains the sleep that the machine was told of, and no other,
// also if another goroutine sees a sleep at the same moment. Otherwise a sleep that the
// machine was told of too early shortens its next wait for the leases of others.
func TestLeaseSleepIsToldWithItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * 365 * 24 * time.Hour) // to a time that counts for epochs
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		n, err := Open(t.Context(), Config{Algorithm: ricart.New, Link: net.Link(dmutex.None), Store: new(store.Memory)})
		require.NoError(t, err)
		defer func() { require.NoError(t, n.Close(t.Context())) }()
		l := n.views.who.(*record)
		var stepping sync.WaitGroup
		stepping.Go(func() {
			for range 100_000 {
				n.StepWall(int64(time.Second))
				l.time.now() // as Held.Err does
			}
		})
		n.views.mu.Lock()
		wrong := 0
		for range 100_000 {
			if now := l.now(); now != l.slept { // nothing else has passed
				wrong++
			}
		}
		n.views.mu.Unlock()
		stepping.Wait()
		require.Zero(t, wrong)
	})
}
