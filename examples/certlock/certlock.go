// Package certlock lets one process of several obtain and renew a certificate of certmagic, and of Caddy.
//
//	cfg.Storage = certlock.New(cfg.Storage, locks)
//
// A lock leaves nothing behind that could be stale: that of a process which died is free after its
// lease, and one that is held is never taken for stale, however long the authority takes. A process
// that waits polls nothing. Before each further attempt certmagic learns that the lock was lost.
package certlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/dmutex/dmutex/lock"
)

// A Storage is another one with other locks. It is a [certmagic.Locker], a [certmagic.TryLocker] and a
// [certmagic.LockLeaseRenewer].
type Storage struct {
	certmagic.Storage
	mutex func(name string) lock.Mutex

	mu   sync.Mutex
	held map[string]lock.Held
}

// New returns s with locks such as func(name string) lock.Mutex { return n.Mutex(name) }.
func New(s certmagic.Storage, mutex func(name string) lock.Mutex) *Storage {
	return &Storage{Storage: s, mutex: mutex, held: make(map[string]lock.Held)}
}

// Lock implements [certmagic.Locker].
func (s *Storage) Lock(ctx context.Context, name string) error {
	h, err := s.mutex(name).Acquire(ctx)
	if err == nil {
		s.keep(name, h)
	}
	return err
}

// TryLock implements [certmagic.TryLocker].
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	h, err := s.mutex(name).TryAcquire(ctx)
	switch {
	case errors.Is(err, lock.ErrBusy):
		return false, nil
	case err != nil:
		return false, err
	}
	s.keep(name, h)
	return true, nil
}

// RenewLockLease implements [certmagic.LockLeaseRenewer]: the lock is renewed all the time, or lost.
func (s *Storage) RenewLockLease(_ context.Context, name string, _ time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[name]; h != nil {
		return h.Err()
	}
	return fmt.Errorf("%s: %w", name, lock.ErrReleased)
}

// Unlock implements [certmagic.Locker].
func (s *Storage) Unlock(_ context.Context, name string) error {
	s.mu.Lock()
	h := s.held[name]
	delete(s.held, name)
	s.mu.Unlock()
	if h == nil {
		return fmt.Errorf("%s: %w", name, lock.ErrReleased)
	}
	return h.Release()
}

func (s *Storage) keep(name string, h lock.Held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name] = h
}
