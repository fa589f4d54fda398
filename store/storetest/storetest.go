// Package storetest tests that a store keeps the contract of [store.Store]. [Run] is for
// every store, including your own, and [RunServer] for those that keep their records on a server.
package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/store"
)

// Run tests a kind of store. open opens the record of a group as another process would,
// with a client of its own if the store has clients, and cleans up with t.Cleanup. The
// records must not exist at first. Group names are lower-case letters, and each test uses
// different ones.
//
// Run cannot test that a store is durable, nor that it does not answer from a replica or
// a deposed leader.
func Run(t *testing.T, open func(t *testing.T, group string) store.Store) {
	for i, test := range []struct {
		name string
		run  func(*bench)
	}{
		{"what was swapped is loaded at once", (*bench).fresh},
		{"values of every size", (*bench).sizes},
		{"the caller keeps its slices", (*bench).slices},
		{"a late Swap is a conflict", (*bench).conflict},
		{"one of several Swaps at once succeeds", (*bench).race},
		{"Load is linearizable", (*bench).linearizable},
		{"the value outlives its clients", (*bench).reopen},
		{"groups are separate", (*bench).groups},
		{"a context that ends", (*bench).canceled},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			test.run(&bench{t, ctx, open, "group" + string(rune('a'+i))})
		})
	}
}

// Unusable tests that a store which only an operator can mend says so at once. The test has
// broken the store, for example by taking away a permission. rev is a revision of this store.
func Unusable(t *testing.T, s store.Store, rev store.Revision) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, _, loading := s.Load(ctx)
	_, swapping := s.Swap(ctx, []byte("value"), rev)
	for _, err := range []error{loading, swapping} {
		require.ErrorIs(t, err, store.ErrUnusable)
		require.NotErrorIs(t, err, store.ErrConflict)
		require.NoError(t, ctx.Err(), "the store did not say so at once")
		require.NotContains(t, err.Error(), "\n", "the text has several lines")
	}
}

// patience is long, because only a failing test waits for so long.
const patience = 30 * time.Second

// A bench is one test of one group.
type bench struct {
	*testing.T
	ctx   context.Context
	open  func(t *testing.T, group string) store.Store
	group string
}

// A client is one process of the group.
type client struct {
	store.Store
	b *bench
}

func (b *bench) client() client { return client{b.open(b.T, b.group), b} }

func (b *bench) clients(n int) []client {
	all := make([]client, n)
	for i := range all {
		all[i] = b.client()
	}
	return all
}

func (c client) load() ([]byte, store.Revision) {
	c.b.Helper()
	value, rev, err := c.Load(c.b.ctx)
	require.NoError(c.b, err)
	return value, rev
}

// swap swaps in a record that no other client changes.
func (c client) swap(value []byte, rev store.Revision) store.Revision {
	c.b.Helper()
	next, err := c.Swap(c.b.ctx, value, rev)
	require.NoError(c.b, err)
	require.NotEqual(c.b, rev, next, "the revision has not moved")
	return next
}

// holds requires that the record is as it was swapped.
func (c client) holds(value []byte, rev store.Revision) {
	c.b.Helper()
	v, r := c.load()
	require.Equal(c.b, value, v)
	require.Equal(c.b, rev, r)
}

func (b *bench) sizes() {
	c, other := b.client(), b.client()
	random := rand.New(rand.NewPCG(1, 0))
	_, rev := c.load()
	for _, size := range []int{1, store.MaxValue, 2, 255, 256, store.MaxValue, 1} {
		value := make([]byte, size)
		for i := range value {
			value[i] = byte(random.Uint32())
		}
		rev = c.swap(value, rev)
		other.holds(value, rev)
	}
	for _, value := range []string{"\x00", "\n", "\x00\n\xff", "'\"\\%s?$1", " x ", "\xef\xbb\xbf"} {
		rev = c.swap([]byte(value), rev)
		other.holds([]byte(value), rev)
	}
}

func (b *bench) slices() {
	c := b.client()
	_, rev := c.load()
	value := []byte("value")
	rev = c.swap(value, rev)
	value[0] = 'X'
	loaded, _ := c.load()
	require.Equal(b, "value", string(loaded), "the store keeps the slice that was swapped")
	loaded[0] = 'X'
	loaded, _ = c.load()
	require.Equal(b, "value", string(loaded), "the store keeps the slice that was loaded")
	c.holds([]byte("value"), rev)
}

func (b *bench) conflict() {
	c, late := b.client(), b.client()
	_, none := late.load()
	old := c.swap([]byte("a"), none)
	_, err := late.Swap(b.ctx, []byte("late"), none)
	require.ErrorIs(b, err, store.ErrConflict, "the record was created twice")
	older := c.swap([]byte("b"), old)
	last := c.swap([]byte("a"), older)
	for _, rev := range []store.Revision{none, old, older} {
		for _, value := range []string{"late", "a"} {
			_, err := late.Swap(b.ctx, []byte(value), rev)
			require.ErrorIs(b, err, store.ErrConflict, "revision %q is not the last", rev)
			late.holds([]byte("a"), last)
		}
	}
	late.swap([]byte("c"), last)
}

