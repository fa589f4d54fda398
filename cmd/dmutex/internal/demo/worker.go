package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/filestore"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport"
)

// A worker is a process of a group, seen from inside: the part that every trade has. It
// follows its orders, in the protocol of [order] and [report], and runs a node.
type worker struct {
	orders chan order
	task   *task
	node   *node.Node // nil without a lock

	mu  sync.Mutex
	out *json.Encoder
}

func (w *worker) report(r report) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Encode(r)
}

// errDismissed ends a trade that goes on until the order to leave.
var errDismissed = errors.New("the order is to leave")

// employ works until it is told to leave, or until the demo is gone. What it does
// between the words begin and done depends on the trade.
func employ(con *tool.Console, trade func(context.Context, *worker) error) error {
	signal.Ignore(os.Interrupt) // Ctrl-C is for the demo, which ends its processes
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	w := &worker{orders: make(chan order), out: json.NewEncoder(con.Out)}
	go w.listen(ctx, con.In, cancel)
	if err := w.work(ctx, trade); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

var errOrphaned = errors.New("the demo is gone")

// listen passes on the orders. When there can be no more, the worker ends.
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

func (w *worker) next(ctx context.Context) (order, error) {
	select {
	case o := <-w.orders:
		return o, nil
	case <-ctx.Done():
		return order{}, context.Cause(ctx)
	}
}

func (w *worker) expect(ctx context.Context, word string) (order, error) {
	o, err := w.next(ctx)
	if err == nil && o.Word != word {
		err = fmt.Errorf("the order is %q, not %q", o.Word, word)
	}
	return o, err
}

// work runs the worker from its first order to its last.
func (w *worker) work(ctx context.Context, trade func(context.Context, *worker) error) error {
	first, err := w.expect(ctx, wordTask)
	if err != nil {
		return err
	}
	w.task = first.Task
	alg, ok := tool.Find(w.task.Algorithm, tool.NoLock, tool.Broken)
	if !ok {
		return fmt.Errorf("there is no algorithm %q", w.task.Algorithm)
	}
	var link transport.DynamicLink // none without a lock
	if alg.New != nil {
		var stop func()
		if link, stop, err = connect(w.task); err != nil {
			return err
		}
		defer stop()
	}
	if err := w.report(report{Word: wordAddress, Address: address(link)}); err != nil {
		return err
	}
	opened, err := w.expect(ctx, wordOpen)
	if err != nil {
		return err
	}
	if link == nil {
		return w.attend(ctx, trade)
	}
	if err := meet(link, w.task, opened.Peers); err != nil {
		return err
	}
	closeNode, err := w.open(ctx, alg, link)
	if err != nil {
		return err
	}
	return errors.Join(w.attend(ctx, trade), closeNode(ctx))
}

// open opens the node, and returns how to close it.
func (w *worker) open(ctx context.Context, alg tool.Algorithm, link transport.DynamicLink) (func(context.Context) error, error) {
	config := node.Config{
		Algorithm: alg.New,
		Lease:     w.task.Lease,
		Group:     "dmutex demo",
		Deadlock:  w.task.Detect,
	}
	if w.task.Views {
		config.Observer = &node.Observer{View: func(v node.ViewStatus) {
			_ = w.report(report{Word: wordView, View: &view{v.Epoch, v.Took}}) // if the demo is gone, so is this process
		}}
	}
	var file io.Closer = io.NopCloser(nil)
	if w.task.Trace != "" {
		f, err := tool.CreateTrace(w.task.Trace, w.task.Self)
		if err != nil {
			return nil, err
		}
		file, config.Trace = f, trace.NewRecorder(f)
	}
	if err := w.join(ctx, link, config); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func(ctx context.Context) error { return errors.Join(w.node.Close(ctx), file.Close()) }, nil
}

func (w *worker) join(ctx context.Context, link transport.DynamicLink, config node.Config) (err error) {
	if w.task.Lease == 0 {
		w.node, err = node.OpenStrict(ctx, w.task.Self, dmutextest.Nodes(w.task.Nodes), link, config)
		return err
	}
	record, err := filestore.Open(filepath.Join(w.task.Dir, "members"))
	if err != nil {
		return err
	}
	if w.task.Remote {
		record = struct{ store.Store }{record}
	}
	w.node, err = node.Open(ctx, record, link, config)
	return err
}

// attend does the work, and then answers until all others have done theirs.
func (w *worker) attend(ctx context.Context, trade func(context.Context, *worker) error) error {
	if w.node != nil {
		if err := w.node.Ready(ctx); err != nil {
			return err
		}
	}
	if err := w.report(report{Word: wordReady}); err != nil {
		return err
	}
	if _, err := w.expect(ctx, wordBegin); err != nil {
		return err
	}
	switch err := trade(ctx, w); {
	case errors.Is(err, errDismissed):
		return nil
	case err != nil:
		return err
	}
	for {
		o, err := w.next(ctx)
		if err != nil || o.Word == wordLeave {
			return err
		}
		if err := w.report(report{Word: wordCounts, Counts: w.counts()}); err != nil {
			return err
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
