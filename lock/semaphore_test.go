package lock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/lock/locktest"
	"github.com/dmutex/dmutex/lock/semaphore"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/storelock"
	"github.com/dmutex/dmutex/transport/memlink"
)

// allFree requires that every permit of the semaphore x is free, by the locks below.
func allFree(t *testing.T, s system, permits int) {
	t.Helper()
	for i := range permits {
		name := "x"
		if i > 0 {
			name = fmt.Sprintf("x#%d", i)
		}
		require.NoError(t, acquire(t, s.named[1](name)).Release(), name)
	}
}

// At most three callers of two processes hold a permit at a time, each another one, also while callers give
// up. The fences of a permit rise, and no permit leaks.
func TestSemaphore(t *testing.T) {
	each(t, func(t *testing.T, s system) {
		const permits = 3
		var mu sync.Mutex
		inside, last, grants, most := map[int]bool{}, map[int]uint64{}, 0, 0
		var working sync.WaitGroup
		for i := range 10 {
			jobs := semaphore.New("x", permits, s.named[i%2])
			luck := rand.New(rand.NewPCG(uint64(i), 1))
			working.Go(func() {
				for range 6 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(luck.Int64N(int64(lease))))
					err := jobs.Do(ctx, func(_ context.Context, permit int, fence uint64) error {
						mu.Lock()
						require.False(t, inside[permit])
						require.Less(t, permit, permits)
						require.Greater(t, fence, last[permit])
						inside[permit], last[permit] = true, fence
						grants++
						most = max(most, len(inside))
						mu.Unlock()
						time.Sleep(lease / 20)
						mu.Lock()
						defer mu.Unlock()
						delete(inside, permit)
						return nil
					})
					cancel()
					require.True(t, err == nil || errors.Is(err, context.DeadlineExceeded), "%v", err)
				}
			})
		}
		working.Wait()
		require.Greater(t, grants, 20)
		require.Equal(t, permits, most)
		time.Sleep(2 * lease)
		allFree(t, s, permits)
	})
}

// Permit 0 is the lock itself, and the only one of a semaphore of one.
func TestSemaphoreNames(t *testing.T) {
	each(t, func(t *testing.T, s system) {
		one, two := semaphore.New("x", 1, s.named[0]), semaphore.New("x", 2, s.named[1])
		p, err := one.Acquire(t.Context())
		require.NoError(t, err)
		require.Zero(t, p.Number)
		_, err = s.two.TryAcquire(t.Context())
		require.ErrorIs(t, err, lock.ErrBusy)
		q, err := two.TryAcquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, q.Number)
		none, err := two.TryAcquire(t.Context())
		require.ErrorIs(t, err, lock.ErrBusy)
		require.ErrorContains(t, err, `semaphore "x" of 2: `)
		require.Nil(t, none)
		require.NoError(t, q.Release())
		require.ErrorIs(t, q.Err(), lock.ErrReleased)
		require.NoError(t, p.Release())
		allFree(t, s, 2)
	})
}

// A permit that is lost ends its Do, and others get it; the others are not delayed.
func TestSemaphoreLoss(t *testing.T) {
	each(t, func(t *testing.T, s system) {
		one, two := semaphore.New("x", 2, s.named[0]), semaphore.New("x", 2, s.named[1])
		require.NoError(t, acquire(t, s.named[1]("x#1")).Release())
		broken := errors.New("broken")
		err := one.Do(t.Context(), func(ctx context.Context, _ int, _ uint64) error {
			go s.trouble()
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
			s.over()
			return broken
		})
		require.ErrorIs(t, err, lock.ErrLost)
		require.ErrorIs(t, err, broken)
		var both []*semaphore.Permit
		for range 2 {
			p, err := two.Acquire(t.Context())
			require.NoError(t, err)
			both = append(both, p)
		}
		for _, p := range both {
			require.NoError(t, p.Release())
		}
		time.Sleep(2 * lease)
	})
}

// A watched lock calls a function before each TryAcquire.
type watched struct {
	lock.Mutex
	before func()
}

func (m watched) TryAcquire(ctx context.Context) (lock.Held, error) {
	m.before()
	return m.Mutex.TryAcquire(ctx)
}

// A TryAcquire asks for each permit once, also if one is released meanwhile.
func TestSemaphoreReleasedMeanwhile(t *testing.T) {
	const permits = 4
	held := map[string]*semaphore.Permit{}
	var asked []string
	s := semaphore.New("x", permits, func(name string) lock.Mutex {
		return watched{locktest.New(name), func() {
			if asked = append(asked, name); len(held) == permits && len(asked) == permits-1 {
				require.NoError(t, held[asked[1]].Release())
			}
		}}
	})
	for range permits {
		p, err := s.TryAcquire(t.Context())
		require.NoError(t, err)
		held[asked[len(asked)-1]] = p
	}
	asked = nil
	_, err := s.TryAcquire(t.Context())
	require.ErrorIs(t, err, lock.ErrBusy)
	for name := range held {
		require.Contains(t, asked, name)
	}
}

