package client

import (
	"context"
	"fmt"
	"time"

	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/transport"
)

// A mutex is one named lock of the group. It has no state of its own.
type mutex struct {
	c    *Client
	name string
}

func (m *mutex) Name() string { return m.name }

func (m *mutex) Acquire(ctx context.Context) (lock.Held, error) { return m.acquire(ctx, false) }

func (m *mutex) TryAcquire(ctx context.Context) (lock.Held, error) { return m.acquire(ctx, true) }

func (m *mutex) Do(ctx context.Context, f func(ctx context.Context, fence uint64) error) error {
	return hold.Do(ctx, m, f)
}

func (m *mutex) acquire(ctx context.Context, try bool) (lock.Held, error) {
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
	waits := false
	c.input(func(now int64) {
		c.m.Drop(now, h.number)
		if waits = h.Hold == nil && c.conn != nil; h.Hold != nil {
			h.End(lock.ErrReleased)
		}
	})
	if waits { // the member answers who holds the lock
		select {
		case <-h.ready:
		case <-c.ctx.Done():
		case <-time.After(courtesy):
		}
	}
	err := hold.ContextError(ctx)
	c.input(func(int64) {
		if delete(c.calls, h.number); h.text != "" {
			err = fmt.Errorf("%s: %w", h.text, err)
		}
	})
	return nil, m.fail(c.because(err))
}

// courtesy bounds how long a call whose context has ended waits for the name of the holder.
const courtesy = 200 * time.Millisecond

func (m *mutex) fail(err error) error { return fmt.Errorf("client: lock %q: %w", m.name, err) }

// A held is the handle that Acquire returns, and before that its request.
type held struct {
	*hold.Hold // nil until it is granted
	c          *Client
	number     uint64 // of the request
	ctx        context.Context
	ready      chan struct{} // closed when the Hold or err is set
	err        error
	text       string // of the member, with err
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
