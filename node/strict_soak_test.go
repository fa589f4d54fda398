package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/memlink"
)

// LESSONS L19, L25, L64, L66, L68, L80: many callers in a group whose members crash, restart, close
// and come back, over a network that loses, repeats and reorders frames. Holds do not overlap and
// fences rise, as a referee sees it. In the end everybody is served and nothing is left behind.
// DMUTEX_LONG=1 takes ten seeds of three minutes each, by the bubble's clock.
func TestSoakChanges(t *testing.T) {
	seeds, length := 1, 30*time.Second
	switch {
	case os.Getenv("DMUTEX_LONG") != "":
		seeds, length = 10, 3*time.Minute
	case racetest.On || os.Getenv("CI") == "":
		seeds, length = 1, 10*time.Second
	}
	for _, a := range algorithms.Some() {
		for _, size := range []int{3, 5} {
			t.Run(fmt.Sprint(a.Name, "/", size), func(t *testing.T) {
				for seed := range uint64(seeds) {
					bad := memlink.Config{Seed: seed, Loss: 0.05, Duplicate: 0.05, MaxDelay: 3 * time.Millisecond}
					bubble(t, strict, a.Algorithm, bad, func(t *testing.T, g *group) {
						t.Logf("seed %d", seed)
						r := &referee{t: t, group: g, seed: seed, inside: make(map[string]uint64), fences: make(map[string]uint64), lives: make(map[dmutex.NodeID]*life)}
						r.run(size, length)
					})
				}
			})
		}
	}
}

// A referee checks the work of a changing group, and relies on nothing that the nodes say.
type referee struct {
	*group
	t    *testing.T
	seed uint64

	mu     sync.Mutex
	inside map[string]uint64 // by lock, the fence of the grant under which somebody works
	fences map[string]uint64 // by lock, the highest fence that was granted
	served int
	lives  map[dmutex.NodeID]*life
}

// A life is one run of a process: a node, and the workers that use it.
type life struct {
	*member
	stop    context.CancelFunc // ends the workers
	ctx     context.Context
	workers sync.WaitGroup
	working map[string]uint64 // by lock, the fence under which it works; guarded by the referee's mutex
}

func (r *referee) run(size int, length time.Duration) {
	for id := range dmutex.NodeID(size) {
		r.members = append(r.members, id+1)
	}
	nodetest.Today()
	for _, id := range r.members {
		r.begin(id)
	}
	rng := rand.New(rand.NewPCG(r.seed, 1))
	for end := time.Now().Add(length); time.Now().Before(end); {
		time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Second))))
		id := r.members[rng.IntN(size)]
		switch {
		case r.lives[id] == nil:
			r.begin(id)
		case rng.IntN(2) == 0:
			r.kill(id)
		default:
			r.leave(id, time.Duration(1+rng.Int64N(int64(2*time.Second))))
		}
		time.Sleep(time.Duration(rng.Int64N(int64(300 * time.Millisecond))))
		if rng.IntN(4) > 0 && r.lives[id] == nil {
			r.begin(id)
		}
	}
	for _, id := range r.members {
		if r.lives[id] == nil {
			r.begin(id)
		}
	}
	for _, l := range r.lives {
		require.NoError(r.t, l.Ready(r.t.Context()))
	}
	served := r.tally()
	for waited := 0; r.tally() == served; waited++ {
		require.Less(r.t, waited, 100, "nobody is served any more, seed %d", r.seed)
		time.Sleep(100 * time.Millisecond)
	}
	for _, l := range r.lives {
		l.stop()
	}
	for _, l := range r.lives {
		l.workers.Wait()
	}
	time.Sleep(2 * time.Minute) // the last view change may take long
	for id, l := range r.lives {
		st := l.Status()
		require.NoError(r.t, st.Err)
		require.True(r.t, st.View.Acts)
		require.Equal(r.t, r.members, st.View.Members)
		require.Zero(r.t, st.Refused, "node %d, seed %d", id, r.seed)
		for name, lock := range l.Locks() {
			require.Fail(r.t, "a lock is in use", "%s at %d: %+v, seed %d", name, id, lock, r.seed)
		}
	}
	for _, id := range r.members { // and free
		for k := range 4 {
			require.NoError(r.t, r.acquire(id, lockName(k)).Release())
		}
	}
	r.t.Logf("%d served, %d views", r.served, r.node(1).Status().View.Epoch)
}

