package node_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// diary records what an Observer was told.
type diary struct {
	mu    sync.Mutex
	waits []node.Event
	holds []node.Event
}

func (d *diary) observer() *node.Observer {
	return &node.Observer{
		Wait: func(w node.Event) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.waits = append(d.waits, w)
		},
		Hold: func(h node.Event) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.holds = append(d.holds, h)
		},
	}
}

func (d *diary) take() (waits []node.Event, holds []node.Event) {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	waits, holds, d.waits, d.holds = d.waits, d.holds, nil, nil
	return waits, holds
}

// watch opens a group of n, and observes the first.
func (g *group) watch(n int, o *node.Observer) {
	g.observer = o
	g.open(n)
}

// L79: the Observer is told how long it took to get the lock, and how long it was held.
func TestObserver(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		var d diary
		g.watch(3, d.observer())
		first := g.acquire(1, "x")
		waits, holds := d.take()
		require.Empty(t, holds)
		require.Equal(t, []node.Event{{Lock: "x", Fence: first.Fence(), Outcome: "granted"}}, waits)

		time.Sleep(3 * time.Second)
		remote := g.acquireLater(t.Context(), 2, "x")
		local := g.acquireLater(t.Context(), 1, "x")
		time.Sleep(4 * time.Second)
		require.NoError(t, first.Release())
		waits, holds = d.take()
		require.Empty(t, waits)
		require.Len(t, holds, 1)
		require.Equal(t, node.Event{Lock: "x", Fence: first.Fence(), Took: 7 * time.Second, Outcome: "released"}, holds[0])

		time.Sleep(5 * time.Second)
		require.NoError(t, (<-remote).held.Release())
		second := (<-local).held
		waits, holds = d.take()
		require.Empty(t, holds)
		require.Equal(t, []node.Event{{Lock: "x", Fence: second.Fence(), Took: 9 * time.Second, Outcome: "granted"}}, waits)
		time.Sleep(time.Second)
		require.NoError(t, second.Release())
		_, holds = d.take()
		require.Equal(t, time.Second, holds[0].Took)
		require.Empty(t, maps.Collect(g.node(1).Locks()))
	})
}

// Observers tells each of several, in their order, and has no function that none of them has.
func TestObservers(t *testing.T) {
	var heard []string
	tell := func(who string) func(node.Event) {
		return func(e node.Event) { heard = append(heard, who+" "+e.Lock+" "+e.Outcome) }
	}
	a, b := &node.Observer{Wait: tell("a waits")}, &node.Observer{Wait: tell("b waits"), Hold: tell("b holds")}
	all := node.Observers(a, nil, b)
	require.Nil(t, all.View)
	require.Nil(t, all.Lease)
	b.Hold, all.View = nil, func(node.ViewStatus) {} // of the result alone: a and b are as they were
	require.Nil(t, b.View)
	bubble(t, leased, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.watch(1, all)
		require.NoError(t, g.acquire(1, "x").Release())
	})
	require.Equal(t, []string{"a waits x granted", "b waits x granted", "b holds x released"}, heard)

	seen := 0
	views := node.Observers(&node.Observer{View: func(node.ViewStatus) { seen++ }}, &node.Observer{
		View: func(node.ViewStatus) { seen++ }, Lease: func(node.LeaseStatus) { seen++ },
	})
	views.View(node.ViewStatus{})
	views.Lease(node.LeaseStatus{})
	require.Equal(t, 3, seen)
}

