package group

import (
	"context"
	"errors"
	"time"

	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/store"
)

// operate asks the store, and gives the machine the outcome.
func (l *record) operate(op membership.Operation, value []byte, rev store.Revision) {
	value, rev, err := l.ask(op, value, rev)
	g := l.group
	g.do(func(now int64) []membership.Message {
		switch {
		case err == nil && op == membership.Load:
			l.rev, l.err = rev, nil
			return l.Loaded(now, value)
		case err == nil:
			l.rev, l.err = rev, nil
			return l.Swapped(now)
		case op == membership.Swap && errors.Is(err, store.ErrConflict):
			l.err = nil
			return l.Conflict(now)
		default:
			l.err = err
			if errors.Is(err, store.ErrUnusable) && g.shown.Changes == 0 {
				g.stop(err)
			}
			return l.Unknown(now)
		}
	})
	g.Mail.Flush()
}

// ask calls the store, and returns when the time of the operation is over even if the
// store does not. At most one call is left behind: the next operation waits for it.
func (l *record) ask(op membership.Operation, value []byte, rev store.Revision) ([]byte, store.Revision, error) {
	ctx, cancel := context.WithTimeout(l.group.done, time.Duration(l.length/opShare))
	defer cancel()
	select {
	case l.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, "", errStuck
	}
	var err error
	done := make(chan struct{})
	go func() {
		if op == membership.Load {
			value, rev, err = l.group.cfg.Store.Load(ctx)
		} else {
			rev, err = l.group.cfg.Store.Swap(ctx, value, rev)
		}
		<-l.busy
		close(done)
	}()
	select {
	case <-done:
		return value, rev, err
	case <-ctx.Done():
	}
	select {
	case <-done:
		return value, rev, err
	case <-time.After(storePatience):
		return nil, "", errStuck
	}
}

// errStuck is the outcome of an operation from which the store has not returned.
var errStuck = errors.New("the store does not return, although the context of the operation has ended: it breaks the contract of package store")
