package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
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
			return t.untilDismissed(ctx)
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

// deposits makes all deposits and reports progress ten times a second.
func (t *teller) deposits(ctx context.Context) ([]record, error) {
	records := make([]record, 0, t.task.Deposits)
	told := time.Now()
	for range t.task.Deposits {
		r, err := t.deposit(ctx)
		if err != nil {
			return nil, fmt.Errorf("deposit %d: %w", len(records)+1, err)
		}
		records = append(records, r)
		if time.Since(told) >= 100*time.Millisecond {
			told = time.Now()
			if err := t.report(report{Word: wordProgress, Made: len(records)}); err != nil {
				return nil, err
			}
		}
	}
	return records, nil
}

// untilDismissed makes deposits until the order to leave, and reports progress ten
// times a second.
func (t *teller) untilDismissed(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		_, err := t.expect(ctx, wordLeave)
		end(cmp.Or(err, errDismissed))
	}()
	var told time.Time
	for made := 1; ; made++ {
		if _, err := t.deposit(ctx); ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			return fmt.Errorf("deposit %d: %w", made, err)
		}
		if time.Since(told) >= 100*time.Millisecond {
			told = time.Now()
			if err := t.report(report{Word: wordProgress, Made: made}); err != nil {
				return err
			}
		}
	}
}

// deposit makes one, under the lock if there is one.
func (t *teller) deposit(ctx context.Context) (r record, err error) {
	r.Called = now()
	if t.node != nil {
		var held *node.Held
		if held, err = t.node.Mutex("account").Acquire(ctx); err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, held.Release()) }()
		r.Fence = held.Fence()
	}
	r.Granted = now()
	r.Overlap, r.Stale, err = t.account.pay(ctx, t.task.Self, r.Fence, t.task.Think)
	r.Left = now()
	return r, err
}

func now() int64 { return time.Now().UnixNano() }
