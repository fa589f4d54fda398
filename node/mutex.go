package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// A Mutex is one lock of the group, by its name. It has no state of its own:
// any number of them may stand for one lock. Its methods are safe for
// concurrent use, and goroutines of one node queue like those of different
// nodes.
type Mutex struct {
	shard   *shard
	hash    uint64 // of the name
	name    string
	maxHold time.Duration
	txn     *Txn // within its Acquire, if a circle is to be looked for; else nil
}

// Name returns the lock's name.
func (m *Mutex) Name() string { return m.name }

// MaxHold returns the same lock with a bound on how long a handle that is
// acquired through it may be used: the handle's context gets a deadline, that
// long after the acquisition, and then ends with [ErrMaxHold]. 0 is no bound.
//
// It tells the holder to stop, and nothing else: the lock stays held until
// Release, since nobody may be let in while the holder may still be at work. It
// is no lease.
func (m *Mutex) MaxHold(d time.Duration) *Mutex {
	return &Mutex{shard: m.shard, hash: m.hash, name: m.name, maxHold: d}
}

// Acquire waits for the lock and returns the handle that holds it. It first
// waits until this node has met all members.
//
// If ctx ends first, Acquire returns at once with ctx's error, nothing of the
// call is left behind, and no other node loses its turn. Other errors:
// [ErrClosed]; a [PeerError] when a peer stands in the way; [transport.ErrClosed]
// once the link was found closed; [dmutex.ErrMisuse] for a name that is empty or
// too long, or a negative [Mutex.MaxHold]. Acquire returns a handle or an error,
// never both and never neither.
//
// ctx does not bound the time that the lock is held.
func (m *Mutex) Acquire(ctx context.Context) (*Held, error) { return m.acquire(ctx, false) }

// TryAcquire takes the lock if it is free and says [ErrBusy] otherwise; the
// error is a [BusyError]. It does not wait for a holder, but asks and waits for
// the answers: until every node that was asked has confirmed that it knows,
// which takes a message there and back, or until ctx ends.
//
// A busy lock is never taken. A free one may be called busy: if two try at the
// same moment; if a request that was withdrawn at this node, as by the last
// TryAcquire in vain, has not had its turn; if the network loses or reorders
// messages; in the first moments of a group, while the nodes that are asked are
// not all [Node.Ready]; or under an algorithm in which the answer takes more than
// one hop there and back (a token that is passed on, for one).
func (m *Mutex) TryAcquire(ctx context.Context) (*Held, error) { return m.acquire(ctx, true) }

// lawful refuses what is not the name of a lock.
func lawful(name string) error {
	if len(name) == 0 || len(name) > transport.MaxName {
		return dmutex.Misuse(fmt.Sprintf("the name of a lock has 1 to %d bytes, not %d", transport.MaxName, len(name)))
	}
	return nil
}

func (m *Mutex) acquire(ctx context.Context, trying bool) (*Held, error) {
	if err := lawful(m.name); err != nil {
		return nil, err
	}
	if m.maxHold < 0 {
		return nil, dmutex.Misuse(fmt.Sprintf("MaxHold is at least 0, not %v", m.maxHold))
	}
	var h *Held
	var err error
	if o := m.shard.node.cfg.Observer; o != nil && o.Wait != nil {
		h, err = m.observe(ctx, trying)
	} else {
		h = &Held{ctx: ctx}
		err = m.wait(h, nil, trying)
	}
	if err != nil {
		return nil, err
	}
	if m.maxHold > 0 {
		h.limit(m.maxHold)
	}
	return h, nil
}

// wait makes h hold the lock, or says why not.
func (m *Mutex) wait(h *Held, told *Wait, trying bool) error {
	ctx, s := h.ctx, m.shard
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.node.Ready(ctx); err != nil {
		return err
	}
	var try *trial
	if trying {
		try = &trial{held: h}
	}
	var ready <-chan struct{}
	s.mu.Lock()
	l, err := s.lock(m.hash, m.name)
	if err == nil {
		ready, err = l.join(h, told, try)
	}
	s.mu.Unlock()
	s.node.flush()
	if err != nil || ready == nil {
		return err
	}
	var look <-chan time.Time
	if m.txn != nil {
		ticker := m.txn.wait(h)
		defer m.txn.waited()
		defer ticker.Stop()
		look = ticker.C
	}
	var long <-chan time.Time
	if s.node.log != nil {
		long = time.After(longAfter)
	}
	for {
		select {
		case <-ready:
			if err := h.Err(); err != nil {
				return m.giveUp(h, err) // an election's lock may have been granted, and lost, and be ours to release
			}
			return nil
		case <-ctx.Done():
			return m.giveUp(h, ctx.Err())
		case <-s.node.down:
			return m.giveUp(h, s.node.downReason())
		case <-look:
			m.txn.chase()
		case <-long:
			long = time.After(s.node.noteWait(h))
		}
	}
}

