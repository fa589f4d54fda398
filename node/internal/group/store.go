package group

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/store"
)

// operate asks the store, and gives the machine the outcome.
func (l *record) operate(op membership.Operation, value []byte, rev store.Revision) {
	var life store.Life
	err := l.ask(func(ctx context.Context) (err error) {
		switch op {
		case membership.Load:
			value, rev, err = l.group.cfg.Store.Load(ctx)
		case membership.Swap:
			rev, err = l.group.cfg.Store.Swap(ctx, value, rev)
		default:
			if life, err = l.prover.Live(ctx); err == nil && ctx.Err() != nil { // it may be too late
				_ = life.Close()
				err = ctx.Err()
			}
		}
		return err
	})
	g := l.group
	g.do(func(now int64) []membership.Message {
		l.err = nil
		switch {
		case err == nil && op == membership.Load:
			l.rev = rev
			return l.Loaded(now, value)
		case err == nil && op == membership.Swap:
			l.rev = rev
			return l.Swapped(now)
		case err == nil:
			l.life = life
			return l.Begun(now, life.Name())
		case op == membership.Live && errors.Is(err, store.ErrNoProof):
			g.Log(slog.LevelInfo, "the store cannot prove that a process is dead", slog.Any("err", err))
			return l.Begun(now, "")
		case op == membership.Swap && errors.Is(err, store.ErrConflict):
			return l.Conflict(now)
		}
		if l.err = err; errors.Is(err, store.ErrUnusable) && g.shown.Changes == 0 {
			g.stop(err)
		}
		return l.Unknown(now)
	})
	g.Mail.Flush()
}

// ask calls the store, and returns when the time of the operation is over even if the
// store does not. At most one call is left behind: the next operation waits for it.
func (l *record) ask(call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(l.group.done, time.Duration(l.length/leases.Operation))
	defer cancel()
	select {
	case l.busy <- struct{}{}:
	case <-ctx.Done():
		return errStuck
	}
	return within(ctx, func(ctx context.Context) error {
		defer func() { <-l.busy }()
		return call(ctx)
	})
}

// within returns what the store does, or errStuck if it has not returned a moment after ctx has
// ended.
func within(ctx context.Context, call func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(storePatience):
		return errStuck
	}
}

// errStuck is the outcome of an operation from which the store has not returned.
var errStuck = errors.New("the store does not return, although the context of the operation has ended: it breaks the contract of package store")
