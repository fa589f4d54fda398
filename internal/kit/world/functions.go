package world

import (
	"context"
	"errors"
	"time"

	"github.com/dmutex/dmutex/internal/kit/storm"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/lock/semaphore"
)

// Callers also run functions: under a lock, under a permit, and as the leader.

var errOfFunction = errors.New("the function has failed")

// A doing is the context of a hold, such as a function has that runs under it.
type doing struct {
	context.Context
	p *process
}

func (d doing) Err() error {
	if away := d.p.drowsy(); away != nil {
		return away
	}
	return d.Context.Err()
}

// within returns a function for Do and Campaign, which fails or panics now and then, and what it returns.
func (c *caller) within(shared bool) (f func(name string, ctx context.Context, fence uint64) error, ran *int, fails error) {
	ran = new(int)
	if c.luck.IntN(4) == 0 {
		fails = errOfFunction
	}
	panics := c.w.panics && c.luck.IntN(6) == 0
	return func(name string, ctx context.Context, fence uint64) error {
		*ran++
		holds := func() {
			select {
			case <-ctx.Done():
			case <-time.After(c.hold()):
			}
		}
		if c.w.stalls > 0 { // who ends the context may, and nothing else tells how long the lock is held
			holds()
		} else {
			c.w.Judge(storm.Stay{Who: c.p.who, Lock: name, Fence: fence, Shared: shared, Hold: doing{ctx, c.p}, Gives: c.p.gives}, holds)
		}
		if panics {
			panic(errOfFunction)
		}
		return fails
	}, ran, fails
}

// guarded makes a call whose function may panic.
func (c *caller) guarded(what string, ctx context.Context, linger time.Duration, ran *int, fails error, call func() error) {
	c.call(what, ctx, linger, false, func() (err error) {
		defer func() {
			switch r := recover(); {
			case r == errOfFunction:
				err = nil
			case r != nil:
				panic(r)
			case *ran > 1, *ran == 0 && err == nil, fails != nil && *ran == 1 && !errors.Is(err, fails):
				c.w.Wrong("%s of %s returns %v, and its function ran %d times, and returned %v", what, c.p.who, err, *ran, fails)
			case *ran == 1:
				if err != nil && fails == nil && !errors.Is(err, lock.ErrLost) {
					c.w.Wrong("%s of %s returns %v after its function has succeeded", what, c.p.who, err)
				}
				err = nil
			}
		}()
		return call()
	})
}

// do runs a function under a lock. It ends with its context, so Do ends with it.
func (c *caller) do(ctx context.Context) {
	m, shared := c.mutex()
	f, ran, fails := c.within(shared)
	linger := c.p.linger()
	if c.p.node == nil && c.p.client == nil {
		linger *= 2 // it may also release
	}
	c.guarded("Do", ctx, linger, ran, fails, func() error { return m.Do(ctx, as(m.Name(), f)) })
}

// campaign leads an election.
func (c *caller) campaign(ctx context.Context) {
	e := c.p.node.Election("x")
	f, ran, fails := c.within(false)
	if c.luck.IntN(8) == 0 {
		e.Resign()
	}
	c.guarded("Campaign", ctx, 0, ran, fails, func() error { return e.Campaign(ctx, as("election/x", f)) })
}

// as returns a function that is run under the lock of that name.
func as(name string, f func(string, context.Context, uint64) error) func(context.Context, uint64) error {
	return func(ctx context.Context, fence uint64) error { return f(name, ctx, fence) }
}

// permitted runs a function under a permit.
func (c *caller) permitted(ctx context.Context, s *semaphore.Semaphore, name string) {
	f, ran, fails := c.within(false)
	c.guarded("Do of a semaphore", ctx, 4*c.p.linger(), ran, fails, func() error {
		return s.Do(ctx, func(ctx context.Context, number int, fence uint64) error { return f(permit(name, number), ctx, fence) })
	})
}
