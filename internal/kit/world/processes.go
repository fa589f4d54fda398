package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/client/natsclient"
	"github.com/dmutex/dmutex/internal/kit/natsnet"
	"github.com/dmutex/dmutex/internal/kit/stall"
	"github.com/dmutex/dmutex/internal/kit/streamnet"
	"github.com/dmutex/dmutex/internal/kit/wrongclock"
	"github.com/dmutex/dmutex/internal/outside"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/storelock"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport"
)

// A process is one run of a program: a member, a client, or one that takes locks in single records.
type process struct {
	w        *World
	who      string
	name     string // of its place: another run there has the same
	machine  outside.Process
	clock    *wrongclock.Clock
	at       *machine // nil if there is no TCP
	socket   *streamnet.Process
	way      *natsnet.Way // nil if there is no NATS
	nc       *nats.Conn
	powerOff bool // if it crashes, its machine does

	node    *node.Node                     // of a member
	client  *client.Client                 // of a client
	door    *door                          // of a member that serves clients
	lease   time.Duration                  // of a member
	address string                         // where it does
	hop     transport.DynamicLink          // of a member
	host    atomic.Pointer[transport.Host] // what the link of a member serves
	lock    func(name string) lock.Mutex
	names   []string // of the locks that it takes
	shares  bool     // it may share them

	ctx     context.Context // of its callers
	stop    context.CancelFunc
	callers sync.WaitGroup

	dead     atomic.Bool   // nothing that it does has any effect
	stints   atomic.Uint64 // how often it has got a number, or lost it
	ending   atomic.Bool   // it closes, so its calls may fail
	failed   atomic.Bool   // it has stopped by itself, as it may
	leapt    atomic.Bool   // its wall clock was set forward
	mute     atomic.Bool   // nothing that it sends arrives
	deaf     atomic.Bool   // nothing arrives here
	exiled   atomic.Bool   // it does not reach its stores, whatever becomes of other faults
	holds    atomic.Int64  // until when somebody is to hold something, in nanoseconds since 1970
	cuts     atomic.Int64  // see isBack
	cutOff   atomic.Bool   // it does not reach its stores
	outlives atomic.Bool   // and calls of the store outlive their contexts
	shut     atomic.Bool   // clients do not get in
	hangs    atomic.Bool   // or get in and hear nothing
	dawdles  atomic.Bool   // its observers take their time, or its goroutines stall, so its calls may be late
	wasStuck atomic.Bool   // its log handler was, so its Close may be late
	stuck    atomic.Pointer[chan struct{}]
	trap     atomic.Pointer[func()] // what happens when a call has reached the record, before the answer is there

	still  atomic.Pointer[chan struct{}] // closed when the process is paused no more; nil while it is not
	ears   atomic.Pointer[chan struct{}] // closed when what members say to the client arrives again; nil while it does
	asleep atomic.Bool                   // its machine is
	wakes  atomic.Pointer[time.Time]     // when its machine wakes up, or has done so last
	stalls atomic.Bool                   // somebody pauses it
	goes   atomic.Pointer[chan struct{}] // closed when nobody does any more

	mu     sync.Mutex
	luck   *rand.Rand    // see draw
	wires  []*wire       // of a client
	number dmutex.NodeID // under which the member is paused
}

// draw draws what happens to a way of the process.
func (p *process) draw(f func(luck *rand.Rand)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p.luck)
}

func (w *World) process(name string) *process {
	w.mu.Lock()
	w.runs++
	run := w.runs
	w.mu.Unlock()
	p := &process{w: w, name: name, who: fmt.Sprint(name, ".", run), luck: w.Random()}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.clock = wrongclock.New(p.luck.Uint64(), p.luck.Int64N(2*wrong+1)-wrong)
	p.machine.Clock = p.clock
	p.powerOff = p.luck.IntN(2) == 0
	p.dawdles.Store(w.stalls > 0)
	p.boot()
	p.logIn()
	return p
}

// open makes what belongs to the process. Nothing waits meanwhile.
func (p *process) open(make func()) { stall.Quiet(func() { p.machine.Open(make) }) }

// store returns the way of the process to a record.
func (p *process) store(a *archive) store.Store {
	s := &way{a, p}
	if p.w.proves {
		return proving{s}
	}
	return s
}

// begin starts a member.
func (w *World) begin(s *slot) { w.enter(s, time.Duration(w.lease.Load())) }