// L79: the Observer is told each end of an Acquire or a hold once, with the error that the caller
// gets.
func TestObservedOutcomes(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		var d diary
		g.watch(3, d.observer())
		one := g.node(1)
		wait := func(took time.Duration, is error, word string) {
			t.Helper()
			waits, holds := d.take()
			require.Empty(t, holds)
			require.Len(t, waits, 1)
			require.Equal(t, "x", waits[0].Lock)
			require.ErrorIs(t, waits[0].Err, is)
			require.Equal(t, word, waits[0].Outcome)
			require.Equal(t, took, waits[0].Took)
			require.Zero(t, waits[0].Fence)
		}
		_, err := one.Mutex("").Acquire(t.Context())
		require.ErrorIs(t, err, dmutex.ErrMisuse)
		waits, _ := d.take()
		require.Empty(t, waits)

		other := g.acquire(2, "x")
		_, err = g.mutex(1, "x").TryAcquire(t.Context())
		require.ErrorIs(t, err, node.ErrBusy)
		wait(5*time.Millisecond, node.ErrBusy, "busy") // until the acknowledgment came
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = g.mutex(1, "x").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		wait(time.Second, context.DeadlineExceeded, "deadline")
		_, err = g.mutex(1, "x").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		wait(0, context.DeadlineExceeded, "deadline")
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = g.mutex(1, "x").Acquire(canceled)
		require.ErrorIs(t, err, context.Canceled)
		wait(0, context.Canceled, "canceled")
		require.NoError(t, other.Release())

		h := g.acquire(1, "y")
		require.NoError(t, h.Release())
		require.NoError(t, h.Release()) // no hold ends twice
		waits, holds := d.take()
		require.Equal(t, "granted", waits[0].Outcome)
		require.Len(t, holds, 1)
		require.NoError(t, holds[0].Err)
		require.Equal(t, "released", holds[0].Outcome)

		lost := g.acquire(1, "z")
		waiting := g.acquireLater(t.Context(), 1, "z")
		d.take()
		time.Sleep(time.Second)
		g.close(1)
		require.ErrorIs(t, (<-waiting).err, node.ErrClosed)
		require.ErrorIs(t, lost.Release(), node.ErrLost)
		waits, holds = d.take()
		require.Len(t, waits, 1)
		require.ErrorIs(t, waits[0].Err, node.ErrClosed)
		require.Equal(t, "failed", waits[0].Outcome)
		require.Len(t, holds, 1)
		require.ErrorIs(t, holds[0].Err, node.ErrLost)
		require.Equal(t, "lost", holds[0].Outcome)
		require.ErrorIs(t, holds[0].Err, node.ErrClosed)
		require.Equal(t, lost.Fence(), holds[0].Fence)
		require.Equal(t, time.Second, holds[0].Took)
	})
}

// The wait of the victim of a deadlock has the outcome "deadlock".
func TestObservedDeadlock(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		var d diary
		g.deadlock = time.Second
		g.watch(1, d.observer())
		g.breaks(g.cycle(1, 1))
		waits, _ := d.take()
		var words []string
		for _, w := range waits {
			words = append(words, w.Outcome)
		}
		require.Equal(t, []string{"granted", "granted", "deadlock", "granted"}, words)
	})
}

// An observer may use the node, and wait for its locks: it is called under no mutex of the node.
func TestObserverUsesTheNode(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		var calls atomic.Int32
		var use func(lock string)
		g.watch(3, &node.Observer{
			Wait: func(w node.Event) { use(w.Lock) },
			Hold: func(h node.Event) { use(h.Lock) },
		})
		use = func(lock string) {
			if lock != "x" {
				return // a call for a lock of the observer itself
			}
			calls.Add(1)
			n := g.node(1)
			n.Status()
			for name := range n.Locks() {
				n.Mutex(name).Status()
			}
			if n.Status().Err == nil {
				require.NoError(t, g.acquire(1, "y").Release())
			} else {
				require.NoError(t, n.Close(t.Context()), "within Close")
			}
			n.Mutex("z").Status()
		}
		h := g.acquire(1, "x")
		later := g.acquireLater(t.Context(), 1, "x")
		require.NoError(t, h.Release())
		lost := (<-later).held
		g.close(1)
		require.ErrorIs(t, lost.Err(), node.ErrClosed)
		require.EqualValues(t, 4, calls.Load())
	})
}

// A panic of the observer reaches the caller, and the lock is released.
func TestObserverPanics(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		wild := true
		g.watch(2, &node.Observer{Wait: func(node.Event) {
			if wild {
				panic("wild")
			}
		}})
		require.PanicsWithValue(t, "wild", func() { _, _ = g.mutex(1, "x").Acquire(t.Context()) })
		require.NoError(t, g.acquire(2, "x").Release())
		wild = false
		require.NoError(t, g.acquire(1, "x").Release())
	})
}

