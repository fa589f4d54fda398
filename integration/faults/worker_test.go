//go:build unix

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/natslink"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// A task is what a process gets when it starts: to be a member of a group for each algorithm.
type task struct {
	Number     dmutex.NodeID
	Algorithms []string
	Seed       uint64
	Lease      time.Duration                       // 0 in the strict mode
	Members    []dmutex.NodeID                     // in the strict mode
	Book       map[string]map[dmutex.NodeID]string // by algorithm, over TCP: addresses that lead to processes
	NATS       string                              // address; empty for TCP
	Store      string                              // its kind, with leases
	Where      string                              // it is
	Papers     papers
}

// A report is what a process says: first where it listens, then what it holds, and in the end, which a SIGTERM
// brings about, what it has seen.
type report struct {
	Addresses  map[string]string // by algorithm
	Stay       *stay
	Took       []time.Duration // for how long view changes stopped grants
	Exclusions int
}

const (
	locks    = 2                // of each algorithm
	hands    = 3                // goroutines of each node
	farewell = 90 * time.Second // a process that was excluded often joins again after a minute
)

// A worker is this process: one node for each algorithm, all over one kind of link.
type worker struct {
	task
	stays atomic.Uint64

	mu   sync.Mutex
	say  *json.Encoder
	took []time.Duration
}

// fail ends the process with the reason, which the group reports.
func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

func must(err error) {
	if err != nil {
		fail("%v", err)
	}
}

// work runs the worker. It ends with the group.
func work() {
	retiring, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	w := &worker{say: json.NewEncoder(os.Stdout)}
	in := json.NewDecoder(os.Stdin)
	must(in.Decode(&w.task))
	go func() { must(in.Decode(new(task))) }() // there is no other: this waits for the end of the group

	var nodes []*node.Node
	var working sync.WaitGroup
	open := w.listen()
	for i, name := range w.Algorithms {
		n, err := open[name](node.Config{
			Algorithm: either[name], Group: name, Lease: w.Lease,
			Logger:   slog.New(slog.DiscardHandler),
			Observer: &node.Observer{View: w.view},
		})
		must(err)
		nodes = append(nodes, n)
		for j := range hands {
			luck := rand.New(rand.NewPCG(w.Seed, uint64(w.Number)<<32|uint64(i)<<16|uint64(j)))
			h := &hand{worker: w, node: n, algorithm: name, luck: luck}
			working.Go(func() { h.toil(retiring) })
		}
	}

	<-retiring.Done()
	time.AfterFunc(farewell, func() { fail("process %d does not come to its end", w.Number) })
	working.Wait()
	var last report
	for _, n := range nodes {
		if st := n.Status().Lease; st != nil {
			last.Exclusions += st.Exclusions
		}
		working.Go(func() { must(n.Close(context.Background())) })
	}
	working.Wait()
	w.mu.Lock()
	last.Took = w.took
	w.mu.Unlock()
	w.tell(last)
}

// listen makes the links, and returns how the node of each algorithm is opened.
func (w *worker) listen() map[string]func(node.Config) (*node.Node, error) {
	ctx := context.Background()
	var nc *nats.Conn
	if w.NATS != "" {
		var err error
		nc, err = nats.Connect("nats://"+w.NATS,
			nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.PingInterval(time.Second),
			nats.RetryOnFailedConnect(true),
			nats.IgnoreDiscoveredServers(), // they would lead around the cable
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		must(err)
	}
	stores := w.stores(nc)
	self := w.Number
	if w.Lease > 0 {
		self = dmutex.None
	}
	addresses, open := make(map[string]string), make(map[string]func(node.Config) (*node.Node, error))
	for i, name := range w.Algorithms {
		var link transport.DynamicLink
		if nc != nil {
			l, err := natslink.New(nc, natslink.Config{Self: self, Prefix: "faults." + name})
			must(err)
			link = l
		} else {
			cfg := tcplink.Config{Self: self, Listen: "127.0.0.1:0"}
			if w.Lease > 0 {
				cfg.Advertise = w.Book[name][w.Number]
			} else {
				cfg.Peers = w.Book[name]
			}
			if secured(i) {
				cfg.TLS = w.Papers.config()
			}
			l, err := tcplink.New(cfg)
			must(err)
			link, addresses[name] = l, l.Addr().String()
		}
		if w.Lease == 0 {
			open[name] = func(cfg node.Config) (*node.Node, error) {
				return node.OpenStrict(ctx, w.Number, w.Members, link, cfg)
			}
			continue
		}
		record := stores(name) // before the report, after which its server may crash
		open[name] = func(cfg node.Config) (*node.Node, error) { return node.Open(ctx, record, link, cfg) }
	}
	w.tell(report{Addresses: addresses})
	return open
}

// secured reports whether a link over TCP uses TLS: every other one does.
func secured(i int) bool { return i%2 == 1 }

func (w *worker) view(v node.ViewStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took = append(w.took, v.Took)
}

func (w *worker) tell(r report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	must(w.say.Encode(r))
}

// A hand is a goroutine that wants locks.
type hand struct {
	*worker
	node      *node.Node
	algorithm string
	luck      *rand.Rand
}

// toil takes one lock after the other until the process is to end.
func (h *hand) toil(retiring context.Context) {
	for retiring.Err() == nil {
		<-time.After(h.upTo(100 * time.Millisecond))
		patience := time.Hour
		if h.luck.IntN(3) == 0 {
			patience = h.upTo(20 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(retiring, patience)
		h.lock(ctx)
		cancel()
	}
}

func (h *hand) upTo(d time.Duration) time.Duration { return time.Duration(h.luck.Int64N(int64(d))) }

// lock takes a lock alone, or to share it.
func (h *hand) lock(ctx context.Context) {
	name := fmt.Sprint("lock ", h.luck.IntN(locks))
	m, shares := lock.Mutex(h.node.Mutex(name)), canShare[h.algorithm] && h.luck.IntN(4) == 0
	if shares {
		m = h.node.Mutex(name).Shared()
	}
	acquire, trying := m.Acquire, h.luck.IntN(6) == 0
	if trying {
		acquire = m.TryAcquire
	}
	held, err := acquire(ctx)
	switch {
	case err == nil:
		h.hold(held, stay{Process: os.Getpid(), Number: h.stays.Add(1), Lock: h.algorithm + "/" + name, Fence: held.Fence(), Shared: shares})
		if err := held.Release(); err != nil && !(h.Lease > 0 && errors.Is(err, lock.ErrLost)) {
			fail("process %d releases %s/%s: %v", h.Number, h.algorithm, name, err)
		}
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
	case h.Lease > 0 && errors.Is(err, lock.ErrLost): // the lease has ended since the grant
	case trying && (errors.Is(err, lock.ErrBusy) || errors.Is(err, node.ErrStore)): // it does not wait for the store
	default:
		fail("process %d wants %s/%s: %v", h.Number, h.algorithm, name, err)
	}
}

// hold is a critical section, with leases now and then so long that the lease may end.
func (h *hand) hold(held lock.Held, s stay) {
	long := h.upTo(4 * time.Millisecond)
	if h.Lease > 0 && h.luck.IntN(10) == 0 {
		long = h.upTo(min(h.Lease, time.Second))
	}
	s.From = instant()
	s.Until = s.From - 1
	s.look(held)
	h.tell(report{Stay: &s})
	for end := time.Now().Add(long); time.Now().Before(end); s.look(held) {
		<-time.After(4 * time.Millisecond)
	}
	s.look(held)
	s.Over = true
	h.tell(report{Stay: &s})
}
