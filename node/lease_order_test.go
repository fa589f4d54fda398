package node_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/suzukikasami"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A tardyStore answers after a random time, so that members learn of a change one after
// another, in any order.
type tardyStore struct {
	store.Store
	mu     sync.Mutex
	random *rand.Rand
}

func (s *tardyStore) wait() {
	s.mu.Lock()
	d := time.Duration(s.random.Int64N(int64(30 * time.Millisecond)))
	s.mu.Unlock()
	time.Sleep(d)
}

func (s *tardyStore) Load(ctx context.Context) ([]byte, store.Revision, error) {
	s.wait()
	defer s.wait()
	return s.Store.Load(ctx)
}

func (s *tardyStore) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	s.wait()
	defer s.wait()
	return s.Store.Swap(ctx, value, rev)
}

// An exclusion, the reports of the members that stay, and the release of a lock by one of them
// reach a third member in any order. One member holds the lock at a time, fences rise, and the lock
// goes on in the new view.
func TestLeaseOrderAtThirdMember(t *testing.T) {
	seeds := uint64(10)
	if racetest.On || testing.Short() {
		seeds = 2
	}
	for _, algorithm := range []dmutex.Algorithm{lamport.New, maekawa.New, suzukikasami.New} {
		for seed := range seeds {
			bubbleLease(t, algorithm, func(t *testing.T, g *group) { anyOrder(t, g, seed) })
		}
	}
}

func anyOrder(t *testing.T, g *group, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 2))
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	var err error
	g.net, err = memlink.New(memlink.Config{Seed: seed, Loss: 0.05, Duplicate: 0.05, MaxDelay: 20 * time.Millisecond})
	require.NoError(t, err)
	for i := range uint64(4) {
		s := &member{group: g, store: outagetest.New(t, &tardyStore{Store: &g.store, random: rand.New(rand.NewPCG(seed, 3+i))}, outagetest.Faults{})}
		s.Node, err = node.Open(t.Context(), s.store, s.newLink(), g.config(s))
		require.NoError(t, err)
		g.all = append(g.all, s)
	}
	all := slices.Clone(g.all)
	acts := func(n int) func() bool {
		return func() bool {
			return !slices.ContainsFunc(all, func(s *member) bool {
				v := s.Status().View
				return len(v.Members) != n || !v.Acts
			})
		}
	}
	until := func(done func() bool) {
		t.Helper()
		for end := time.Now().Add(5 * leaseOf); !done(); time.Sleep(leaseOf / 500) {
			require.True(t, time.Now().Before(end), "seed %d", seed)
		}
	}
	until(acts(4))
	var holders, grants atomic.Int32
	var last atomic.Uint64
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, s := range all {
		hold := rand.New(rand.NewPCG(seed, uint64(s.Self())<<8))
		running.Go(func() {
			for ctx.Err() == nil {
				h, err := s.Mutex("x").Acquire(ctx)
				if err != nil {
					continue
				}
				if holders.Add(1) > 1 {
					t.Errorf("seed %d: two holders", seed)
				}
				if last.Swap(h.Fence()) >= h.Fence() {
					t.Errorf("seed %d: a fence falls", seed)
				}
				grants.Add(1)
				select {
				case <-h.Context().Done():
				case <-time.After(time.Duration(hold.Int64N(int64(50 * time.Millisecond)))):
				}
				holders.Add(-1)
				_ = h.Release()
			}
		})
	}
	for range 6 {
		time.Sleep(time.Duration(random.Int64N(int64(200 * time.Millisecond))))
		out := all[random.IntN(len(all))]
		number := out.Self()
		g.exclude(number) // it is alive, and joins again
		until(func() bool { return out.Self() != number && out.Self() != dmutex.None })
		if random.IntN(2) == 0 {
			until(acts(4))
		}
	}
	until(acts(4))
	before := grants.Load()
	until(func() bool { return grants.Load() > before+8 })
	cancel()
	running.Wait()
}
