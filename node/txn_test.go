package node_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

func TestTxn(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(2)
		txn := g.node(1).Txn()
		require.NoError(t, txn.Release(), "it holds nothing")
		for _, name := range []string{"b", "a", "c"} {
			h, err := txn.Acquire(t.Context(), name)
			require.NoError(t, err)
			require.Same(t, h, txn.Held(name))
		}
		require.Nil(t, txn.Held("d"))

		_, err := txn.Acquire(t.Context(), "a")
		require.ErrorIs(t, err, dmutex.ErrMisuse)
		require.ErrorContains(t, err, `this Txn holds lock "a"`)
		_, err = txn.Acquire(t.Context(), "")
		require.ErrorIs(t, err, dmutex.ErrMisuse)

		require.NoError(t, txn.Held("a").Release(), "one by itself")
		require.Nil(t, txn.Held("a"))
		again, err := txn.Acquire(t.Context(), "a")
		require.NoError(t, err)
		require.EqualValues(t, 2, counter(again.Fence()))

		b, c := txn.Held("b"), txn.Held("c")
		require.NoError(t, txn.Release())
		for _, h := range []lock.Held{again, b, c} {
			require.ErrorIs(t, h.Err(), node.ErrReleased)
		}
		_, err = txn.Acquire(t.Context(), "a")
		require.NoError(t, err, "it may be used again")
		require.NoError(t, g.node(1).Close(t.Context()))
		require.ErrorIs(t, txn.Held("a").Err(), node.ErrLost)
		err = txn.Release()
		require.ErrorIs(t, err, node.ErrLost)
		require.ErrorContains(t, err, `lock "a"`)
	})
}

// A transaction waits for one lock at a time.
func TestTxnWaitsOnce(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(2)
		held := g.acquire(2, "a")
		txn := g.node(1).Txn()
		_, err := txn.Acquire(t.Context(), "b")
		require.NoError(t, err)
		first := make(chan error)
		go func() {
			_, err := txn.Acquire(t.Context(), "a")
			first <- err
		}()
		synctest.Wait()
		_, err = txn.Acquire(t.Context(), "c")
		require.ErrorIs(t, err, dmutex.ErrMisuse)
		require.NoError(t, txn.Release(), "it can release what it holds meanwhile")
		require.NoError(t, g.acquire(2, "b").Release())
		require.NoError(t, held.Release())
		require.NoError(t, <-first)
		require.NotNil(t, txn.Held("a"))
		require.NoError(t, txn.Release())
	})
}

// AcquireAll takes the locks in the order of their names, whatever the order of the arguments, so that callers of it
// never wait in a cycle. If it fails, it holds none.
func TestAcquireAll(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(2)
		for _, names := range [][]string{{"a", "b", "a"}, {"a", ""}, {"a", string(make([]byte, 256))}} {
			_, err := g.node(1).AcquireAll(t.Context(), names...)
			require.ErrorIs(t, err, dmutex.ErrMisuse)
		}
		require.Zero(t, g.node(1).Status().Granted, "a refused call has taken something")

		none, err := g.node(1).AcquireAll(t.Context())
		require.NoError(t, err)
		require.NoError(t, none.Release())

		held := g.acquire(2, "b")
		txn, err := g.node(1).AcquireAll(nodetest.ContextFor(t, time.Second), "c", "b", "a")
		require.Nil(t, txn)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualValues(t, 1, g.node(1).Status().Granted, "a was not the first lock")
		require.NoError(t, g.acquire(2, "a").Release(), "a was not given back")
		require.NoError(t, held.Release())
	})
}

// AcquireAll returns the error that has stopped it, which names the lock.
func TestAcquireAllError(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(2)
		ctx, cancel := context.WithCancel(t.Context())
		b := g.acquire(2, "b")
		ended := make(chan error, 1)
		go func() {
			_, err := g.node(1).AcquireAll(ctx, "a", "b")
			ended <- err
		}()
		synctest.Wait()
		cancel()
		err := <-ended
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, `lock "b"`)
		require.NoError(t, b.Release())
		require.NoError(t, g.acquire(2, "a").Release())
	})
}

