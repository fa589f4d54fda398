package client

import (
	"context"
	"fmt"

	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/transport"
)

// A Mutex is one named lock of the group. It is a [lock.Mutex]. It has no state of its own, and
// excludes goroutines of this process, too. Callers of one client are served in the order of
// their calls.
type Mutex struct {
	c    *Client
	name string
}

var _ lock.Mutex = (*Mutex)(nil)

// Name returns the lock's name.
func (m *Mutex) Name() string { return m.name }

// Acquire waits for the lock and returns the handle that holds it. It goes on while no member can be
// reached. If ctx ends first, the error wraps the cause, and says why no member was
// reached. Other errors: [ErrRefused] and [ErrClosed].
func (m *Mutex) Acquire(ctx context.Context) (lock.Held, error) { return m.acquire(ctx, false) }

// TryAcquire takes the lock if it is free, and otherwise returns [lock.ErrBusy]. It waits for a member
// as Acquire does.
func (m *Mutex) TryAcquire(ctx context.Context) (lock.Held, error) { return m.acquire(ctx, true) }

// Do runs f while it holds the lock, as [lock.Mutex] says.
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context, fence uint64) error) error {
	return hold.Do(ctx, m, f)
}

func (m *Mutex) acquire(ctx context.Context, try bool) (lock.Held, error) {
	c := m.c
	switch {
	case len(m.name) == 0 || len(m.name) > transport.MaxName:
		return nil, fmt.Errorf("client: the name of a lock has 1 to %d bytes, not %d", transport.MaxName, len(m.name))
	case ctx.Err() != nil:
		return nil, m.fail(hold.ContextError(ctx))
	}
	h := &held{c: c, ctx: ctx, ready: make(chan struct{})}
	c.input(func(int64) {
		h.number = c.m.Ask(m.name, try)
		c.calls[h.number] = h
	})
	if h.number == 0 {
		return nil, m.fail(ErrClosed)
	}
	select {
	case <-h.ready:
		if h.err != nil {
			return nil, m.fail(h.err)
		}
		return h, nil
	case <-ctx.Done():
	}
	c.input(func(now int64) {
		c.m.Drop(now, h.number)
		if delete(c.calls, h.number); h.Hold != nil {
			h.End(lock.ErrReleased)
		}
	})
	return nil, m.fail(c.because(hold.ContextError(ctx)))
}

func (m *Mutex) fail(err error) error { return fmt.Errorf("client: lock %q: %w", m.name, err) }

// A held is the handle that Acquire returns, and before that its request.
type held struct {
	*hold.Hold // nil until it is granted
	c          *Client
	number     uint64 // of the request
	ctx        context.Context
	ready      chan struct{} // closed when the Hold or err is set
	err        error
}

// end ends the hold or the request, for these reasons. The caller has the mutex of the client.
func (h *held) end(lost, err error) {
	if delete(h.c.calls, h.number); h.Hold != nil {
		h.End(lost)
		return
	}
	h.err = err
	close(h.ready)
}

// Release gives the lock back. It does not wait until the member knows.
func (h *held) Release() error {
	err := h.Released(lock.ErrReleased)
	h.c.input(func(now int64) {
		delete(h.c.calls, h.number)
		h.c.m.Drop(now, h.number) // nothing, if it was lost or dropped
	})
	return err
}
