//go:build unix

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/lock/semaphore"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/natslink"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// A task is what a worker gets when it starts.
type task struct {
	Self       dmutex.NodeID
	Members    []dmutex.NodeID
	Algorithms []string
	Seed       uint64
	Referee    string // address
	NATS       string // address; empty for TCP
	Authority  authority

	// Of a group with leases. Then Self is only the group's name for the process, and
	// there are no Members.
	Lease     time.Duration
	Store     string            // its kind, a colon and its address; empty for JetStream
	Advertise map[string]string // by algorithm; over TCP
}

// An order comes after the task. The worker answers each order with a report. Its first
// report comes without an order, and has the addresses where it listens.
type order struct {
	Word  string
	Peers map[string]map[dmutex.NodeID]string // of wordWork, by algorithm
	Cut   cut                                 // of wordCut
}

const (
	wordWork  = "work"  // meet, and begin to work
	wordStop  = "stop"  // finish, and report when no hand works anymore
	wordTell  = "tell"  // report what is left
	wordLeave = "leave" // close gracefully, report and end
	wordCut   = "cut"   // be cut off from now on exactly as the order says
)

type report struct {
	Addresses map[string]string // by algorithm
	States    map[string]state
	Stalls    []time.Duration // how long view changes took
}

// state is the state of a node.
type state struct {
	Err            string
	Busy           []string // locks that are not at rest
	Refused        uint64
	Deadlocks      uint64
	Sent, Received [dmutex.Kinds]uint64
	Changes        uint64 // of the view
	Asked          uint64 // operations of the store
	Exclusions     int
}

const (
	locks    = 2 // of each algorithm
	shelf    = 4 // more, which transactions take in any order
	hands    = 3 // goroutines of each node
	detect   = 50 * time.Millisecond
	farewell = 90 * time.Second // a process that was excluded often joins again after a minute
)

// A worker is this process: one node for each algorithm, all over one kind of
// link.
type worker struct {
	task
	links map[string]transport.Link
	gates map[string]*gate // with leases
	cut   atomic.Pointer[cut]
	nodes map[string]*node.Node
	stop  chan struct{}
	hands sync.WaitGroup

	leaving  chan struct{}   // closed when it leaves
	retiring context.Context // ends when the process gets the order to end

	mu     sync.Mutex
	stalls []time.Duration
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
	orders := make(chan order)
	retiring, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	w := &worker{links: make(map[string]transport.Link), gates: make(map[string]*gate), nodes: make(map[string]*node.Node), stop: make(chan struct{}), leaving: make(chan struct{}), retiring: retiring}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	must(in.Decode(&w.task))
	go func() {
		for {
			var o order
			must(in.Decode(&o))
			orders <- o
		}
	}()
	must(out.Encode(report{Addresses: w.listen()}))
	context.AfterFunc(retiring, func() {
		w.finish()
		w.leave()
		os.Exit(0)
	})
	for o := range orders {
		var r report
		switch o.Word {
		case wordWork:
			w.begin(o.Peers)
		case wordStop:
			w.finish()
		case wordTell:
			r.States = w.tell()
			w.mu.Lock()
			r.Stalls = slices.Clone(w.stalls)
			w.mu.Unlock()
		case wordCut:
			w.cut.Store(&o.Cut)
		case wordLeave:
			w.leave()
		}
		must(out.Encode(r))
		if o.Word == wordLeave {
			return
		}
	}
}

// listen makes the links. Every other link over TCP uses TLS.
func (w *worker) listen() map[string]string {
	addresses := make(map[string]string)
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
	self := w.Self
	if w.Lease > 0 {
		self = dmutex.None
		w.openStores(nc)
	}
	for i, name := range w.Algorithms {
		if nc != nil {
			l, err := natslink.New(nc, natslink.Config{Self: self, Prefix: "faults." + name})
			must(err)
			w.links[name] = l
			continue
		}
		cfg := tcplink.Config{Self: self, Listen: "127.0.0.1:0", Advertise: w.Advertise[name]}
		if i%2 == 1 {
			cfg.TLS = w.Authority.config(w.Self)
		}
		l, err := tcplink.New(cfg)
		must(err)
		w.links[name] = l
		addresses[name] = l.Addr().String()
	}
	return addresses
}

