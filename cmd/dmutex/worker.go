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

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/trace"
)

// A worker is the part of a process of a demo that is the same in every trade:
// it follows its orders and takes part in the group. It speaks the protocol of
// [order] and [report].
type worker struct {
	orders chan order
	out    *json.Encoder
	task   *task
	node   *node.Node // nil without a lock
}

// employ works until it is told to leave, or until the demo is gone. The day's
// work, between begin and done, is the trade's.
func employ(con *console, day func(context.Context, *worker) error) error {
	signal.Ignore(os.Interrupt) // Ctrl-C is the demo's; we end with it
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	w := &worker{orders: make(chan order), out: json.NewEncoder(con.out)}
	go w.listen(ctx, con.in, cancel)
	if err := w.work(ctx, day); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

var errOrphaned = errors.New("the demo is gone")

// listen passes on the orders. Their end is the worker's end.
func (w *worker) listen(ctx context.Context, in io.Reader, cancel context.CancelCauseFunc) {
	for dec := json.NewDecoder(in); ; {
		var o order
		if err := dec.Decode(&o); err != nil {
			cancel(errOrphaned)
			return
		}
		select {
		case w.orders <- o:
		case <-ctx.Done():
			return
		}
	}
}

// expect waits for an order.
func (w *worker) expect(ctx context.Context, word string) (order, error) {
	select {
	case o := <-w.orders:
		if o.Word != word {
			return o, fmt.Errorf("the order is %q, not %q", o.Word, word)
		}
		return o, nil
	case <-ctx.Done():
		return order{}, context.Cause(ctx)
	}
}

// work is the worker's life, from the first day to the farewell.
func (w *worker) work(ctx context.Context, day func(context.Context, *worker) error) error {
	hired, err := w.expect(ctx, wordHire)
	if err != nil {
		return err
	}
	w.task = hired.Task
	alg, ok := findAlgorithm(w.task.Algorithm)
	if !ok {
		return fmt.Errorf("there is no algorithm %q", w.task.Algorithm)
	}
	var conn connection
	defer func() { conn.close() }()
	if alg.make != nil {
		if conn, err = connect(w.task); err != nil {
			return err
		}
	}
	if err := w.out.Encode(report{Word: wordAddress, Address: conn.address()}); err != nil {
		return err
	}
	opened, err := w.expect(ctx, wordOpen)
	if err != nil {
		return err
	}
	if err := conn.meet(w.task.Self, opened.Peers); err != nil {
		return err
	}
	var recorder *trace.Recorder
	if w.task.Trace != "" && alg.make != nil {
		file, err := os.Create(traceFile(w.task.Trace, w.task.Self))
		if err != nil {
			return err
		}
		defer file.Close()
		recorder = trace.NewRecorder(file)
	}
	if alg.make != nil {
		w.node, err = node.Open(ctx, node.Config{
			Self:      w.task.Self,
			Members:   members(w.task.Nodes),
			Algorithm: alg.make,
			Link:      conn.link,
			Group:     "dmutex demo",
			Trace:     recorder,
			Deadlock:  w.task.Detect,
		})
		if err != nil {
			return err
		}
	}
	return errors.Join(w.attend(ctx, day), w.leave(ctx))
}

// leave closes the node and with it the link.
func (w *worker) leave(ctx context.Context) error {
	if w.node == nil {
		return nil
	}
	return w.node.Close(ctx)
}

func members(n int) []dmutex.NodeID {
	ids := make([]dmutex.NodeID, n)
	for i := range ids {
		ids[i] = dmutex.NodeID(i + 1)
	}
	return ids
}

// attend does the day's work, and answers the others until they have done
// theirs.
func (w *worker) attend(ctx context.Context, day func(context.Context, *worker) error) error {
	if w.node != nil {
		if err := w.node.Ready(ctx); err != nil {
			return err
		}
	}
	if err := w.out.Encode(report{Word: wordReady}); err != nil {
		return err
	}
	if _, err := w.expect(ctx, wordBegin); err != nil {
		return err
	}
	if err := day(ctx, w); err != nil {
		return err
	}
	for {
		select {
		case o := <-w.orders:
			if o.Word == wordLeave {
				return nil
			}
			if err := w.out.Encode(report{Word: wordCounts, Counts: w.counts()}); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *worker) counts() *counts {
	if w.node == nil {
		return &counts{}
	}
	st := w.node.Status()
	c := &counts{Sent: st.Sent, Received: st.Received}
	for _, lock := range w.node.Locks() {
		if lock.Phase != dmutex.Idle || lock.Waiters > 0 {
			c.Busy++
		}
	}
	return c
}
