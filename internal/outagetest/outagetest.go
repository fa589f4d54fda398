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
	good store.Store

	mu     sync.Mutex
	faults Faults
	luck   *rand.Rand
	outage bool
}

// ErrLost is the error of a call to a [Store] whose outcome is unknown.
var ErrLost = errors.New("outagetest: the answer is lost")

// Outage begins or ends an outage. A call that begins in an outage does not reach the store,
// and returns when its context ends, as over a network that drops everything.
func (f *Store) Outage(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outage = on
}

// Load implements [store.Store].
func (f *Store) Load(ctx context.Context) (value []byte, rev store.Revision, err error) {
	err = f.call(ctx, func() error {
		value, rev, err = f.good.Load(ctx)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return value, rev, nil
}

// Swap implements [store.Store].
func (f *Store) Swap(ctx context.Context, value []byte, rev store.Revision) (next store.Revision, err error) {
	err = f.call(ctx, func() error {
		next, err = f.good.Swap(ctx, value, rev)
		return err
	})
	if err != nil {
		return "", err
	}
	return next, nil
}

func (f *Store) call(ctx context.Context, good func() error) error {
	f.mu.Lock()
	lost, unanswered := f.luck.Float64() < f.faults.Lost, f.luck.Float64() < f.faults.Unanswered
	outage := f.outage
	f.mu.Unlock()
	if outage {
		<-ctx.Done()
		return ctx.Err()
	}
	if lost {
		return ErrLost
	}
	err := good()
	if unanswered {
		return ErrLost
	}
	return err
}

// A Link loses all that it would send or deliver while Cut is true.
type Link struct {
	transport.DynamicLink
	Cut *atomic.Bool
}

// Open implements [transport.Link].
func (l Link) Open(deliver func(from dmutex.NodeID, frame []byte)) error {
	return l.DynamicLink.Open(func(from dmutex.NodeID, frame []byte) {
		if !l.Cut.Load() {
			deliver(from, frame)
		}
	})
}

// Send implements [transport.Link].
func (l Link) Send(to dmutex.NodeID, frame []byte) error {
	if l.Cut.Load() {
		return nil
	}
	return l.DynamicLink.Send(to, frame)
}
