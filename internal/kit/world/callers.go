package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/kit/storm"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/lock/semaphore"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/storelock"
)

// A caller is a goroutine of a process. It takes locks in one way after the other until its process ends, and judges
// what it gets.
type caller struct {
	w    *World
	p    *process
	luck *rand.Rand
}

// work starts the callers of a process.
func (w *World) work(p *process) {
	for range w.callers {
		c := &caller{w, p, w.Random()}
		ways := []func(ctx context.Context){c.acquire, c.acquire, c.acquire, c.do, c.semaphore}
		if p.node != nil {
			ways = append(ways, c.all, c.txn, c.campaign, c.ask)
		}
		if p.client != nil {
			ways = append(ways, c.acquire, c.acquire, c.look)
		}
		p.callers.Go(func() {
			for p.ctx.Err() == nil && !p.failed.Load() {
				began := time.Now()
				ctx, cancel := c.patience()
				ways[c.luck.IntN(len(ways))](ctx)
				cancel()
				pause := c.upTo(w.think)
				switch {
				case w.calm.Load():
					pause = leaseOf / 10
				case w.claims && p.client == nil:
					pause = c.upTo(2 * leaseOf) // the locks are those of clients
				case time.Since(began) == 0:
					pause = max(pause, 10*time.Millisecond) // nobody spins
				}
				time.Sleep(pause)
			}
		})
	}
	if p.node != nil {
		p.callers.Go(func() { w.observe(p) })
	}
}

var errImpatient = errors.New("the caller has had enough")

// patience draws when a call is given up.
func (c *caller) patience() (context.Context, context.CancelFunc) {
	if c.w.calm.Load() {
		return context.WithTimeoutCause(c.p.ctx, 8*leaseOf, errImpatient)
	}
	switch c.luck.IntN(8) {
	case 0:
		ctx, cancel := context.WithCancelCause(c.p.ctx)
		cancel(errImpatient)
		return ctx, func() {}
	case 1:
		return context.WithTimeout(c.p.ctx, 1+c.upTo(30*time.Millisecond))
	case 2, 3:
		ctx, cancel := context.WithCancelCause(c.p.ctx)
		t := time.AfterFunc(c.upTo(leaseOf), func() { cancel(errImpatient) })
		return ctx, func() { t.Stop(); cancel(nil) }
	case 4, 5:
		return context.WithTimeout(c.p.ctx, 1+c.upTo(3*leaseOf))
	}
	return context.WithCancel(c.p.ctx)
}

func (c *caller) upTo(most time.Duration) time.Duration {
	return time.Duration(c.luck.Int64N(int64(most)))
}

// hold draws how long a lock is held.
func (c *caller) hold() time.Duration {
	if c.w.calm.Load() { // everybody is to get his turn soon
		return c.upTo(50 * time.Millisecond)
	}
	if c.w.longHolds && c.luck.IntN(3) == 0 { // for longer than what follows an exclusion takes
		return c.upTo(3 * leaseOf)
	}
	if c.w.busy && c.luck.IntN(50) > 0 {
		return c.upTo(5 * time.Millisecond)
	}
	if c.w.claims && c.p.client != nil && c.luck.IntN(2) == 0 {
		return c.upTo(3 * leaseOf)
	}
	if c.p.client != nil && c.luck.IntN(3) == 0 { // so that it has what it can take to another member
		return c.upTo(leaseOf)
	}
	switch c.luck.IntN(12) {
	case 0:
		return c.upTo(2 * leaseOf)
	case 1, 2, 3:
		return c.upTo(leaseOf / 4)
	case 4:
		return 0
	}
	return c.upTo(200 * time.Millisecond)
}

// linger is how long after the end of its context a call of a process may return.
func (p *process) linger() time.Duration {
	switch {
	case p.node != nil:
		return 0
	case p.client != nil:
		return 203 * time.Millisecond // by its own clock 200
	}
	return 2 * leaseOf * 102 / 100
}

