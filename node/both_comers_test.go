package node_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A member that stays gets a lock within a second while another joins, locks and leaves as fast as
// it can.
func TestOthersComeAndGo(t *testing.T) {
	for _, a := range algorithms.All {
		t.Run(a.Name, func(t *testing.T) {
			delays := memlink.Config{Seed: 1, MinDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond}
			bubble(t, a.Algorithm, delays, func(t *testing.T, g *group) {
				today()
				g.open(3)
				g.close(2)
				stays(t, g.nodes[1], 1, func() (*node.Node, error) {
					return node.OpenStrict(t.Context(), 2, g.members, g.net.Link(2), node.Config{Algorithm: g.algorithm})
				})
			})
		})
	}
}

// With a store, two members come and go. The store is no faster than the network. Otherwise a
// newcomer that is the home of the lock could take the lock and leave, again and again, before a
// request of another member reaches it.
func TestOthersComeAndGoWithAStore(t *testing.T) {
	eachLease(t, func(t *testing.T, g *leaseGroup) {
		s := outagetest.New(t, distantStore{&g.store, 2 * time.Millisecond}, outagetest.Faults{})
		open := func() (*node.Node, error) {
			m := &member{group: g}
			return node.Open(t.Context(), s, m.newLink(), g.config(m))
		}
		one, err := open()
		require.NoError(t, err)
		require.NoError(t, one.Ready(t.Context()))
		stays(t, one, 2, open)
		require.NoError(t, one.Close(t.Context()))
	})
}

func stays(t *testing.T, stays *node.Node, n int, open func() (*node.Node, error)) {
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
				n, err := open()
				if err != nil {
					t.Error(err)
					return
				}
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		held, err := stays.Mutex("x").Acquire(ctx)
		cancel()
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
	t.Logf("%d grants, while others came %v times, in %d views", grants, came, stays.Status().View.Changes)
	require.Greater(t, slices.Min(came), least)
}