func (w *worker) begin(peers map[string]map[dmutex.NodeID]string) {
	for i, name := range w.Algorithms {
		for id, address := range peers[name] {
			must(w.links[name].(*tcplink.Link).SetPeer(id, address))
		}
		cfg := node.Config{
			Algorithm: either[name], Group: name, Deadlock: detect, Lease: w.Lease,
			Logger: slog.New(stuck{w.leaving}),
			Observer: &node.Observer{View: func(c node.ViewStatus) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.stalls = append(w.stalls, c.Took)
			}},
		}
		var n *node.Node
		var err error
		if w.Lease > 0 {
			ear := &ear{DynamicLink: w.links[name].(transport.DynamicLink), self: w.Self, cut: &w.cut}
			n, err = node.Open(context.Background(), w.way(name), ear, cfg)
		} else {
			n, err = node.OpenStrict(context.Background(), w.Self, w.Members, w.links[name], cfg)
		}
		must(err)
		w.nodes[name] = n
		go w.observe(name, n)
		for j := range hands {
			w.hands.Go(func() {
				conn, err := net.Dial("tcp", w.Referee)
				must(err)
				defer conn.Close()
				h := &hand{
					node:   n,
					prefix: name + "/",
					who:    fmt.Sprintf("node %d, process %d, goroutine %d", w.Self, os.Getpid(), j),
					rng:    rand.New(rand.NewPCG(w.Seed, uint64(w.Self)<<32|uint64(i)<<16|uint64(j))),
					say:    json.NewEncoder(conn),
					hear:   json.NewDecoder(conn),

					retiring: w.retiring,
					lease:    w.Lease,
				}
				h.toil(w.stop)
			})
		}
	}
}

// observe checks that the leaders and epochs of an election are observed in order.
func (w *worker) observe(name string, n *node.Node) {
	vacant, last := true, uint64(0)
	for leader, epoch := range n.Election("post").Observe(context.Background()) {
		if epoch < last || epoch == last && (vacant || leader != dmutex.None) {
			fail("%s: node %d observes node %d with epoch %d after epoch %d", name, w.Self, leader, epoch, last)
		}
		vacant, last = leader == dmutex.None, epoch
	}
}

// finish waits until every hand has had its last lock, or has seen that the process is to
// end.
func (w *worker) finish() {
	close(w.stop)
	finished := make(chan struct{})
	go func() {
		w.hands.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(farewell):
		fail("node %d waits in vain: %+v", w.Self, w.tell())
	}
}

func (w *worker) tell() map[string]state {
	states := make(map[string]state)
	for name, n := range w.nodes {
		st := n.Status()
		s := state{Refused: st.Refused, Deadlocks: st.Deadlocks, Sent: st.Sent, Received: st.Received, Changes: st.View.Changes}
		if w.Lease > 0 {
			s.Asked, s.Exclusions = w.gates[name].asked.Load(), st.Lease.Exclusions
		}
		if st.Err != nil {
			s.Err = st.Err.Error()
		}
		for lock, st := range n.Locks() {
			s.Busy = append(s.Busy, fmt.Sprintf("%s %+v", lock, st))
		}
		states[name] = s
	}
	return states
}

// A stuck log handler hangs until the process leaves. The nodes must not wait for it.
type stuck struct{ until <-chan struct{} }

func (stuck) Enabled(context.Context, slog.Level) bool    { return true }
func (h stuck) Handle(context.Context, slog.Record) error { <-h.until; return nil }
func (h stuck) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h stuck) WithGroup(string) slog.Handler             { return h }

func (w *worker) leave() {
	close(w.leaving)
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	var closing sync.WaitGroup
	for name, n := range w.nodes {
		closing.Go(func() {
			if err := n.Close(ctx); err != nil {
				fail("%s: node %d: %v", name, w.Self, err)
			}
		})
	}
	closing.Wait()
}

// A hand is a goroutine that wants locks.
type hand struct {
	node   *node.Node
	prefix string
	who    string
	rng    *rand.Rand
	say    *json.Encoder
	hear   *json.Decoder

	retiring context.Context
	lease    time.Duration // 0 without leases
	stays    []*stay       // the critical sections that it is in
}