// releases is how long a Release may take. That of a permit waits until nothing is left of the call that took it.
func (p *process) releases(h lock.Held) time.Duration {
	if _, permit := h.(*semaphore.Permit); !permit && p.client != nil {
		return 0
	}
	return p.linger()
}

// call makes a call that must return in time, and reports whether it has brought what it is for.
func (c *caller) call(what string, ctx context.Context, linger time.Duration, try bool, call func() error) bool {
	var ended atomic.Pointer[time.Time]
	began := time.Now()
	stop := context.AfterFunc(ctx, func() { ended.Store(new(time.Now())) })
	err := call()
	stop()
	c.w.Note("%s of %s: %v", what, c.p.who, err)
	if at := ended.Load(); at != nil && !c.p.dawdles.Load() && !c.p.dead.Load() {
		if late := c.p.took(*at); late > linger {
			c.w.Wrong("%s of %s returns %v after its context has ended, and %v after it began: %v", what, c.p.who, late, time.Since(began), err)
		}
	}
	if err == nil {
		c.w.count(what)
		return true
	}
	if c.waited(began) {
		c.w.Wrong("%s of %s has waited since before the calm, for %v: %v", what, c.p.who, time.Since(began), err)
	}
	c.fails(what, ctx, try, err)
	return false
}

// waited reports whether a call that has got nothing has waited all through a long calm. Who waits for a record is not served
// in turn.
func (c *caller) waited(began time.Time) bool {
	p, w := c.p, c.w
	calm := w.calm.Load() && began.Before(w.calmed) && time.Since(w.calmed) > 5*leaseOf
	if calm && p.node != nil {
		if st := p.node.Status().Lease; st != nil && st.Exclusions > 3 {
			return false // it joins again after a pause that grows, to 63 s
		}
		if v := p.node.Status().View; v.Acts && v.Age < leaseOf {
			return false // members were replaced in the calm: whether all are granted a lock then, settle asks
		}
	}
	return calm && (p.node != nil || p.client != nil) && !p.dead.Load() && !p.ending.Load() && !p.failed.Load()
}

// fails judges the error of a call.
func (c *caller) fails(what string, ctx context.Context, try bool, err error) {
	p, w := c.p, c.w
	switch {
	case p.dead.Load(), p.ending.Load():
	case ctx.Err() != nil && errors.Is(err, ctx.Err()) && errors.Is(err, context.Cause(ctx)):
	case try && errors.Is(err, lock.ErrBusy):
	case try && p.node != nil && errors.Is(err, node.ErrStore):
	case try && p.client != nil && errors.Is(err, client.ErrRefused) && strings.Contains(err.Error(), "the store does not answer"): // its member
	case errors.Is(err, node.ErrDeadlock) && w.deadlock > 0:
	case errors.Is(err, node.ErrStopped) && p.stops(err):
	case errors.Is(err, lock.ErrLost): // of another lock of a transaction
	case p.node == nil && p.client == nil && errors.Is(err, store.ErrUnusable) && w.stores.unusable > 0:
	case p.node == nil && p.client == nil && errors.Is(err, storelock.ErrRecord) && w.damaged.Load():
	case p.node == nil && p.client == nil && try && !w.calm.Load() && !errors.Is(err, lock.ErrReleased): // a try does not wait for the store
	default:
		w.Wrong("%s of %s fails: %v", what, p.who, err)
	}
}

// A mortal is a handle of a process, whose death ends it, whatever it says, and which says nothing while its machine sleeps.
type mortal struct {
	lock.Held
	p *process
}

var errDead = errors.New("its process is dead")

func (m mortal) Err() error {
	if away := m.p.away(); away != nil {
		return away
	}
	return m.Held.Err()
}

func (m mortal) Until() time.Time {
	if m.p.away() != nil {
		return time.Time{}
	}
	return m.Held.Until()
}

func (m mortal) Context() context.Context {
	return doing{m.Held.Context(), m.p}
}

