// Package outagetest is a store with faults, and a link that can be cut, for tests.
package outagetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport"
)

// Faults says how often a call to a [Store] fails. All but the seed are
// probabilities, 0 to 1.
type Faults struct {
	Seed       uint64
	Lost       float64 // the call does not reach the store
	Unanswered float64 // the call reaches the store, but its answer is lost
}

// New adds faults to a store. If the test fails, it logs them.
func New(t testing.TB, good store.Store, faults Faults) *Store {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the store had faults: %+v", faults)
		}
	})
	return &Store{good: good, faults: faults, luck: rand.New(rand.NewPCG(faults.Seed, 0))}
}

// A Store loses calls and answers, and has outages.
type Store struct {
	good   store.Store
	faults Faults
	outage atomic.Bool
	mu     sync.Mutex
	luck   *rand.Rand
}

// ErrLost is the error of a call to a [Store] whose outcome is unknown.
var ErrLost = errors.New("outagetest: the answer is lost")

// Outage begins or ends an outage. A call that begins in an outage does not reach the store,
// and returns when its context ends, as over a network that drops everything.
func (f *Store) Outage(on bool) { f.outage.Store(on) }

// Load implements [store.Store].
func (f *Store) Load(ctx context.Context) ([]byte, store.Revision, error) {
	if err := f.reach(ctx); err != nil {
		return nil, "", err
	}
	value, rev, err := f.good.Load(ctx)
	if f.happens(f.faults.Unanswered) {
		return nil, "", ErrLost
	}
	return value, rev, err
}

// Swap implements [store.Store].
func (f *Store) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	if err := f.reach(ctx); err != nil {
		return "", err
	}
	next, err := f.good.Swap(ctx, value, rev)
	if f.happens(f.faults.Unanswered) {
		return "", ErrLost
	}
	return next, err
}

// reach returns an error if a call does not reach the store.
func (f *Store) reach(ctx context.Context) error {
	switch {
	case f.outage.Load():
		<-ctx.Done()
		return ctx.Err()
	case f.happens(f.faults.Lost):
		return ErrLost
	}
	return nil
}

func (f *Store) happens(probability float64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.luck.Float64() < probability
}

// A Link loses all that it would send or deliver while Cut is true.
type Link struct {
	transport.DynamicLink
	Cut *atomic.Bool
}

// Open implements [transport.Link].
func (l Link) Open(host transport.Host) error {
	deliver := host.Deliver
	host.Deliver = func(from dmutex.NodeID, frames [][]byte) {
		if !l.Cut.Load() {
			deliver(from, frames)
		}
	}
	return l.DynamicLink.Open(host)
}

// Send implements [transport.Link].
func (l Link) Send(to dmutex.NodeID, frame []byte) error {
	if l.Cut.Load() {
		return nil
	}
	return l.DynamicLink.Send(to, frame)
}
