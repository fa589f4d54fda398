package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node"
)

// tellerCmd is one teller of the demo, in a process of its own. It speaks the
// protocol of [order] and [report].
type tellerCmd struct{}

// Run works until it is told to leave, or until the demo is gone.
func (tellerCmd) Run(con *console) error {
	signal.Ignore(os.Interrupt) // Ctrl-C is the demo's; we end with it
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	t := &teller{orders: make(chan order), out: json.NewEncoder(con.out)}
	go t.listen(ctx, con.in, cancel)
	if err := t.work(ctx); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

// A teller follows its orders.
type teller struct {
	orders  chan order
	out     *json.Encoder
	task    *task
	account *account
	node    *node.Node // nil without a lock
}

var errOrphaned = errors.New("the demo is gone")

// listen passes on the orders. Their end is the teller's end.
func (t *teller) listen(ctx context.Context, in io.Reader, cancel context.CancelCauseFunc) {
	for dec := json.NewDecoder(in); ; {
		var o order
		if err := dec.Decode(&o); err != nil {
			cancel(errOrphaned)
			return
		}
		select {
		case t.orders <- o:
		case <-ctx.Done():
			return
		}
	}
}

// expect waits for an order.
func (t *teller) expect(ctx context.Context, word string) (order, error) {
	select {
	case o := <-t.orders:
		if o.Word != word {
			return o, fmt.Errorf("the order is %q, not %q", o.Word, word)
		}
		return o, nil
	case <-ctx.Done():
		return order{}, context.Cause(ctx)
	}
}

// work is the teller's life, from the first day to the farewell.
func (t *teller) work(ctx context.Context) error {
	hired, err := t.expect(ctx, wordHire)
	if err != nil {
		return err
	}
	t.task = hired.Task
	if t.account, err = openAccount(t.task.Dir); err != nil {
		return err
	}
	defer t.account.file.Close()
	alg, ok := findAlgorithm(t.task.Algorithm)
	if !ok {
		return fmt.Errorf("there is no algorithm %q", t.task.Algorithm)
	}
	var conn connection
	defer func() { conn.close() }()
	if alg.make != nil {
		if conn, err = connect(t.task); err != nil {
			return err
		}
	}
	if err := t.out.Encode(report{Word: wordAddress, Address: conn.address()}); err != nil {
		return err
	}
	opened, err := t.expect(ctx, wordOpen)
	if err != nil {
		return err
	}
	if err := conn.meet(t.task.Self, opened.Peers); err != nil {
		return err
	}
	if alg.make != nil {
		t.node, err = node.Open(ctx, node.Config{
			Self:      t.task.Self,
			Members:   members(t.task.Nodes),
			Algorithm: alg.make,
			Link:      conn.link,
			Group:     "dmutex demo",
		})
		if err != nil {
			return err
		}
	}
	return errors.Join(t.attend(ctx), t.leave(ctx))
}

// leave closes the node and with it the link.
func (t *teller) leave(ctx context.Context) error {
	if t.node == nil {
		return nil
	}
	return t.node.Close(ctx)
}

func members(n int) []dmutex.NodeID {
	ids := make([]dmutex.NodeID, n)
	for i := range ids {
		ids[i] = dmutex.NodeID(i + 1)
	}
	return ids
}

// attend makes the deposits, and answers the others until they have made
// theirs.
func (t *teller) attend(ctx context.Context) error {
	if t.node != nil {
		if err := t.node.Ready(ctx); err != nil {
			return err
		}
	}
	if err := t.out.Encode(report{Word: wordReady}); err != nil {
		return err
	}
	if _, err := t.expect(ctx, wordBegin); err != nil {
		return err
	}
	records, err := t.deposits(ctx)
	if err != nil {
		return err
	}
	if err := t.out.Encode(report{Word: wordDone, Records: records}); err != nil {
		return err
	}
	for {
		select {
		case o := <-t.orders:
			if o.Word == wordLeave {
				return nil
			}
			if err := t.out.Encode(report{Word: wordCounts, Counts: t.counts()}); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// deposits makes all deposits and tells of progress ten times a second.
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
			if err := t.out.Encode(report{Word: wordProgress, Made: len(records)}); err != nil {
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
		var held *node.Held
		if held, err = t.node.Mutex("account").Acquire(ctx); err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, held.Release()) }()
		r.Fence = held.Fence()
	}
	r.Granted = now()
	r.Overlap, r.Stale, err = t.account.pay(ctx, r.Fence, t.task.Think)
	r.Left = now()
	return r, err
}

func now() int64 { return time.Now().UnixNano() }

func (t *teller) counts() *counts {
	if t.node == nil {
		return &counts{}
	}
	st := t.node.Status()
	return &counts{Sent: st.Sent, Received: st.Received}
}