// toil takes locks until the order to stop, and then one more.
func (h *hand) toil(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			h.lock(h.retiring, false)
			return
		case <-time.After(h.upTo(100 * time.Millisecond)):
		}
		if err := h.node.Status().Err; err != nil && h.retiring.Err() == nil { // another process has taken its place
			if h.lease > 0 {
				fail("%s: %s%v", h.who, h.prefix, err)
			}
			return
		}
		ctx, cancel := h.retiring, context.CancelFunc(func() {})
		impatient := h.rng.IntN(3) == 0
		if impatient {
			ctx, cancel = context.WithTimeout(ctx, h.upTo(20*time.Millisecond))
		}
		switch h.rng.IntN(10) {
		case 0:
			h.campaign(ctx, impatient)
		case 1:
			h.lockAll(ctx, impatient)
		case 2:
			h.transact(ctx, impatient)
		case 3:
			h.share(ctx, impatient)
		case 4:
			h.permit(ctx, impatient)
		default:
			h.lock(ctx, impatient)
		}
		cancel()
	}
}

// excused reports whether an Acquire may fail like this: the caller's context has ended, or
// another process has this number, or the lease has ended. When the lease has ended, a
// transaction has lost a lock, and a TryAcquire does not wait for the store.
func (h *hand) excused(err error, impatient bool) bool {
	if errors.Is(err, node.ErrReplaced) || errors.Is(err, node.ErrNumberTaken) {
		return true
	}
	if h.lease > 0 && (errors.Is(err, node.ErrLost) || impatient && errors.Is(err, node.ErrStore)) {
		return true
	}
	return impatient && errors.Is(err, context.DeadlineExceeded) || h.retiring.Err() != nil && errors.Is(err, context.Canceled)
}

// must checks the release of a lock. Only a process that was replaced, or a process without a
// lease, may have lost the lock.
func (h *hand) must(err error) {
	if !errors.Is(err, node.ErrReplaced) && !(h.lease > 0 && errors.Is(err, node.ErrLost)) {
		must(err)
	}
}

func (h *hand) upTo(d time.Duration) time.Duration { return time.Duration(h.rng.Int64N(int64(d))) }

func (h *hand) lock(ctx context.Context, impatient bool) {
	name := fmt.Sprint("lock ", h.rng.IntN(locks))
	m := h.node.Mutex(name)
	acquire, trying := m.Acquire, impatient && h.rng.IntN(2) == 0
	if trying {
		acquire = m.TryAcquire
	}
	held, err := acquire(ctx)
	switch {
	case err == nil:
		h.visit(name, held.Fence(), held.Err)
		h.must(held.Release())
	case h.excused(err, impatient):
	case trying && errors.Is(err, node.ErrBusy):
	default:
		fail("%s: %s%s: %v", h.who, h.prefix, name, err)
	}
}

// share takes a lock that hands share, mostly to share it. Some algorithms do not share.
func (h *hand) share(ctx context.Context, impatient bool) {
	const name = "shared"
	m, shares := lock.Mutex(h.node.Mutex(name)), h.rng.IntN(4) > 0
	if shares {
		m = h.node.Mutex(name).Shared()
	}
	held, err := m.Acquire(ctx)
	switch {
	case err == nil:
		s := &stay{claim: claim{Lock: h.prefix + name, Who: h.who, Fence: held.Fence(), Shared: shares, Turn: h.rng.Uint64()}, err: held.Err}
		h.begin(s)
		h.linger()
		h.leave(s)
		h.must(held.Release())
	case h.excused(err, impatient):
	case shares && errors.Is(err, node.ErrUnshared) && !canShare(h.prefix):
	default:
		fail("%s: %s%s: %v", h.who, h.prefix, name, err)
	}
}

// canShare reports whether the algorithm of that prefix shares.
func canShare(prefix string) bool {
	m, err := either[strings.TrimSuffix(prefix, "/")](dmutex.Start{Self: 1, Members: []dmutex.NodeID{1}})
	must(err)
	_, shares := m.(dmutex.Sharer)
	return shares
}

