package storelock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/internal/lockrecord"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/store"
)

const (
	opShare = 4 // an operation of the store may take a 4th of the lease

	firstPoll = 20 * time.Millisecond
	slowPoll  = 300 * time.Millisecond // without proof; with it, a third of the lease
	stampede  = 2 * time.Millisecond   // over which waiters that are told at once spread
)

// An attempt drives the machine of one Acquire until nothing of it is left.
type attempt struct {
	l       *Lock
	ctx     context.Context // of Acquire
	try     bool
	granted chan struct{}
	over    chan struct{}
	why     error // it is over without a grant
	held    *held
	wake    chan struct{}
	life    store.Life // nil if the store has none

	mu       sync.Mutex // guards the rest
	m        *lockrecord.Machine
	slept    int64
	err      error // why the last operation failed; nil if it did not
	fails    int   // operations that failed in a row
	cancel   context.CancelFunc
	giveUpAt int64 // after a release

	// Of a wait for a life that the store cannot prove dead.
	first string // the revision that was seen first
	doubt error  // what the caller is told, until another revision shows that the life lives
}

func (l *Lock) begin(ctx context.Context, try bool) *attempt {
	a := &attempt{
		l: l, ctx: ctx, try: try,
		granted: make(chan struct{}), over: make(chan struct{}), wake: make(chan struct{}, 1),
		m: lockrecord.New(l.name, int64(l.lease)), cancel: func() {},
	}
	_, a.slept = l.clock.Read()
	go a.run()
	return a
}

// now reads the clock, and tells the machine how far it has leapt.
func (a *attempt) now() int64 {
	now, slept := a.l.clock.Read()
	a.m.Leapt(slept - a.slept)
	a.slept = slept
	return now
}

// nudge makes run look again.
func (a *attempt) nudge() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// release ends the hold, or the wait.
func (a *attempt) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.giveUpAt != 0 {
		return
	}
	now := a.now()
	a.giveUpAt = now + int64(a.l.lease)
	if a.m.Release(now); a.m.Phase() == lockrecord.Over {
		a.cancel()
	}
	a.nudge()
}

func (a *attempt) run() {
	w := new(watch)
	defer func() {
		w.end()
		if a.life != nil {
			_ = a.life.Close() // the kernel has closed the file in any case
		}
		if a.held != nil {
			a.mu.Lock()
			a.held.End(a.reason())
			a.mu.Unlock()
		}
		close(a.over)
	}()
	pause := firstPoll
	for !a.settled() {
		a.live(false)
		if op, value, rev := a.operation(); op != lockrecord.None {
			if a.perform(op, value, rev) {
				continue
			}
			if a.why != nil {
				return
			}
			_, _ = a.sleep(nil, min(jitter(firstPoll<<min(a.fails, 10)), a.l.lease/16))
			continue
		}
		a.mu.Lock()
		life, rev, waits := a.m.Awaits()
		left := time.Duration(a.m.Deadline() - a.now())
		a.mu.Unlock()
		switch {
		case !waits:
			_, _ = a.sleep(nil, left)
		case a.try:
			dead, lives := a.dead(life)
			switch {
			case dead:
				a.proved(rev)
				continue
			case lives:
				a.why = fmt.Errorf("%w: life %s holds it", lock.ErrBusy, life)
			default:
				a.why = fmt.Errorf("%w: %w", lock.ErrBusy, noProof(life, left))
			}
			return
		default:
			a.live(true)
			most := slowPoll
			if a.watch(w, life); w.done != nil {
				most = a.l.lease / 3
			}
			a.mu.Lock()
			if w.done == nil && a.first == "" {
				a.first, a.doubt = rev, noProof(life, left)
			} else if rev != a.first {
				a.doubt = nil
			}
			a.mu.Unlock()
			err, told := a.sleep(w.done, min(jitter(pause), left))
			pause = min(pause*3/2, most)
			a.mu.Lock()
			if a.m.Poll(); told && err != nil {
				a.m.Guard("") // the lease decides
				w.done = nil
			}
			a.mu.Unlock()
			if told && err == nil {
				w.end()
				_, _ = a.sleep(nil, time.Duration(mrand.Int64N(int64(stampede))))
				a.proved(rev)
			}
		}
	}
}

// sleep waits for so long, or for a nudge, or until it is told something.
func (a *attempt) sleep(done <-chan error, d time.Duration) (err error, told bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.wake:
	case err = <-done:
		told = true
	}
	return err, told
}

// jitter keeps waiters from asking together.
func jitter(d time.Duration) time.Duration { return d/2 + time.Duration(mrand.Int64N(int64(d/2))) }

