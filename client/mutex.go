package client

import (
	"context"
	"fmt"
	"time"

	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/transport"
)

// acquire takes the lock of that name.
func (c *Client) acquire(ctx context.Context, name string, try bool) (lock.Held, error) {
	if len(name) == 0 || len(name) > transport.MaxName {
		return nil, fmt.Errorf("a name has 1 to %d bytes, not %d", transport.MaxName, len(name))
	}
	h := &held{c: c, ctx: ctx, ready: make(chan struct{})}
	c.input(func(int64) {
		h.number = c.m.Ask(name, try)
		c.calls[h.number] = h
	})
	if h.number == 0 {
		return nil, ErrClosed
	}
	select {
	case <-h.ready:
		if h.err != nil {
			return nil, h.err
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
	return nil, c.because(err)
}

// courtesy bounds how long a call whose context has ended waits for the name of the holder.
const courtesy = 200 * time.Millisecond

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