// gives reports whether a lock that was lost for that reason is given back before its Until: at once by a process that
// closes, and soon by one whose wall clock was set forward, by which the time has passed.
func (p *process) gives(err error) bool {
	return p.leapt.Load() || errors.Is(err, errDead) || errors.Is(err, errAsleep) || errors.Is(err, node.ErrClosed) || errors.Is(err, client.ErrClosed)
}

// margin is how long after an Until nobody else has a lock: a 16th of a lease, less what the clock is wrong by. A clock that
// was too slow when it told the Until, and is too fast from then on, gets there earlier by a 50th of what was left.
func (w *World) margin() time.Duration { return cmp.Or(w.session, leaseOf) / 25 }

// stay judges a hold and holds it for a while.
func (c *caller) stay(name string, h lock.Held, shared bool) {
	w, p := c.w, c.p
	stay := storm.Stay{Who: p.who, Lock: name, Fence: h.Fence(), Shared: shared, Hold: mortal{h, p}, Margin: w.margin(), Gives: p.gives}
	if c.luck.IntN(4) > 0 || w.stalls > 0 { // its context comes to be only now and then, and late if who ends it stalls
		stay.Hold = bare{mortal{h, p}}
	}
	w.Judge(stay, func() {
		c.write(name, h, shared)
		left := c.hold()
		if end := time.Now().Add(left).UnixNano(); end > p.holds.Load() {
			p.holds.Store(end)
		}
		for left > 0 && p.ctx.Err() == nil {
			d := min(left, leaseOf/4)
			left -= d
			select {
			case <-h.Context().Done():
				if w.lateHolders && c.luck.IntN(2) == 0 {
					time.Sleep(min(left, leaseOf/2)) // it notices late that it has lost the lock
				}
				left = 0
			case <-c.asked(h):
				left = 0
			case <-p.ctx.Done():
			case <-time.After(d):
			}
			asked, until := time.Now(), h.Until()
			if woke := p.wakes.Load(); woke == nil || woke.Before(asked) { // else its machine slept meanwhile, and its code ran on
				w.Promised(p.who, name, h.Fence(), until)
			}
			w.Look(name)
			if s, ok := h.(interface{ Suspended() bool }); ok && s.Suspended() && !w.calm.Load() {
				w.count("suspended")
			}
		}
		c.write(name, h, shared)
	})
}

// A bare handle shows the referee no context.
type bare struct{ m mortal }

func (b bare) Err() error       { return b.m.Err() }
func (b bare) Until() time.Time { return b.m.Until() }

// asked is closed when a holder that gives way is asked to.
func (c *caller) asked(h lock.Held) <-chan struct{} {
	if c.luck.IntN(2) == 0 {
		return nil
	}
	return node.Asked(h)
}

// write writes to the resource that the lock guards. It refuses nobody who holds the lock.
func (c *caller) write(name string, h lock.Held, shared bool) {
	write := c.w.gate(name).Do
	if shared {
		write = c.w.gate(name).Share
	}
	if c.p.dead.Load() || h.Err() != nil {
		return
	}
	if err := write(h.Fence(), func() error { return nil }); err != nil && h.Err() == nil && !c.p.dead.Load() {
		c.w.Wrong("the resource refuses %s, which holds %s: %v", c.p.who, name, err)
	}
}

