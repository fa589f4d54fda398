package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
)

// tellerCmd is one teller of the demo, in a process of its own.
type tellerCmd struct{}

// Run works until it is told to leave, or until the demo is gone.
func (tellerCmd) Run(con *tool.Console) error {
	return employ(con, func(ctx context.Context, w *worker) (err error) {
		t := &teller{worker: w}
		if t.account, err = openAccount(w.task.Dir, w.task.Self); err != nil {
			return err
		}
		defer t.account.file.Close()
		if w.task.Deposits == 0 {
			var end context.CancelCauseFunc
			ctx, end = context.WithCancelCause(ctx)
			defer end(nil)
			go func() {
				_, err := w.expect(ctx, wordLeave)
				end(cmp.Or(err, errDismissed))
			}()
		}
		records, err := t.deposits(ctx)
		if err != nil {
			return err
		}
		return w.report(report{Word: wordDone, Records: records})
	})
}

// A teller makes deposits.
type teller struct {
	*worker
	account *account
}

// deposits makes the deposits of the task, or as many as it can until ctx ends, and
// reports progress ten times a second.
func (t *teller) deposits(ctx context.Context) (records []record, err error) {
	var told time.Time
	for t.task.Deposits == 0 || len(records) < t.task.Deposits {
		r, err := t.deposit(ctx)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case t.task.Lease != 0 && errors.Is(err, node.ErrLost):
			continue // the store or this machine was too slow for the lease
		case t.task.Algorithm == tool.Broken.Name && errors.Is(err, node.ErrLost):
			continue // a view keeps one of two holders
		case err != nil:
			return nil, fmt.Errorf("deposit %d: %w", len(records)+1, err)
		}
		records = append(records, r)
		if time.Since(told) >= 100*time.Millisecond {
			told = time.Now()
			if err := t.report(report{Word: wordProgress, Made: len(records), Granted: r.Granted}); err != nil {
				return nil, err
			}
		}
	}
	return records, nil
}

// deposit makes one, under the lock if there is one.
func (t *teller) deposit(ctx context.Context) (r record, err error) {
	r.Called = now()
	if t.node != nil {
		var held lock.Held
		if held, err = t.node.Mutex("account").Acquire(ctx); err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, held.Release()) }()
		r.Fence, ctx = held.Fence(), held.Context()
	}
	r.Granted = now()
	err = t.account.pay(ctx, t.task.Self, r.Fence, t.task.Think)
	r.Left = now()
	return r, err
}

func now() int64 { return time.Now().UnixNano() }
