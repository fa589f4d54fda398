package node_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A member that stays gets a lock within a second while another joins, locks and leaves as fast as
// it can.
func TestOthersComeAndGo(t *testing.T) {
	for _, a := range algorithms.Some() {
		t.Run(a.Name, func(t *testing.T) {
			delays := memlink.Config{Seed: 1, MinDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond}
			bubble(t, strict, a.Algorithm, delays, func(t *testing.T, g *group) {
				nodetest.Today()
				g.open(3)
				g.close(2)
				g.node(1).stays(1, func() *member { return g.start(2) })
			})
		})
	}
}

// With a store, two members come and go. The store is no faster than the network. Otherwise a
// newcomer that is the home of the lock could take the lock and leave, again and again, before a
// request of another member reaches it.
func TestOthersComeAndGoWithAStore(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		shared := outagetest.New(t, distantStore{&g.store, 2 * time.Millisecond}, outagetest.Faults{})
		open := func() *member {
			s := &member{group: g, store: shared}
			return s.open(g.config(s))
		}
		one := open()
		require.NoError(t, one.Ready(t.Context()))
		one.stays(2, open)
	})
}

// stays requires that a member that stays gets a lock within a second, while n others join, lock and leave as fast
// as they can.
func (s *member) stays(n int, open func() *member) {
	t := s.group.t
	var others sync.WaitGroup
	long, least := 10*time.Second, 100
	if racetest.On {
		long, least = time.Second, 10
	}
	end := time.Now().Add(long)
	came := make([]int, n)
	for i := range came {
		others.Go(func() {
			for ; time.Now().Before(end); came[i]++ {
				n := open()
				n.forget()
				held, err := n.Mutex("x").Acquire(t.Context())
				if err == nil {
					err = held.Release()
				}
				if err != nil {
					t.Error(err)
				}
				if err := n.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	last, grants := uint64(0), 0
	for time.Now().Before(end) {
		held, err := s.Mutex("x").Acquire(nodetest.ContextFor(t, time.Second))
		if err != nil {
			t.Errorf("after %d grants: %v", grants, err)
			break
		}
		require.Greater(t, held.Fence(), last)
		last = held.Fence()
		grants++
		require.NoError(t, held.Release())
		time.Sleep(time.Millisecond)
	}
	others.Wait()
	t.Logf("%d grants, while others came %v times, in %d views", grants, came, s.Status().View.Changes)
	require.Greater(t, slices.Min(came), least)
}
