// Package certlock lets one process of several obtain and renew a certificate of certmagic, and of Caddy.
//
//	cfg.Storage = certlock.New(cfg.Storage, locks)
//
// A lock leaves nothing behind that could be stale: that of a process which died is free after its
// lease, and one that is held is never taken for stale, however long the authority takes. A process
// that waits polls nothing. Before each attempt of certmagic, a lock that was lost is taken again. If it
// is lost during an attempt, two processes may each obtain a certificate, and the one that is stored
// last stays. A storage gets no fence, because certmagic does not say for which lock it stores.
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

// Storage wraps a certmagic.Storage and replaces its locks. It is a [certmagic.Locker], a [certmagic.TryLocker] and a
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

// RenewLockLease implements [certmagic.LockLeaseRenewer]. The lock is renewed all the time, but may have
// been lost: certmagic would then try in vain for 30 days, so RenewLockLease waits for it again.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	s.mu.Lock()
	h := s.held[name]
	s.mu.Unlock()
	switch {
	case h == nil:
		return fmt.Errorf("%s: %w", name, lock.ErrReleased)
	case h.Err() == nil:
		return nil
	}
	_ = h.Release() // others may wait for it
	return s.Lock(ctx, name)
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