// enter starts a member with this lease.
func (w *World) enter(s *slot, lease time.Duration) {
	if s.now != nil {
		return
	}
	knows := func(p *process) bool { return !w.strict || p.node.Status().View.Epoch > 0 }
	if (w.strict || w.damaged.Load()) && !slices.ContainsFunc(w.memberProcesses(), knows) {
		time.Sleep(w.ahead()) // only the wall clocks know the last epoch, and must not have been set back since
	}
	p := w.process(s.name())
	if s.ahead > 0 {
		w.setWall(p, s.ahead)
	}
	cfg := node.Config{Name: p.who, Group: cmp.Or(s.group, "world"), Algorithm: w.algorithm.Algorithm, Deadlock: w.deadlock, Logger: p.logger(), Observer: w.nodeObserver(p)}
	var err error
	if w.traces {
		cfg.Trace = trace.NewRecorder(io.Discard)
	}
	if w.strict {
		var all []dmutex.NodeID
		for _, o := range w.slots {
			all = append(all, o.place)
		}
		p.open(func() {
			p.hop, err = p.link(s.place)
			require.NoError(w.t, err)
			p.node, err = node.OpenStrict(context.Background(), s.place, all, road{p.hop, p}, cfg)
		})
	} else {
		p.lease, cfg.Lease = lease, lease
		if w.clients > 0 {
			door, err := p.listen()
			require.NoError(w.t, err)
			cfg.Clients = &node.Clients{Session: w.session, Listeners: []net.Listener{door}, Allow: allow}
		}
		p.open(func() {
			p.hop, err = p.link(dmutex.None)
			require.NoError(w.t, err)
			p.node, err = node.Open(context.Background(), p.store(w.group), road{p.hop, p}, cfg)
		})
	}
	require.NoError(w.t, err)
	p.lock = func(name string) lock.Mutex { return p.node.Mutex(name) }
	p.names, p.shares = w.names(), w.algorithm.Shares
	w.mu.Lock()
	s.now = p
	w.mu.Unlock()
	w.work(p)
	w.running.Go(func() { w.supervise(s, p) })
}

// forbidden is a lock that no client may have.
const forbidden = "of the members"

func allow(_ net.Conn, client, lock string, _ bool) error {
	if lock == forbidden {
		return errors.New("it is " + forbidden)
	}
	return nil
}

// supervise replaces a member that has stopped by itself, as it may do because of some faults.
func (w *World) supervise(s *slot, p *process) {
	<-p.node.Done()
	if err := p.node.Status().Err; !p.ending.Load() && !p.stops(err) {
		w.Wrong("%s has stopped: %v", p.who, err)
	}
	p.failed.Store(true)
}

// stops reports whether a member may stop by itself for that reason.
func (p *process) stops(err error) bool {
	w := p.w
	switch {
	case errors.Is(err, transport.ErrClosed):
		return p.nc != nil && p.nc.IsClosed()
	case errors.Is(err, node.ErrRecord):
		return w.damaged.Load()
	case errors.Is(err, node.ErrConfig):
		return p.outdated() || w.damaged.Load() // a record that was put back may have former settings
	case errors.Is(err, store.ErrUnusable):
		return w.stores.unusable > 0
	case errors.Is(err, node.ErrEvicted), errors.Is(err, node.ErrReplaced), errors.Is(err, node.ErrNumberTaken):
		return w.strict && w.evicts.Load()
	}
	return false
}

// isolate cuts a process off from all others, or ends that.
func (p *process) isolate(on bool) {
	p.mute.Store(on)
	p.deaf.Store(on)
	p.cutOff.Store(on)
	p.shut.Store(on)
	if p.client != nil {
		p.silence(on, on)
	}
}

// leave takes a member out of its slot.
func (w *World) leave(s *slot) (p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, s.now = s.now, nil
	return p
}

// kill ends a process without a farewell.
func (p *process) kill() {
	p.w.shown(p)
	p.ending.Store(true)
	p.isolate(true)
	p.dead.Store(true)
	p.crash()
	p.w.lives.died(p)
	p.unstick()
	p.resume()
	p.stop()
	now, cancel := context.WithCancel(context.Background())
	cancel()
	switch {
	case p.node != nil:
		for _, u := range p.w.users {
			if u.client != nil && p.way == nil { // over NATS nobody tells them
				u.hangUp(p)
			}
		}
		_ = p.node.Close(now)
	case p.client != nil:
		p.moved()
		_ = p.client.Close()
	}
	p.callers.Wait()
	p.logOut()
}