// release gives a handle back, now and then twice, and judges what it says.
func (c *caller) release(name string, h lock.Held) {
	p := c.p
	began := time.Now()
	first, why := h.Release(), h.Err()
	took := p.took(began)
	switch again := h.Release(); {
	case p.dead.Load():
	case took > p.releases(h) && !p.dawdles.Load():
		c.w.Wrong("Release of %s by %s takes %v", name, p.who, took)
	case first == nil && !errors.Is(why, lock.ErrReleased), first != nil && !errors.Is(first, lock.ErrLost), first != nil && !errors.Is(why, lock.ErrLost):
		c.w.Wrong("%s released %s with %v, and its handle says %v", p.who, name, first, why)
	case fmt.Sprint(again) != fmt.Sprint(first), h.Err().Error() != why.Error():
		c.w.Wrong("%s released %s twice, with %v and %v, and its handle says %v and %v", p.who, name, first, again, why, h.Err())
	case c.w.stalls == 0 && (h.Context().Err() == nil || context.Cause(h.Context()) == nil):
		c.w.Wrong("%s has released %s, and the context of its handle goes on", p.who, name)
	case h.Until().After(time.Now()):
		c.w.Wrong("%s has released %s, and its handle says that it holds it until %v", p.who, name, h.Until())
	case first != nil:
		c.w.count("lost")
	}
}

func (c *caller) name() string { return c.p.names[c.luck.IntN(len(c.p.names))] }

// mutex draws a lock, and whether to share it.
func (c *caller) mutex() (m lock.Mutex, shared bool) {
	m = c.p.lock(c.name())
	if shared = c.p.shares && c.luck.IntN(3) == 0; shared {
		m = m.(lock.Sharable).Shared()
	}
	return m, shared
}

// acquire takes a lock, or tries to.
func (c *caller) acquire(ctx context.Context) {
	m, shared := c.mutex()
	what, take, try := "Acquire", m.Acquire, c.luck.IntN(4) == 0
	if try {
		what, take = "TryAcquire", m.TryAcquire
	}
	if shared {
		what += " to share"
	}
	var h lock.Held
	if !c.call(what, ctx, c.p.linger(), try, func() (err error) {
		h, err = take(ctx)
		if (h == nil) == (err == nil) {
			c.w.Wrong("%s of %s returns %v and %v", what, c.p.who, h, err)
		}
		return err
	}) {
		return
	}
	c.stay(m.Name(), h, shared)
	c.release(m.Name(), h)
}

// observe follows the election: epochs do not fall.
func (w *World) observe(p *process) {
	var last uint64
	for leader, epoch := range p.node.Election("x").Observe(p.ctx) {
		if epoch < last {
			w.Wrong("%s observes the epoch %x of %v after %x", p.who, epoch, leader, last)
		}
		last = epoch
		w.count("Observe")
	}
}

// semaphore takes a permit.
func (c *caller) semaphore(ctx context.Context) {
	name := c.name()
	permits := 1 + c.luck.IntN(3)
	if c.p.node == nil && c.p.client == nil {
		permits = 1 // a record has one lock
	} else if name = "permits"; permits == 1 {
		permits = 4
	}
	s := semaphore.New(name, permits, c.p.lock)
	if c.luck.IntN(4) == 0 {
		c.permitted(ctx, s, name)
		return
	}
	take, try := s.Acquire, c.luck.IntN(4) == 0
	if try {
		take = s.TryAcquire
	}
	var h *semaphore.Permit
	if !c.call("Acquire of a semaphore", ctx, 2*c.p.linger(), try, func() (err error) {
		h, err = take(ctx)
		return err
	}) {
		return
	}
	name = permit(name, h.Number)
	c.stay(name, h, false)
	c.release(name, h)
}

// permit is the name of the lock that is a permit.
func permit(semaphore string, number int) string {
	if number == 0 {
		return semaphore
	}
	return fmt.Sprintf("%s#%d", semaphore, number)
}

// all takes several locks, in their order.
func (c *caller) all(ctx context.Context) {
	var t *node.Txn
	if !c.call("AcquireAll", ctx, 0, false, func() (err error) {
		t, err = c.p.node.AcquireAll(ctx, c.p.names...)
		return err
	}) {
		return
	}
	c.finish(t, c.name())
}