// permit takes one of three permits.
func (h *hand) permit(ctx context.Context, impatient bool) {
	p, err := semaphore.New("permit", 3, h.node.Mutex).Acquire(ctx)
	switch {
	case err == nil:
		h.visit(fmt.Sprint("permit ", p.Number), p.Fence(), p.Err)
		h.must(p.Release())
	case h.excused(err, impatient):
	default:
		fail("%s: %spermit: %v", h.who, h.prefix, err)
	}
}

func (h *hand) lockAll(ctx context.Context, impatient bool) {
	var names []string
	for i := range locks {
		names = append(names, fmt.Sprint("lock ", i))
	}
	all, err := h.node.AcquireAll(ctx, names...)
	if err != nil && h.excused(err, impatient) {
		return
	}
	must(err)
	for _, name := range names {
		held := all.Held(name)
		h.visit(name, held.Fence(), held.Err)
	}
	h.must(all.Release())
}

// transact takes two or three locks one after another, in any order. If it is the
// victim of a cycle, it releases what it has and tries again.
func (h *hand) transact(ctx context.Context, impatient bool) {
	txn := h.node.Txn()
	order := h.rng.Perm(shelf)[:2+h.rng.IntN(2)]
	for {
		err := h.gather(ctx, txn, order)
		h.must(txn.Release())
		switch {
		case err == nil, h.excused(err, impatient):
			return
		case !errors.Is(err, node.ErrDeadlock):
			fail("%s: %sshelf %v: %v", h.who, h.prefix, order, err)
		}
		<-time.After(h.upTo(detect)) // so the others of the cycle are quicker
	}
}

// gather stays inside every lock that it has until it has all of them, or learns that
// it gets no more.
func (h *hand) gather(ctx context.Context, txn *node.Txn, order []int) error {
	for _, i := range order {
		name := fmt.Sprint("shelf ", i)
		held, err := txn.Acquire(ctx, name)
		if err != nil {
			return err
		}
		defer h.leave(h.enter(name, held.Fence(), held.Err))
		h.linger()
	}
	return nil
}

func (h *hand) campaign(ctx context.Context, impatient bool) {
	e := h.node.Election("post")
	err := e.Campaign(ctx, func(ctx context.Context, epoch uint64) error {
		if h.rng.IntN(2) == 0 {
			e.Resign()
			<-ctx.Done()
		}
		h.visit("the post", epoch, nil)
		return nil
	})
	lost := errors.Is(err, node.ErrReplaced) || h.lease > 0 && errors.Is(err, node.ErrLost)
	if err != nil && !(errors.Is(err, node.ErrNotElected) && h.excused(err, impatient)) && !lost {
		fail("%s: %selection: %v", h.who, h.prefix, err)
	}
}

// visit is the critical section. The function err returns why the lock is no longer held, or
// nil while it is held. A post has no such function.
func (h *hand) visit(lock string, fence uint64, err func() error) {
	s := h.enter(lock, fence, err)
	h.linger()
	h.leave(s)
}

func (h *hand) enter(lock string, fence uint64, err func() error) *stay {
	s := &stay{claim: claim{Lock: h.prefix + lock, Who: h.who, Fence: fence}, err: err}
	h.begin(s)
	return s
}

func (h *hand) begin(s *stay) {
	if h.lease > 0 {
		s.begin()
	}
	h.stays = append(h.stays, s)
	h.tell(s.claim)
}

func (h *hand) leave(s *stay) {
	if h.lease > 0 {
		s.look()
	}
	h.stays = slices.DeleteFunc(h.stays, func(o *stay) bool { return o == s })
	s.Leave = true
	h.tell(s.claim)
}

// linger stays inside, with leases now and then for so long that the lease may end.
func (h *hand) linger() {
	long := h.upTo(4 * time.Millisecond)
	if h.lease > 0 && h.rng.IntN(10) == 0 {
		long = h.upTo(h.lease)
	}
	for end := time.After(long); ; {
		select {
		case <-end:
			return
		case <-time.After(4 * time.Millisecond):
		}
		for _, s := range h.stays {
			if h.lease > 0 {
				s.look()
			}
		}
	}
}

func (h *hand) tell(c claim) {
	must(h.say.Encode(c))
	var noted struct{}
	must(h.hear.Decode(&noted))
}