// race lets all clients swap at once, from one revision.
func (b *bench) race() {
	const n = 6
	clients := b.clients(n)
	_, rev := clients[0].load()
	for round := 0; round < 20; {
		var swapping sync.WaitGroup
		var revs [n]store.Revision
		var errs [n]error
		value := func(i int) []byte { return fmt.Appendf(nil, "by client %d in round %d", i, round) }
		for i, c := range clients {
			swapping.Go(func() { revs[i], errs[i] = c.Swap(b.ctx, value(i), rev) })
		}
		swapping.Wait()
		winner := -1
		for i, err := range errs {
			if err != nil {
				require.ErrorIs(b, err, store.ErrConflict)
				continue
			}
			require.Negative(b, winner, "Swaps from one revision have succeeded")
			winner = i
		}
		if winner >= 0 { // it may be that none succeeds
			rev = revs[winner]
			clients[round%n].holds(value(winner), rev)
			round++
		}
	}
}

// After each Swap of a client, all clients load its value at once, with a new revision.
func (b *bench) fresh() {
	clients := b.clients(3)
	_, rev := clients[0].load()
	value, again := clients[1].load()
	require.Empty(b, value)
	require.Equal(b, rev, again)
	seen := map[store.Revision]bool{rev: true}
	for i := range 60 {
		value := []byte{"aab"[i%3]} // also twice the same
		rev = clients[i%3].swap(value, rev)
		for k := range 3 {
			clients[(i+k)%3].holds(value, rev)
		}
		require.False(b, seen[rev], "revision %q comes a second time", rev)
		seen[rev] = true
	}
}

func number(value []byte) uint64 {
	if len(value) == 0 {
		return 0
	}
	return binary.BigEndian.Uint64(value)
}

func numeral(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// All clients load a number and add 1. Each load returns at least the number that any client
// knew when the load began.
func (b *bench) linearizable() {
	var mu sync.Mutex
	var known uint64
	learn := func(n uint64) uint64 {
		mu.Lock()
		defer mu.Unlock()
		known = max(known, n)
		return known
	}
	var working sync.WaitGroup
	for _, c := range b.clients(3) {
		working.Go(func() {
			for range 60 {
				before := learn(0)
				value, rev, err := c.Load(b.ctx)
				n := number(value)
				if err == nil && n < before {
					err = fmt.Errorf("this load is stale: %d, but %d was known", n, before)
				}
				if err == nil {
					learn(n)
					runtime.Gosched() // lets others come between
					_, err = c.Swap(b.ctx, numeral(n+1), rev)
				}
				if err == nil {
					learn(n + 1)
				} else if !errors.Is(err, store.ErrConflict) {
					b.Error(err)
					return
				}
			}
		})
	}
	working.Wait()
}

func (b *bench) reopen() {
	var rev store.Revision
	b.Run("first", func(t *testing.T) { // whose cleanup closes the client
		first := bench{t, b.ctx, b.open, b.group}
		c := first.client()
		_, none := c.load()
		rev = c.swap([]byte("value"), none)
	})
	c := b.client()
	c.holds([]byte("value"), rev)
	c.swap([]byte("next"), rev)
}

func (b *bench) groups() {
	c, other := b.client(), client{b.open(b.T, b.group+"other"), b}
	_, rev := c.load()
	for range 3 {
		rev = c.swap([]byte("a"), rev)
	}
	value, none := other.load()
	require.Empty(b, value, "the groups have one record")
	_, err := other.Swap(b.ctx, []byte("b"), rev) // as if it had been deleted
	require.ErrorIs(b, err, store.ErrConflict)
	there := other.swap([]byte("b"), none)
	c.holds([]byte("a"), rev)
	rev = c.swap([]byte("c"), rev)
	other.holds([]byte("b"), there)
	c.holds([]byte("c"), rev)
}

// The context has ended, or ends while Swap works. Nothing waits, and nothing is half written.
func (b *bench) canceled() {
	c := b.client()
	_, rev := c.load()
	value := []byte("old")
	rev = c.swap(value, rev)
	for i := range uint64(50) {
		ctx, cancel := context.WithTimeout(b.ctx, time.Duration(i)*100*time.Microsecond)
		value, rev = b.uncertain(c, ctx, value, numeral(i), rev)
		if v, r, err := c.Load(ctx); err == nil {
			require.Equal(b, value, v)
			require.Equal(b, rev, r)
		}
		cancel()
	}
}

// uncertain swaps with a context that may end, and returns what the record is after that.
func (b *bench) uncertain(c client, ctx context.Context, old, new []byte, rev store.Revision) ([]byte, store.Revision) {
	b.Helper()
	next, err := c.Swap(ctx, new, rev)
	if err == nil {
		c.holds(new, next)
		return new, next
	}
	require.NotErrorIs(b, err, store.ErrConflict, "the record has not changed")
	return b.settle(c, old, new, rev)
}

// settle returns what the record is after a Swap from rev whose outcome is unknown.
func (b *bench) settle(c client, old, new []byte, rev store.Revision) ([]byte, store.Revision) {
	b.Helper()
	// The new value may still be written. A Swap to the old value settles that: it comes
	// first, or conflicts.
	settled, err := c.Swap(b.ctx, old, rev)
	if err == nil {
		c.holds(old, settled)
		return old, settled
	}
	require.ErrorIs(b, err, store.ErrConflict)
	value, last := c.load()
	require.True(b, bytes.Equal(value, new), "a Swap whose outcome was unknown has left %q", value)
	return value, last
}