// giveUp ends a wait from the waiter's side.
func (m *Mutex) giveUp(h *Held, why error) error {
	m.shard.mu.Lock()
	switch {
	case h.waits():
		h.lock.quit(h, why)
	case h.lock.held == h:
		h.lock.release(released, nil) // the grant and the end of the wait met
	}
	m.shard.mu.Unlock()
	m.shard.node.flush()
	m.shard.node.pokeDrain() // as in Held.release
	return why
}

// Do runs f while holding the lock, and releases it when f has returned,
// panicked or ended its goroutine, and not before, whatever becomes of ctx. f's
// context is derived from ctx and also ends with the handle's ([Held.Context]);
// its fence is that of the grant. Do returns f's error, or why the lock was not
// had, or why it was lost while f ran.
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context, fence uint64) error) (err error) {
	h, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if lost := h.Release(); lost != nil {
			err = errors.Join(err, lost)
		}
	}()
	if deadline, bounded := h.Context().Deadline(); bounded {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadlineCause(ctx, deadline, ErrMaxHold)
		defer stop()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.Context(), func() { cancel(context.Cause(h.Context())) })()
	return f(ctx, h.fence)
}

// Locker returns the lock as a [sync.Locker], for code that knows no other. Any
// number of Lockers may stand for one lock; each unlocks what it has locked.
//
// A Locker hides what a [Held] tells: there is no context, no fence, and no
// error. Lock waits for as long as it takes, and where Acquire would return an
// error Lock panics with it, for to return without the lock would be worse.
// Unlock panics if it does not release: with [dmutex.ErrMisuse] if the Locker
// is not locked, with an [ErrLost] if the lock was lost in between.
func (m *Mutex) Locker() sync.Locker { return &locker{mutex: m} }

type locker struct {
	mutex *Mutex
	held  atomic.Pointer[Held]
}

func (l *locker) Lock() {
	h, err := l.mutex.Acquire(context.Background())
	if err != nil {
		panic(err)
	}
	l.held.Store(h)
}

func (l *locker) Unlock() {
	h := l.held.Swap(nil)
	if h == nil {
		panic(dmutex.Misuse("Unlock of a Locker that is not locked"))
	}
	if err := h.Release(); err != nil {
		panic(err)
	}
}

// A Held is a lock that is held, from a successful Acquire to Release. It is
// the owner: whoever has it may release it, from any goroutine. Its methods
// are safe for concurrent use and none of them waits. It must not be copied.
//
// A write that is still on its way when its process dies, or whose process lost
// the lock in between, may arrive when somebody else holds it; only a resource
// that refuses lower fences than it has seen is safe from that. Pass Fence
// along.
type Held struct {
	lock  *lock
	fence uint64
	over  atomic.Pointer[error] // why it is not held: errPending, failed, released or lost; nil or errLimited while it is
	since int64                 // by Node.now: when it began to wait and, once granted, when it was; guarded by the shard's mutex
	ctx   context.Context       // Acquire's, and a holdContext once one is needed; guarded by the shard's mutex
}

// A holdContext ends with the hold.
type holdContext struct {
	context.Context
	cancel context.CancelCauseFunc
	asked  chan struct{} // see Asked; nil while nobody asks or wants to know
}

// A trial is a TryAcquire that waits until everybody who was asked knows of it.
type trial struct {
	held    *Held
	unheard int // peers that have not confirmed the request
}

var (
	// errPending is why a hold has not begun.
	errPending = errors.New("node: the lock is not granted yet")

	// errLimited says that the hold goes on, and has a bound: ctx is a holdContext
	// for good.
	errLimited = errors.New("node: the context tells")
)