func (r *referee) tally() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.served
}

func lockName(k int) string {
	if k == 3 {
		return "election/x"
	}
	return fmt.Sprint("lock ", k)
}

// begin starts a process.
func (r *referee) begin(id dmutex.NodeID) {
	l := &life{member: r.start(id), working: make(map[string]uint64)}
	l.ctx, l.stop = context.WithCancel(r.t.Context())
	r.lives[id] = l
	born := uint64(time.Now().UnixNano())
	for i := range 4 {
		rng := rand.New(rand.NewPCG(r.seed+uint64(i)<<32+uint64(id)<<48, born))
		l.workers.Go(func() {
			for l.ctx.Err() == nil {
				r.turn(l, rng)
			}
		})
	}
}

// turn takes locks in one of several ways.
func (r *referee) turn(l *life, rng *rand.Rand) {
	patience := time.Hour
	if rng.IntN(4) == 0 {
		patience = time.Duration(rng.Int64N(int64(50 * time.Millisecond)))
	}
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	name := lockName(rng.IntN(3))
	pause := time.Duration(rng.Int64N(int64(5 * time.Millisecond)))
	var err error
	switch rng.IntN(5) {
	case 0:
		var h lock.Held
		if h, err = l.Mutex(name).TryAcquire(ctx); err == nil {
			r.work(l, name, h.Fence(), pause)
			err = h.Release()
		}
	case 1:
		var txn *node.Txn
		if txn, err = l.AcquireAll(ctx, lockName(0), lockName(1), lockName(2)); err == nil {
			r.work(l, name, txn.Held(name).Fence(), pause)
			err = txn.Release()
		}
	case 2:
		err = l.Election("x").Campaign(ctx, func(_ context.Context, epoch uint64) error {
			r.work(l, lockName(3), epoch, pause)
			return nil
		})
	default:
		var h lock.Held
		if h, err = l.Mutex(name).Acquire(ctx); err == nil {
			r.work(l, name, h.Fence(), pause)
			err = h.Release()
		}
	}
	if err != nil && l.ctx.Err() == nil && ctx.Err() == nil && !errors.Is(err, node.ErrBusy) && !errors.Is(err, node.ErrClosed) {
		require.Fail(r.t, "a wait has ended", "%v, seed %d", err, r.seed)
	}
	time.Sleep(time.Millisecond)
}

// work works under a lock. A process that was killed does nothing more.
func (r *referee) work(l *life, name string, fence uint64, pause time.Duration) {
	r.mu.Lock()
	if l.ctx.Err() != nil {
		r.mu.Unlock()
		return
	}
	require.Zero(r.t, r.inside[name], "overlap on %s, seed %d", name, r.seed)
	require.Greater(r.t, fence, r.fences[name], "fence of %s, seed %d", name, r.seed)
	r.inside[name], r.fences[name], l.working[name] = fence, fence, fence
	r.mu.Unlock()
	time.Sleep(pause)
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.working[name] == fence {
		delete(l.working, name)
		delete(r.inside, name)
		r.served++
	}
}

// dead ends all work of a process.
func (r *referee) dead(id dmutex.NodeID) *life {
	l := r.lives[id]
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.lives, id)
	l.stop()
	for name := range l.working {
		delete(r.inside, name)
	}
	clear(l.working)
	return l
}

// kill ends a process without a farewell.
func (r *referee) kill(id dmutex.NodeID) {
	for _, other := range r.members {
		r.net.Cut(id, other)
		r.net.Cut(other, id)
	}
	l := r.dead(id)
	ctx, cancel := context.WithCancel(r.t.Context())
	cancel()
	_ = l.Close(ctx)
	l.workers.Wait()
	l.forget()
	r.net.Heal()
}

// leave closes a node, and gives up when its patience is over.
func (r *referee) leave(id dmutex.NodeID, patience time.Duration) {
	l := r.lives[id]
	l.stop()
	l.workers.Wait()
	r.dead(id)
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	if err := l.Close(ctx); err != nil {
		require.ErrorIs(r.t, err, context.DeadlineExceeded)
		absent := slices.ContainsFunc(r.members, func(id dmutex.NodeID) bool { return r.lives[id] == nil })
		require.True(r.t, absent || patience < time.Second, "%v", err)
	}
	l.forget()
}