// txn takes two locks in any order. Without the search for deadlocks it waits for the second one not for long.
func (c *caller) txn(ctx context.Context) {
	one, other := c.name(), c.name()
	if one == other {
		return
	}
	t := c.p.node.Txn()
	for _, name := range []string{one, other} {
		brief, cancel := ctx, context.CancelFunc(func() {})
		if c.w.deadlock == 0 && name == other {
			brief, cancel = context.WithTimeout(ctx, leaseOf/4)
		}
		ok := c.call("Acquire of a transaction", brief, 0, false, func() error {
			_, err := t.Acquire(brief, name)
			return err
		})
		cancel()
		if !ok {
			break
		}
	}
	c.finish(t, one)
}

// finish holds a lock of a transaction, and gives all of them back.
func (c *caller) finish(t *node.Txn, name string) {
	if h := t.Held(name); h != nil {
		c.stay(name, h, false)
	}
	if err := t.Release(); err != nil && !errors.Is(err, lock.ErrLost) {
		c.w.Wrong("Release of a transaction of %s: %v", c.p.who, err)
	}
}

// ask asks for a lock, or who holds it, or how all stands.
func (c *caller) ask(ctx context.Context) {
	m := c.p.node.Mutex(c.name())
	switch c.luck.IntN(4) {
	case 0:
		c.call("Ask", ctx, 0, false, func() error { return m.Ask(ctx) })
	case 1:
		c.call("Holder", ctx, 0, false, func() error {
			_, err := m.Holder(ctx)
			return err
		})
	case 2:
		c.call("Ready", ctx, 0, false, func() error { return c.p.node.Ready(ctx) })
	default:
		st := c.p.node.Status()
		if st.Held < 0 || st.Lease != nil && st.Lease.Remains > leaseOf {
			c.w.Wrong("the status of %s is %+v", c.p.who, st)
		}
		_ = m.Status()
		for range c.p.node.Locks() {
		}
		c.w.count("Status")
	}
}

// look waits until a client has a session, or asks for a lock that no client may have.
func (c *caller) look(ctx context.Context) {
	if c.luck.IntN(2) == 0 {
		c.call("Ready of a client", ctx, 0, false, func() error { return c.p.client.Ready(ctx) })
		return
	}
	h, err := c.p.client.Mutex(forbidden).Acquire(ctx)
	switch {
	case err == nil && !c.p.dead.Load():
		c.w.Wrong("%s was granted what it must not have", c.p.who)
		_ = h.Release()
	case ctx.Err() == nil && !errors.Is(err, client.ErrRefused) && !c.p.ending.Load() && !c.p.dead.Load():
		c.w.Wrong("%s asks for what it must not have: %v", c.p.who, err)
	}
	c.w.count("refused")
}

// nodeObserver observes a member, and calls it now and then.
func (w *World) nodeObserver(p *process) *node.Observer {
	if !w.observers {
		return nil
	}
	o := w.observer(p)
	return node.Observers(nil, &node.Observer{Wait: o, Hold: o}, &node.Observer{
		Hold:  func(lock.Event) { w.count("Hold") },
		View:  func(v node.ViewStatus) { w.count("View") },
		Lease: func(node.LeaseStatus) { w.count("Lease") },
	})
}

func (w *World) clientObserver(p *process) *client.Observer {
	if !w.observers {
		return nil
	}
	o := w.observer(p)
	return &client.Observer{Wait: o, Hold: o, Move: func(lock.Event) { w.count("Move") }}
}

// observer takes its time now and then, or uses the locks. Then the calls of its process may be late.
func (w *World) observer(p *process) func(lock.Event) {
	p.dawdles.Store(true)
	luck := w.Random()
	return func(lock.Event) {
		var fate int
		var nap time.Duration
		p.mu.Lock()
		fate, nap = luck.IntN(20), time.Duration(luck.Int64N(int64(leaseOf/10)))
		p.mu.Unlock()
		switch {
		case w.calm.Load():
		case fate == 0:
			time.Sleep(nap)
		case fate == 1 && p.lock != nil && p.node != nil:
			_ = p.node.Status()
		case fate == 2 && p.client != nil:
			_ = p.client.Status()
		}
	}
}