// waits reports whether it is neither granted nor refused.
func (h *Held) waits() bool { return h.over.Load() == &errPending }

// unanswered counts a confirmation that came without a grant. When all have
// come, the lock is busy.
func (t *trial) unanswered() {
	l := t.held.lock
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	t.unheard--
	if t.unheard == 0 && t.held.waits() {
		l.quit(t.held, l.busy())
	}
}

// end marks the hold as over.
func (h *Held) end(reason *error) {
	if over := h.over.Load(); over != nil && over != &errLimited {
		return // it was lost, and is released only now
	}
	h.over.Store(reason)
	if c, ok := h.ctx.(*holdContext); ok {
		c.cancel(*reason)
	}
}

// How a hold ends. They are pointers so that a Release allocates nothing.
var (
	released       = &ErrReleased
	closed   error = &lossError{ErrClosed}
)

// Fence returns the number of this grant. Of any two grants of one lock the
// later has the higher number.
func (h *Held) Fence() uint64 { return h.fence }

// Err says whether the work may go on: it returns nil while the lock is held,
// [ErrMaxHold] if it was held for longer than [Mutex.MaxHold] and is held still,
// [ErrReleased] after Release, and an [ErrLost] that says why if it was lost.
func (h *Held) Err() error {
	switch reason := h.over.Load(); reason {
	case nil:
		return nil
	case &errLimited:
		return context.Cause(h.ctx)
	default:
		return *reason
	}
}

// Context returns a context that ends with the hold, or when [Mutex.MaxHold] is
// over; [context.Cause] is what Err said first. It has the values of Acquire's
// context, but not its deadline.
func (h *Held) Context() context.Context {
	mu := &h.lock.shard.mu
	mu.Lock()
	defer mu.Unlock()
	return h.own().Context
}

// own returns the handle's own context, and makes it if need be.
func (h *Held) own() *holdContext {
	if c, ok := h.ctx.(*holdContext); ok {
		return c
	}
	return h.derive(context.WithoutCancel(h.ctx))
}

// limit gives a new handle its context at once, with a deadline. The end of the
// hold stops the timer.
func (h *Held) limit(d time.Duration) {
	mu := &h.lock.shard.mu
	mu.Lock()
	defer mu.Unlock()
	bounded, stop := context.WithTimeoutCause(context.WithoutCancel(h.ctx), d, ErrMaxHold)
	c := h.derive(bounded)
	cancel := c.cancel
	c.cancel = func(why error) {
		cancel(why)
		stop()
	}
	if !h.over.CompareAndSwap(nil, &errLimited) {
		stop() // it is lost already
	}
}

// derive makes the handle's own context.
func (h *Held) derive(parent context.Context) *holdContext {
	ctx, cancel := context.WithCancelCause(parent)
	c := &holdContext{Context: ctx, cancel: cancel}
	if before, ok := h.ctx.(*holdContext); ok {
		c.asked = before.asked // asked between the grant and limit
	}
	if err := h.Err(); err != nil {
		cancel(err)
	}
	h.ctx = c
	return c
}

// Release gives the lock back. It ends this grant and never another: once the
// hold is over it changes nothing, and returns nil if it was released and an
// [ErrLost] if it was lost.
func (h *Held) Release() error {
	if n := h.lock.shard.node; n.cfg.Observer != nil {
		var hold Hold
		h.release(&hold)
		n.tell(hold)
	} else {
		h.release(nil)
	}
	switch reason := h.over.Load(); reason {
	case nil, &errLimited:
		return dmutex.Misuse("Release of a copied Held")
	case released:
		return nil
	default:
		return *reason
	}
}

func (h *Held) release(told *Hold) {
	s := h.lock.shard
	s.mu.Lock()
	if h.lock.held == h {
		h.lock.release(released, told)
	}
	s.mu.Unlock()
	s.node.flush()
	s.node.pokeDrain() // Close waits for those who hold an election's lock
}

// lossError is an ErrLost with its cause.
type lossError struct{ cause error }

func (e *lossError) Error() string   { return ErrLost.Error() + ": " + e.cause.Error() }
func (e *lossError) Unwrap() []error { return []error{ErrLost, e.cause} }
