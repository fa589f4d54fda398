package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
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
		t := &teller{worker: w, turns: make(map[string]turn)}
		if t.account, err = openAccount(w.task.Dir, w.task.Self); err != nil {
			return err
		}
		defer t.account.file.Close()
		if w.task.Deposits == 0 {
			return t.untilTold(ctx)
		}
		records, err := t.deposits(ctx)
		if err != nil {
			return err
		}
		return w.report(report{Word: wordDone, Records: records})
	})
}

// untilTold makes deposits until the order to leave, or to rest.
func (t *teller) untilTold(ctx context.Context) error {
	work, end := context.WithCancelCause(ctx)
	defer end(nil)
	var told order
	var all sync.WaitGroup
	all.Go(func() {
		var err error
		told, err = t.next(work)
		end(cmp.Or(err, errDismissed))
	})
	if t.task.Lease != 0 {
		for i := range boxes {
			all.Go(func() { t.visit(work, fmt.Sprint("box/", i+1)) })
		}
	}
	_, err := t.deposits(work)
	end(err)
	all.Wait()
	if told.Word != wordRest {
		return err
	}
	if told.Hold {
		if _, err := t.node.Mutex(accountLock).Acquire(ctx); err != nil {
			return err
		}
		if _, _, err := occupy(t.account.marker, t.account.badge); err != nil {
			return err
		}
	}
	time.Sleep(settle)
	if err := t.report(report{Word: wordResting, Self: t.node.Self()}); err != nil {
		return err
	}
	_, err = t.next(ctx) // it is killed
	return err
}

// Besides the lock of the account, tellers with a lease take the locks of boxes again and again,
// each for a moment. Each teller is the home of some.
const (
	accountLock = "account"
	boxes       = 20
	boxEvery    = 20 * time.Millisecond
	settle      = 200 * time.Millisecond // until the last messages of a teller at rest have arrived
)

// visit takes the lock of a box again and again.
func (t *teller) visit(ctx context.Context, box string) {
	for ctx.Err() == nil {
		called := now()
		if held, err := t.node.Mutex(box).Acquire(ctx); err == nil { // else it was lost to the lease, or the work is over
			t.granted(box, called)
			_ = held.Release()
		}
		_ = sleep(ctx, boxEvery)
	}
}

// granted notes that a lock was granted to this teller, which still holds it.
func (t *teller) granted(lock string, called int64) {
	home := t.node.Mutex(lock).Status().Home
	t.taking.Lock()
	defer t.taking.Unlock()
	at := now()
	t.turns[lock] = turn{Granted: at, Wait: max(t.turns[lock].Wait, time.Duration(at-called)), Home: home}
}

// A teller makes deposits.
type teller struct {
	*worker
	account *account

	taking sync.Mutex      // guards turns
	turns  map[string]turn // since the last report
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
		case errors.Is(err, node.ErrLost) && (t.task.Lease != 0 || t.task.Algorithm == tool.Broken.Name):
			continue // the store or this machine was too slow for the lease, or a view keeps one of two holders
		case err != nil:
			return nil, fmt.Errorf("deposit %d: %w", len(records)+1, err)
		}
		records = append(records, r)
		if time.Since(told) >= 100*time.Millisecond {
			told = time.Now()
			t.taking.Lock()
			made := report{Word: wordProgress, Made: len(records), Turns: t.turns}
			t.turns = make(map[string]turn)
			t.taking.Unlock()
			if err := t.report(made); err != nil {
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
		if held, err = t.node.Mutex(accountLock).Acquire(ctx); err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, held.Release()) }()
		if t.task.Lease != 0 {
			t.granted(accountLock, r.Called)
		}
		r.Fence, ctx = held.Fence(), held.Context()
	}
	r.Granted = now()
	err = t.account.pay(ctx, t.task.Self, r.Fence, t.task.Think)
	r.Left = now()
	return r, err
}

func now() int64 { return time.Now().UnixNano() }