// If other transactions take the same locks one by one, an AcquireAll may be part of a cycle, and
// its victim.
func TestAcquireAllAmongOthers(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.deadlock = time.Second
		g.open(2)
		older := g.node(1).Txn()
		acquire := func(name string) {
			_, err := older.Acquire(t.Context(), name)
			require.NoError(t, err)
		}
		acquire("b")
		busy := g.acquire(2, "c")
		time.AfterFunc(time.Millisecond, func() { _ = busy.Release() })
		acquire("c") // the age of older counts from this wait
		ended := make(chan error, 1)
		go func() {
			_, err := g.node(2).AcquireAll(t.Context(), "b", "a")
			ended <- err
		}()
		time.Sleep(time.Millisecond)
		acquire("a")
		require.ErrorIs(t, <-ended, node.ErrDeadlock)
		require.NoError(t, older.Release())
	})
}

// A transaction that has lost a lock does not go on waiting for another.
func TestLeaseTransaction(t *testing.T) {
	for _, deadlock := range []time.Duration{0, time.Second} {
		bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
			g.deadlock = deadlock
			all := slices.Clone(g.open(2))
			b := all[1].acquire("b")
			txn := all[0].Txn()
			_, err := txn.Acquire(t.Context(), "a")
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() {
				_, err := txn.Acquire(t.Context(), "b")
				ended <- err
			}()
			synctest.Wait()
			all[0].isolate(true)
			err = <-ended
			require.ErrorIs(t, err, node.ErrLost)
			require.ErrorIs(t, err, node.ErrLease)
			require.ErrorContains(t, err, `"a"`)
			_, err = txn.Acquire(t.Context(), "c")
			require.ErrorIs(t, err, node.ErrLost)
			require.ErrorIs(t, txn.Release(), node.ErrLost)
			require.NoError(t, b.Err())
			all[0].isolate(false)
		})
	}
}

// If a transaction is released during an Acquire, the Acquire goes on when the lease ends.
func TestLeaseTransactionReleased(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		all := slices.Clone(g.open(2))
		b := all[1].acquire("b")
		txn := all[0].Txn()
		_, err := txn.Acquire(t.Context(), "a")
		require.NoError(t, err)
		out := make(chan outcome, 1)
		go func() {
			h, err := txn.Acquire(t.Context(), "b")
			out <- outcome{h, err}
		}()
		synctest.Wait()
		require.NoError(t, txn.Release())
		all[0].store.Outage(true)
		time.Sleep(leaseOf)
		select {
		case o := <-out:
			require.NoError(t, b.Err())
			t.Errorf("two holders: Acquire returned %v, %v", o.held, o.err)
		default:
		}
		all[0].store.Outage(false)
		require.NoError(t, b.Release())
	})
}

// If a transaction loses a lock before or during an Acquire, the Acquire does not wait for another
// lock.
func TestLeaseTransactionLoses(t *testing.T) {
	for _, during := range []bool{false, true} {
		bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
			all := slices.Clone(g.open(2))
			b := all[1].acquire("b")
			txn := all[0].Txn()
			_, err := txn.Acquire(t.Context(), "a")
			require.NoError(t, err)
			lose := func() {
				all[0].StepWall(int64(2 * leaseOf))
				all[0].Status() // ends what is held
			}
			ctx := nodetest.ContextFor(t, leaseOf/2)
			if during {
				ctx = &askedContext{ctx, sync.OnceFunc(lose)}
			} else {
				lose()
			}
			_, err = txn.Acquire(ctx, "b")
			require.ErrorIs(t, err, node.ErrLease)
			require.NoError(t, b.Release())
		})
	}
}

// askedContext is a context that calls ask at each Err.
type askedContext struct {
	context.Context
	ask func()
}

func (c *askedContext) Err() error {
	c.ask()
	return c.Context.Err()
}