// If the observer panics in a call of a transaction, the locks are released, and the transaction
// can be used again.
func TestObserverPanicsInTxn(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		wild := ""
		g.watch(2, &node.Observer{
			Wait: func(w node.Event) {
				if wild == "wait for "+w.Lock {
					panic(wild)
				}
			},
			Hold: func(h node.Event) {
				if wild == "hold of "+h.Lock {
					panic(wild)
				}
			},
		})
		free := func(names ...string) {
			t.Helper()
			for _, name := range names {
				h, err := g.mutex(2, name).TryAcquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, h.Release())
			}
		}

		wild = "wait for b"
		require.PanicsWithValue(t, wild, func() { _, _ = g.node(1).AcquireAll(t.Context(), "a", "b") })
		free("a", "b")

		txn := g.node(1).Txn()
		require.PanicsWithValue(t, wild, func() { _, _ = txn.Acquire(t.Context(), "b") })
		for _, name := range []string{"a", "c", "d"} {
			_, err := txn.Acquire(t.Context(), name)
			require.NoError(t, err)
		}
		wild = "hold of c"
		require.PanicsWithValue(t, wild, func() { _ = txn.Release() })
		free("a", "c", "d")
	})
}

// If the observer panics in Close, the node has closed all the same.
func TestObserverPanicsInClose(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.watch(2, &node.Observer{Hold: func(node.Event) { panic("wild") }})
		h := g.acquire(1, "x")
		later := g.acquireLater(t.Context(), 2, "x")
		require.PanicsWithValue(t, "wild", func() { _ = g.node(1).Close(t.Context()) })
		require.ErrorIs(t, h.Err(), node.ErrLost)
		require.NoError(t, g.node(1).Close(t.Context()))
		require.NoError(t, granted(t, later).Release())
		time.Sleep(time.Second) // the record tells the view later than a message the release
		require.Equal(t, []dmutex.NodeID{2}, g.node(2).Status().View.Members)
	}) // and no goroutine is left
}

// An Observer may have one function without the other.
func TestHalfAnObserver(t *testing.T) {
	for _, o := range []*node.Observer{{}, {Wait: func(node.Event) {}}, {Hold: func(node.Event) {}}} {
		bubble(t, both, central.New, memlink.Config{}, func(t *testing.T, g *group) {
			g.watch(2, o)
			for _, id := range g.members {
				h, later := g.acquire(id, "x"), g.acquireLater(t.Context(), 1, "x")
				require.NoError(t, h.Release())
				require.NoError(t, (<-later).held.Release())
			}
			g.acquire(1, "x")
		})
	}
}

// Each grant is told as one Wait and then one Hold, with the same fence.
func TestObserverIsToldOfEachOnce(t *testing.T) {
	const seed = 7
	each(t, both, func(t *testing.T, g *group) {
		var mu sync.Mutex
		granted, over := make(map[string]bool), 0
		var failed, returned int
		g.watch(3, &node.Observer{
			Wait: func(w node.Event) {
				mu.Lock()
				defer mu.Unlock()
				if w.Err != nil {
					failed++
					return
				}
				key := fmt.Sprint(w.Lock, w.Fence)
				require.False(t, granted[key], key)
				granted[key] = true
			},
			Hold: func(h node.Event) {
				mu.Lock()
				defer mu.Unlock()
				require.True(t, granted[fmt.Sprint(h.Lock, h.Fence)], "a Hold before its Wait")
				over++
			},
		})
		var all sync.WaitGroup
		for worker := range 8 {
			rng := rand.New(rand.NewPCG(seed, uint64(worker)))
			all.Go(func() {
				id := dmutex.NodeID(1 + worker/6) // most at the node that is observed
				for range 50 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rng.IntN(3000))*time.Millisecond)
					h, err := g.mutex(id, fmt.Sprint(rng.IntN(2))).Acquire(ctx)
					if err == nil {
						time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
						err = h.Release()
					} else if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("seed %d: %v", seed, err)
					}
					cancel()
					if id == 1 && err != nil {
						mu.Lock()
						returned++
						mu.Unlock()
					}
				}
			})
		}
		all.Wait()
		require.Equal(t, len(granted), over, "seed %d", seed)
		require.Equal(t, returned, failed, "seed %d", seed)
		require.Positive(t, failed)
		// A grant that arrives as its wait ends is given back, and told as a failed wait.
		require.LessOrEqual(t, uint64(len(granted)), g.node(1).Status().Granted, "seed %d", seed)
	})
}
