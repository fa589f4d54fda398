package node_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/internal/kit/quicktest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A storm is a group in which members crash, leave, join, and are excluded while they live. They
// lose the store, the other members, or both. All the time several goroutines of each member take
// locks, for a moment or for longer than a lease.
type storm struct {
	*group
	seed   uint64
	random *rand.Rand
	locks  int
	ctx    context.Context
	ends   map[*member]context.CancelFunc // end the goroutines that take locks there
	count  uint64                         // of processes so far
	tasks  sync.WaitGroup

	mu     sync.Mutex
	holder map[string]*member
	fence  map[string]uint64
}

// One member holds a lock at a time, fences rise, and in the end each member can get each lock. Six
// seeds; two under the race detector, and one with -short.
func TestLeaseStorm(t *testing.T) {
	seeds := uint64(6)
	switch {
	case testing.Short():
		seeds = 1
	case racetest.On || quicktest.On():
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			eachLease(t, func(_ *testing.T, g *group) { runStorm(g, seed) })
			bubbleLease(t, ricart.Carvalho, func(_ *testing.T, g *group) { runStorm(g, seed) })
		})
	}
}

func runStorm(g *group, seed uint64) {
	w := &storm{
		group: g, seed: seed, random: rand.New(rand.NewPCG(seed, 2)), ends: make(map[*member]context.CancelFunc),
		holder: make(map[string]*member), fence: make(map[string]uint64),
	}
	ctx, cancel := context.WithCancel(g.t.Context())
	w.ctx, w.locks = ctx, 2+w.random.IntN(8)
	loss := float64(w.random.IntN(2)) * 0.03
	var err error
	g.net, err = memlink.New(memlink.Config{Seed: seed, Loss: loss, Duplicate: loss, MaxDelay: 20 * time.Millisecond})
	require.NoError(g.t, err)
	for range 2 + w.random.IntN(3) {
		w.open()
	}
	time.Sleep(leaseOf + nodetest.UpTo(w.random, leaseOf/5)) // a new record makes the first member wait
	for range 10 + w.random.IntN(10) {
		time.Sleep(nodetest.UpTo(w.random, []time.Duration{20 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second}[w.random.IntN(3)]))
		w.happen()
	}
	time.Sleep(2 * leaseOf)
	w.open()
	time.Sleep(6 * leaseOf)
	cancel()
	w.tasks.Wait()
	time.Sleep(leaseOf)
	for _, s := range g.all {
		for i := range w.locks {
			h, err := s.Mutex("lock " + strconv.Itoa(i)).Acquire(nodetest.ContextFor(g.t, leaseOf/10))
			require.NoError(g.t, err, "seed %d: lock %d at member %v", seed, i, s.Self())
			require.NoError(g.t, h.Release())
		}
	}
}

// happen lets something happen to a member.
func (w *storm) happen() {
	if len(w.all) == 0 {
		w.open()
		return
	}
	s, d := w.all[w.random.IntN(len(w.all))], nodetest.UpTo(w.random, leaseOf*3/2)
	switch w.random.IntN(8) {
	case 0: // it crashes, and is excluded at once
		w.ends[s]()
		s.isolate(true)
		w.exclude(s.Self())
		s.crash()
	case 1: // it crashes
		w.ends[s]()
		s.crash()
	case 2: // it is excluded, and does not learn that from the store
		s.store.Outage(true)
		w.exclude(s.Self())
		w.tasks.Go(func() { time.Sleep(d); s.store.Outage(false) })
	case 3: // it is excluded, and cut off
		s.isolate(true)
		w.exclude(s.Self())
		w.tasks.Go(func() { time.Sleep(d); s.isolate(false) })
	case 4:
		w.exclude(s.Self())
	case 5:
		s.cut.Store(true)
		w.tasks.Go(func() { time.Sleep(d); s.cut.Store(false) })
	case 6: // it leaves
		if !s.cut.Load() {
			w.ends[s]()
			s.isolate(false)
			s.close()
		}
	default:
		if len(w.all) < 6 {
			w.open()
		}
	}
}

// open starts a process that takes locks.
func (w *storm) open() {
	w.count++
	random := func(what uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed<<16+w.count, what)) }
	s := &member{group: w.group, store: outagetest.New(w.t, &tardyStore{Store: &w.store, random: random(0)}, outagetest.Faults{})}
	var err error
	s.Node, err = node.Open(w.t.Context(), s.store, s.newLink(), w.config(s))
	require.NoError(w.t, err)
	w.all = append(w.all, s)
	ctx, end := context.WithCancel(w.ctx)
	w.ends[s] = end
	for i := range uint64(2) {
		random := random(1 + i)
		w.tasks.Go(func() {
			for ctx.Err() == nil {
				w.take(ctx, s, random)
			}
		})
	}
}

// take takes a lock, tries to, or gives up soon.
func (w *storm) take(ctx context.Context, s *member, random *rand.Rand) {
	name := "lock " + strconv.Itoa(random.IntN(w.locks))
	patience := 20 * time.Second
	if random.IntN(3) == 0 {
		patience = 100 * time.Millisecond
	}
	ctx, end := context.WithTimeout(ctx, nodetest.UpTo(random, patience))
	defer end()
	var h lock.Held
	var err error
	if random.IntN(6) == 0 {
		h, err = s.Mutex(name).TryAcquire(ctx)
	} else {
		h, err = s.Mutex(name).Acquire(ctx)
	}
	if err != nil {
		time.Sleep(nodetest.UpTo(random, 50*time.Millisecond))
		return
	}
	defer func() { _ = h.Release() }()
	w.mu.Lock()
	if h.Err() != nil {
		w.mu.Unlock()
		return
	}
	if o := w.holder[name]; o != nil {
		w.t.Errorf("seed %d: %v and %v hold %s", w.seed, o.Self(), s.Self(), name)
	}
	if w.fence[name] >= h.Fence() {
		w.t.Errorf("seed %d: a fence of %s falls", w.seed, name)
	}
	w.holder[name], w.fence[name] = s, h.Fence()
	w.mu.Unlock()
	long := 200 * time.Millisecond
	if random.IntN(20) == 0 {
		long = 15 * time.Second
	}
	select {
	case <-h.Context().Done():
	case <-time.After(nodetest.UpTo(random, long)):
	}
	w.mu.Lock()
	w.holder[name] = nil
	w.mu.Unlock()
}