// close ends a process in order. Its callers may still be at work.
func (p *process) close(patience time.Duration, stop bool) {
	defer p.w.shown(p)
	p.goesOn()
	p.ending.Store(true)
	if stop {
		p.stop()
		p.callers.Wait()
	}
	began, ctx := time.Now(), context.Background()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch {
	case p.node != nil:
		var again bool
		p.draw(func(luck *rand.Rand) { again = luck.IntN(4) == 0 })
		if again { // somebody else closes it, and does not wait for long
			soon, enough := context.WithTimeout(ctx, patience/8)
			defer enough()
			time.AfterFunc(1, func() { _ = p.node.Close(soon) })
		}
		err := p.node.Close(ctx)
		took := time.Since(began)
		_ = p.node.Close(context.Background()) // the call of somebody else may be under way yet, if a goroutine stalls
		if took > patience+time.Second+p.tarries() && !p.dawdles.Load() && !p.wasStuck.Load() {
			p.w.Wrong("%s takes %v to close, within a context of %v: %v", p.who, took, patience, err)
		}
		if err != nil && ctx.Err() == nil && !p.stops(err) && !p.failed.Load() {
			p.w.Wrong("%s closes with %v", p.who, err)
		}
		if err != nil && p.w.calm.Load() {
			p.w.Wrong("in calm, %s closes with %v", p.who, err)
		}
	case p.client != nil:
		p.moved()
		err := p.client.Close()
		if took := time.Since(began); err != nil || took > p.tarries() && !p.dawdles.Load() && !p.wasStuck.Load() {
			p.w.Wrong("%s takes %v to close: %v", p.who, took, err)
		}
	}
	p.stop()
	p.callers.Wait()
	p.isolate(true)
	p.dead.Store(true)
	if p.socket != nil {
		p.socket.Kill()
	}
	p.logOut()
	p.w.lives.died(p)
	p.unstick()
}

// moved counts what the client has taken to other members.
func (p *process) moved() {
	for range p.client.Status().Moved {
		p.w.count("moved")
	}
}

// use starts a process that is no member.
func (w *World) use(name string, begin func(p *process)) {
	p := w.process(name)
	begin(p)
	w.users = append(w.users, p)
	w.work(p)
}

func (w *World) beginClient(p *process) {
	var members []string
	for _, s := range w.slots {
		members = append(members, s.name()+":80")
	}
	dial := p.dial
	switch {
	case p.nc != nil:
		dial, members = natsclient.Dialer(p.nc), []string{front}
	case p.socket != nil:
		if dial = p.socket.Dial; w.secure {
			dial = p.dialSecurely
		}
	}
	var err error
	p.open(func() {
		p.client, err = client.New(client.Config{Members: members, Name: p.who, Dial: dial, Logger: p.logger(), Observer: w.clientObserver(p)})
	})
	require.NoError(w.t, err)
	p.lock = func(name string) lock.Mutex { return p.client.Mutex(name) }
	p.names, p.shares = w.names(), w.algorithm.Shares
}

func (w *World) beginLocker(p *process) {
	locks := make(map[string]lock.Mutex)
	for _, a := range w.archives {
		p.open(func() {
			var err error
			locks[a.name], err = storelock.New(p.store(a), a.name, leaseOf)
			require.NoError(w.t, err)
		})
		p.names = append(p.names, a.name)
	}
	p.lock = func(name string) lock.Mutex { return locks[name] }
}

// replace ends a process that is no member, and begins another.
func (w *World) replace(i int, end func(p *process)) {
	p := w.users[i]
	end(p)
	next := w.process(p.name)
	if p.client != nil {
		w.beginClient(next)
	} else {
		w.beginLocker(next)
	}
	w.users[i] = next
	w.work(next)
}

// replaceAll replaces all members that have stopped by themselves, and begins those that are missing.
func (w *World) replaceAll() {
	for _, s := range w.slots {
		if s.now != nil && s.now.failed.Load() {
			w.leave(s).close(leaseOf, false)
		}
		w.begin(s)
	}
}

// closeAll ends everything in order.
func (w *World) closeAll() {
	for _, p := range w.users {
		p.close(leaseOf, true)
	}
	for _, s := range w.slots {
		if s.now == nil {
			continue
		}
		if len(w.memberProcesses()) == 1 && !w.t.Failed() {
			time.Sleep(leaseOf)
			w.takes(s.now, s.now.names) // also alone
		}
		w.leave(s).close(4*leaseOf, true)
	}
	w.running.Wait()
	time.Sleep(3 * leaseOf) // what the ways still carry arrives
}

// names are the names of the group's locks.
func (w *World) names() (all []string) {
	for i := range w.locks {
		all = append(all, fmt.Sprint("lock ", i))
	}
	return all
}

// A logger that gets stuck now and then.
func (p *process) logger() *slog.Logger { return slog.New(handler{p}) }

type handler struct{ p *process }

func (handler) Enabled(context.Context, slog.Level) bool { return true }
func (h handler) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h handler) WithGroup(string) slog.Handler          { return h }

func (h handler) Handle(context.Context, slog.Record) error {
	if stuck := h.p.stuck.Load(); stuck != nil {
		<-*stuck
	}
	return nil
}

// stick makes the log handler of the process get stuck, until unstick.
func (p *process) stick() {
	c := make(chan struct{})
	p.wasStuck.Store(true)
	p.stuck.CompareAndSwap(nil, &c)
}

func (p *process) unstick() {
	if stuck := p.stuck.Swap(nil); stuck != nil {
		close(*stuck)
	}
}