// A permit about which a member that cannot be reached must be asked keeps nobody from the others.
func TestSemaphoreUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		nodes := strict(t, net, 3, central.New)
		var all []*semaphore.Semaphore
		for i := range 20 {
			all = append(all, semaphore.New(fmt.Sprint("x", i), 8, nodes[0].Mutex))
		}
		net.Partition([]dmutex.NodeID{1, 2})
		defer net.Heal()
		for _, s := range all {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			p, err := s.Acquire(ctx)
			cancel()
			require.NoError(t, err)
			require.NoError(t, p.Release())
		}
	})
}

// A number of permits that is out of range is an error of each call.
func TestSemaphoreRange(t *testing.T) {
	for _, permits := range []int{-1, 0, 65} {
		s := semaphore.New("x", permits, locktest.New)
		_, err := s.Acquire(t.Context())
		require.ErrorContains(t, err, "choose 1 to 64")
		_, err = s.TryAcquire(t.Context())
		require.ErrorContains(t, err, "choose 1 to 64")
	}
	p, err := semaphore.New("x", 64, locktest.New).Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.Release())
}

// With holds of a thousand message times, callers wait hardly longer than at an ideal counter: one queue, and
// permits that are passed on in a message time. -v shows the times, also for shorter holds.
func TestSemaphoreBesideCounter(t *testing.T) {
	for _, hold := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			const n, permits, turns = 8, 3, 30
			const message = time.Millisecond
			net, err := memlink.New(memlink.Config{MinDelay: message, MaxDelay: message})
			require.NoError(t, err)
			nodes := strict(t, net, n, central.New)
			measure := func(take func(i int) (release func())) (mean time.Duration) {
				var mu sync.Mutex
				var working sync.WaitGroup
				for i := range n {
					working.Go(func() {
						luck := rand.New(rand.NewPCG(uint64(i), 7))
						for range turns {
							time.Sleep(time.Duration(luck.ExpFloat64() * float64(hold)))
							begin := time.Now()
							release := take(i)
							waited := time.Since(begin)
							time.Sleep(hold)
							release()
							mu.Lock()
							mean += waited / (n * turns)
							mu.Unlock()
						}
					})
				}
				working.Wait()
				return mean
			}
			counter := make(chan struct{}, permits)
			ideal := measure(func(int) func() {
				time.Sleep(message) // the request
				counter <- struct{}{}
				time.Sleep(message) // the grant
				return func() { time.AfterFunc(message, func() { <-counter }) }
			})
			semaphores := make([]*semaphore.Semaphore, n)
			for i := range semaphores {
				semaphores[i] = semaphore.New("jobs", permits, nodes[i].Mutex)
			}
			ours := measure(func(i int) func() {
				p, err := semaphores[i].Acquire(t.Context())
				require.NoError(t, err)
				return func() { require.NoError(t, p.Release()) }
			})
			t.Logf("%d callers, %d permits, holds of %v: a mean wait of %v, at an ideal counter %v", n, permits, hold, ours, ideal)
			if hold == time.Second {
				require.InEpsilon(t, ideal.Seconds(), ours.Seconds(), 0.1)
			}
		})
	}
}

// A remote store takes up to this long for each call, and is out of reach once its process has ended.
type remote struct {
	store.Store
	longest time.Duration
	luck    func(n int64) int64
	ended   *atomic.Bool
}

func (r remote) takes() error {
	time.Sleep(time.Duration(r.luck(int64(r.longest))))
	if r.ended.Load() {
		return errors.New("the process has ended")
	}
	return nil
}

func (r remote) Load(ctx context.Context) ([]byte, store.Revision, error) {
	if err := r.takes(); err != nil {
		return nil, "", err
	}
	return r.Store.Load(ctx)
}

func (r remote) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	next, err := r.Store.Swap(ctx, value, rev)
	return next, cmp.Or(r.takes(), err)
}

// A process that ends as soon as it has released its permit, or as its Acquire has failed, leaves no other permit
// taken: the swaps for those were under way.
func TestSemaphoreLeavesNothing(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			const permits = 4
			longest := []time.Duration{time.Second / 20, lease / 5}[seed%2]
			records := map[string]*store.Memory{}
			luck := rand.New(rand.NewPCG(seed, 3))
			var mu sync.Mutex
			draw := func(n int64) int64 {
				mu.Lock()
				defer mu.Unlock()
				return luck.Int64N(n)
			}
			open := func(s store.Store, name string) lock.Mutex {
				l, err := storelock.New(s, name, lease)
				require.NoError(t, err)
				return l
			}
			var holders []lock.Held // until they end, the process waits for all permits
			for i := range permits {
				name := "x"
				if i > 0 {
					name = fmt.Sprintf("x#%d", i)
				}
				records[name] = new(store.Memory)
				holders = append(holders, acquire(t, open(records[name], name)))
			}
			var ended atomic.Bool
			jobs := semaphore.New("x", permits, func(name string) lock.Mutex {
				return open(remote{records[name], longest, draw, &ended}, name)
			})
			time.AfterFunc(time.Second, func() {
				for _, h := range holders {
					assert.NoError(t, h.Release())
				}
			})
			patience := time.Minute
			if longest < time.Second/4 { // else a call that fails returns before all is over
				patience = time.Second + time.Duration(draw(int64(time.Second/2)))
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if p, err := jobs.Acquire(ctx); err == nil {
				require.NoError(t, p.Release())
			}
			ended.Store(true)
			for name, record := range records {
				h, err := open(record, name).TryAcquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, h.Release())
			}
			time.Sleep(10 * lease)
		})
	}
}