// settled lets the handle follow the machine, and reports whether nothing is left to do.
func (a *attempt) settled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	a.m.Tick(now)
	switch a.m.Phase() {
	case lockrecord.Held:
		end := a.m.LeaseEnd()
		if a.held == nil {
			a.held = &held{hold.New(a.ctx, a.l.clock, a.l.lease, a.m.Fence(), end, a.lapsed), a}
			close(a.granted)
		} else if a.held.Over() {
			a.m.End() // and renew it no more
		} else {
			a.held.Extend(end)
		}
	case lockrecord.Ended:
		a.held.End(a.reason())
	case lockrecord.Over:
		a.why = a.m.Err()
		return true
	}
	return a.giveUpAt != 0 && now >= a.giveUpAt
}

// reason says why the lock is lost.
func (a *attempt) reason() error {
	why := a.m.Err()
	if why == nil {
		why = errors.New("the lease was not renewed in time")
		if a.err != nil {
			why = fmt.Errorf("%w: %w", why, a.err)
		}
	}
	return a.l.fail(fmt.Errorf("%w: %w", lock.ErrLost, why))
}

// lapsed is reason for a handle that finds its lease at the end.
func (a *attempt) lapsed() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nudge()
	return a.reason()
}

// live begins a life before the first swap, or while there is time for it. Without a store that
// proves anything it is a name.
func (a *attempt) live(waits bool) {
	a.mu.Lock()
	needed := a.m.Life() == "" && (waits || a.m.Swaps(a.now()))
	a.mu.Unlock()
	if !needed {
		return
	}
	name := rand.Text()
	if a.l.prover != nil {
		ctx, cancel := context.WithTimeout(context.Background(), a.l.lease/opShare)
		defer cancel()
		if life, err := a.l.prover.Live(ctx); err == nil {
			a.life, name = life, life.Name()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.m.Live(name)
}

// operation returns what the store is to do.
func (a *attempt) operation() (op lockrecord.Operation, value []byte, rev string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.m.Operation(a.now(), floor())
}

// floor is below the fences of a new record: the milliseconds since 2020, and room for four
// million grants in each.
func floor() uint64 {
	since := time.Now().UnixMilli() - time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	return uint64(max(since, 0)) << 22
}

// perform asks the store, and gives the machine the outcome.
func (a *attempt) perform(op lockrecord.Operation, value []byte, rev string) (ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), a.l.lease/opShare)
	defer cancel()
	a.mu.Lock()
	a.cancel = cancel
	if a.m.Phase() == lockrecord.Over { // released meanwhile
		cancel()
	}
	a.mu.Unlock()
	var next store.Revision
	var err error
	if op == lockrecord.Load {
		value, next, err = a.l.store.Load(ctx)
	} else {
		next, err = a.l.store.Swap(ctx, value, store.Revision(rev))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	switch {
	case err == nil && op == lockrecord.Load:
		a.m.Loaded(now, value, string(next))
	case err == nil:
		a.m.Swapped(now, string(next))
	default:
		a.m.Unknown(now)
	}
	if err == nil || errors.Is(err, store.ErrConflict) {
		a.err, a.fails = nil, 0
		return true
	}
	a.err = err
	a.fails++
	if errors.Is(err, store.ErrUnusable) && a.held == nil {
		a.why = err
	}
	return false
}

// proved tells the machine that the holder of this revision is dead.
func (a *attempt) proved(rev string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.m.Proved(rev)
}

// dead reports whether a life is proved to be over now, or to go on.
func (a *attempt) dead(life string) (dead, lives bool) {
	if a.l.prover == nil {
		return false, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.l.lease/opShare)
	defer cancel()
	living, err := a.l.prover.Living(ctx)
	lives = slices.Contains(living, life)
	return err == nil && !lives && a.l.prover.Over(ctx, life) == nil, lives
}

// noProof is what a caller learns of a life that is replaced if the record does not change for so long.
func noProof(life string, left time.Duration) error {
	return fmt.Errorf("life %s holds it; if that has crashed, a wait of more than %v replaces it: %w",
		life, left.Truncate(time.Millisecond)+time.Millisecond, store.ErrNoProof)
}

// A watch waits for the end of a life.
type watch struct {
	life   string
	done   chan error // nil if the store cannot tell
	cancel context.CancelFunc
}

// watch watches this life from now on. While it does, the end of its lease does not matter.
func (a *attempt) watch(w *watch, life string) {
	if a.l.prover == nil || w.life == life {
		return
	}
	w.end()
	a.mu.Lock()
	a.m.Guard(life)
	a.mu.Unlock()
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	done := make(chan error, 1)
	w.life, w.done = life, done
	go func() { done <- a.l.prover.Over(ctx, life) }()
}

func (w *watch) end() {
	if w.cancel != nil {
		w.cancel()
	}
	*w = watch{}
}
