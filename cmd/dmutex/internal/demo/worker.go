package demo

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/filestore"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/tcplink"
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

// report sends a report. It fails only if the demo is gone, and then the orders end, too.
func (w *worker) report(r report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(r)
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
	err := w.work(ctx, trade)
	if err != nil {
		err = cmp.Or(context.Cause(ctx), err)
	}
	return err
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
func (w *worker) work(ctx context.Context, trade func(context.Context, *worker) error) (failed error) {
	first, err := w.expect(ctx, wordTask)
	if err != nil {
		return err
	}
	w.task = first.Task
	alg, _ := catalog.Find(w.task.Algorithm, catalog.NoLock, catalog.Broken) // the demo knows it
	if alg.New == nil {
		w.report(report{Word: wordAddress})
		if _, err := w.expect(ctx, wordOpen); err != nil {
			return err
		}
		return w.attend(ctx, trade)
	}
	link, stop, err := connect(w.task)
	if err != nil {
		return err
	}
	defer stop()
	w.report(report{Word: wordAddress, Address: link.Address()})
	opened, err := w.expect(ctx, wordOpen)
	if err != nil {
		return err
	}
	for id, at := range opened.Peers {
		if id == w.task.Self || at == "" || w.task.Lease != 0 { // the record has the addresses
			continue
		}
		if err := link.SetPeer(id, at); err != nil {
			return err
		}
	}
	config := node.Config{Algorithm: alg.New, Lease: w.task.Lease, Group: "dmutex demo", Deadlock: w.task.Detect}
	if w.task.Views {
		config.Observer = &node.Observer{View: func(v node.ViewStatus) { w.report(report{Word: wordView, View: &view{v.Epoch, v.Took}}) }}
	}
	if w.task.Trace != "" {
		file, err := tool.CreateTrace(w.task.Trace, w.task.Self)
		if err != nil {
			return err
		}
		defer func() { failed = errors.Join(failed, file.Close()) }()
		config.Trace = trace.NewRecorder(file)
	}
	if err := w.join(ctx, link, config); err != nil {
		return err
	}
	return errors.Join(w.attend(ctx, trade), w.node.Close(ctx))
}

// join opens the node.
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
	w.report(report{Word: wordReady})
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
		w.report(report{Word: wordCounts, Counts: w.counts()})
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

// connect makes the link that a task asks for, not yet opened.
func connect(t *task) (link transport.DynamicLink, stop func(), err error) {
	self := t.Self
	if t.Lease != 0 {
		self = dmutex.None
	}
	if t.Link == "nats" {
		return tool.NATS.Connect(t.NatsURL, fmt.Sprintf("dmutex demo, %s %d", t.Trade, t.Self), self, t.Prefix)
	}
	tcp, err := tcplink.New(tcplink.Config{Self: self, Listen: t.Listen})
	return tcp, func() { _ = tcp.Close() }, err // the node may have closed it
}

// natsPrefix draws a subject prefix that no other run on the same server has.
func natsPrefix() string { return "dmutex-demo." + rand.Text() }
