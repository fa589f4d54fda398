package storelock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/lockrecord"
	"github.com/dmutex/dmutex/internal/storecall"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/store"
)

const (
	firstPoll = 20 * time.Millisecond
	slowPoll  = 300 * time.Millisecond // without proof
	livePoll  = time.Second            // with it: a lock is also released while the life goes on, in a child
	stampede  = 2 * time.Millisecond   // over which waiters that are told at once spread
	maxSleep  = time.Second            // how late a lease is seen to have ended after the machine has slept
)

// An attempt drives the machine of one Acquire until nothing of it is left. It is the handle, too.
type attempt struct {
	*hold.Hold // nil until it is granted
	l          *mutex
	ctx        context.Context // of Acquire
	try        bool
	leave      context.Context // ends when release is called; once run has noticed, one that never ends
	release    context.CancelFunc
	granted    chan struct{}
	over       chan struct{}
	why        error        // it is over without a grant, or without a release; from over on
	unsure     bool         // a swap may have changed the record; from over on
	trouble    hold.Trouble // what the caller is told when its patience, or the lease, ends

	// The rest is run's own.
	m        *lockrecord.Machine
	line     storecall.Line // to the store
	life     store.Life     // nil if the store has none
	slept    int64
	giveUpAt int64 // after a release
	giveAt   int64 // when a hold that was lost is given back, as its holder has had time to stop; 0 if it was not

	failed [lockrecord.Swap + 1]error // the last load and swap, until another succeeds
	busy   error                      // who holds the lock, while that is what it waits for
	first  string                     // the revision that it waited for first
	late   int                        // swaps that have met another record since it waited for a life
}

// now reads the clock, and tells the machine how far it has leapt.
func (a *attempt) now() int64 {
	now, slept := a.l.clock.Read()
	leapt := slept - a.slept
	a.slept = slept
	a.m.Leapt(leapt)
	if a.giveAt != 0 {
		a.giveAt += leapt
	}
	return now
}

func (a *attempt) run() {
	_, a.slept = a.l.clock.Read()
	a.m = lockrecord.New(a.l.Lock, a.live(), a.l.process, int64(a.l.lease))
	if a.l.prover != nil {
		a.m.Prover(a.life != nil)
	}
	defer func() {
		a.unsure = a.m.Phase(a.now()) != lockrecord.Over
		if a.Hold != nil && a.why == nil && a.unsure {
			a.why = cmp.Or(a.trouble.Err(), errors.New("the store has not confirmed it"))
		}
		if a.life != nil { // last: others may take the lock then
			_ = a.life.Close() // the kernel has closed the file in any case
		}
		a.release()
		close(a.over)
	}()
	for pause := firstPoll; !a.settled(); {
		op, value, rev := a.m.Operation(a.now(), a.floor())
		r, seen, waits := a.m.Awaits()
		switch {
		case op != lockrecord.None:
			a.perform(op, value, rev)
		case waits:
			pause = a.wait(r, seen, pause)
		case a.m.Phase(a.now()) != lockrecord.Over: // else the fences are used up
			a.sleep(min(a.left(), maxSleep))
		}
	}
}

// settled lets the machine follow the caller, and the handle follow the machine. It reports whether
// nothing is left to do.
func (a *attempt) settled() bool {
	now := a.now()
	if a.leave.Err() != nil {
		a.leave, a.giveUpAt = context.Background(), now+int64(a.l.lease)
		a.m.Release(now)
	}
	phase := a.m.Phase(now)
	switch {
	case phase == lockrecord.Over && a.Hold == nil:
		a.why = a.m.Err()
	case phase != lockrecord.Waiting:
		a.follow(phase, now)
	}
	return phase == lockrecord.Over || a.why != nil || a.giveUpAt != 0 && now >= a.giveUpAt
}

// follow updates the handle from the machine.
func (a *attempt) follow(phase lockrecord.Phase, now int64) {
	if a.Hold == nil { // it is granted, and has perhaps ended at once
		lapsed := a.lapsed
		if a.life != nil {
			lapsed = nil
		}
		a.Hold = hold.New(a.ctx, a.l.clock, a.m.Term(), a.m.Fence(), lapsed)
		a.busy = nil
		a.note()
		close(a.granted)
	}
	switch err := a.m.Err(); {
	case phase == lockrecord.Held && a.Over():
		a.m.End() // and renew it no more
	case phase == lockrecord.Held:
		a.Extend(a.m.Term())
	case err != nil:
		a.End(a.l.Error(fmt.Errorf("%w: %w", lock.ErrLost, err)))
	default:
		a.End(a.lapsed())
	}
	if phase == lockrecord.Ended { // nobody need call Release
		if a.giveAt == 0 {
			a.giveAt = max(a.m.Expiry(), now+int64(a.l.lease/leases.Margin))
		}
		if now >= a.giveAt {
			a.release()
		}
	}
}

// lapsed is the error of a handle whose lease has ended.
func (a *attempt) lapsed() error {
	return a.l.Error(a.trouble.Add(fmt.Errorf("%w: the lease was not renewed in time", lock.ErrLost)))
}

// left is how long it takes until the machine wants something.
func (a *attempt) left() time.Duration {
	now := a.now()
	return time.Duration(max(a.m.Deadline(), a.giveAt) - now)
}

// note says what stands in the way now.
func (a *attempt) note() {
	a.trouble.Note(cmp.Or(a.failed[lockrecord.Load], a.failed[lockrecord.Swap], a.busy))
}

// wait waits until the life is over that holds the lock by this revision, or for a pause, and has the
// record loaded then. It returns the next pause. A try fails unless that life is over.
func (a *attempt) wait(r lockrecord.Record, rev string, pause time.Duration) time.Duration {
	a.first, a.late = cmp.Or(a.first, rev), 0
	a.failed[lockrecord.Swap] = nil // it is not what the caller waits for
	a.busy = a.held(r)
	a.note()
	defer a.m.Poll()
	until, longest := time.Now().Add(a.jitter(pause)), slowPoll
	lives, err := a.lives(r.Holder, until)
	if !errors.Is(err, store.ErrNoProof) {
		a.m.Provable()
	}
	switch {
	case lives:
		longest = min(a.l.lease/leases.Renew, livePoll)
	case err == nil: // but a swap of this life may still take effect
		a.m.Proved(rev)
		a.sleep(a.l.clock.UpTo(stampede))
		return pause
	case errors.Is(err, store.ErrNoProof): // the lease decides
		a.m.Unprovable(a.now(), r.Holder)
		if rev == a.first { // else somebody has renewed it
			left := a.left().Truncate(time.Millisecond) + time.Millisecond
			a.busy = fmt.Errorf("%w; if that has crashed, a wait of more than %v replaces it: %w", a.busy, left, store.ErrNoProof)
		}
	default:
		a.busy = fmt.Errorf("%w; the store cannot tell whether it lives: %w", a.busy, err)
	}
	if a.try {
		a.why = a.busy
		return 0
	}
	a.note()
	a.sleep(min(time.Until(until), a.left()))
	return min(pause*3/2, longest)
}

// lives reports whether a life is not over yet: at once for a try, else at that time, if it is not over
// before. The error is why nobody can tell.
func (a *attempt) lives(life string, until time.Time) (bool, error) {
	if a.l.prover == nil {
		return false, store.ErrNoProof
	}
	if a.try {
		until = time.Now().Add(a.operation())
	}
	ctx, cancel := context.WithDeadline(a.leave, until)
	defer cancel()
	if a.try {
		living, err := storecall.Within(ctx, a.l.prover.Living)
		if err != nil || slices.Contains(living, life) {
			return err == nil, err
		}
	}
	_, err := storecall.Within(ctx, func(ctx context.Context) (none struct{}, err error) { return none, a.l.prover.Over(ctx, life) })
	if err != nil && ctx.Err() != nil && !a.try {
		return true, nil
	}
	return false, err
}

// sleep waits for so long, or until the caller leaves. Go's race detector may crash in a bubble on a timer of 0.
func (a *attempt) sleep(d time.Duration) {
	select {
	case <-time.After(max(a.l.clock.Span(d), 1)):
	case <-a.leave.Done():
	}
}

// jitter keeps waiters from asking together.
func (a *attempt) jitter(d time.Duration) time.Duration { return d/2 + a.l.clock.UpTo(d/2) }

// live begins a life, and returns its name. Without a store that proves anything it is only that.
func (a *attempt) live() string {
	if a.l.prover != nil {
		ctx, cancel := context.WithTimeout(a.leave, a.operation())
		defer cancel()
		life, err := storecall.Within(ctx, func(ctx context.Context) (store.Life, error) {
			life, err := a.l.prover.Live(ctx)
			if err == nil && ctx.Err() != nil { // it may be too late
				_ = life.Close()
				return nil, ctx.Err()
			}
			return life, err
		})
		switch {
		case err == nil:
			a.life = life
			return life.Name()
		case errors.Is(err, store.ErrUnusable) && !errors.Is(err, store.ErrNoProof):
			a.why = err
		}
	}
	return rand.Text()
}

// floor is below the fences of a new record.
func (a *attempt) floor() uint64 { return epochs.Fence(a.l.clock.Wall()) }

// operation is how long the store may take.
func (a *attempt) operation() time.Duration { return a.l.clock.Span(a.l.lease / leases.Operation) }

// perform asks the store, and gives the machine the outcome. If that is unknown, it then waits.
func (a *attempt) perform(op lockrecord.Operation, value []byte, rev string) {
	parent := context.Background()
	if op == lockrecord.Load {
		parent = a.leave // it is asked for again if it is needed then
	}
	ctx, cancel := context.WithTimeout(parent, a.operation())
	defer cancel()
	if a.Hold != nil && !a.Over() {
		go a.watch(ctx)
	}
	type answer struct {
		value []byte
		rev   store.Revision
	}
	got, err := storecall.Ask(ctx, a.line, func(ctx context.Context) (got answer, err error) {
		if op == lockrecord.Load {
			got.value, got.rev, err = a.l.store.Load(ctx)
		} else {
			got.rev, err = a.l.store.Swap(ctx, value, store.Revision(rev))
		}
		return got, err
	})
	switch now := a.now(); {
	case err != nil:
		a.m.Unknown(now)
	case op == lockrecord.Load:
		a.m.Loaded(now, got.value, string(got.rev))
	default:
		a.m.Swapped(now, string(got.rev))
	}
	switch {
	case err == nil || errors.Is(err, store.ErrConflict):
		a.failed[op] = nil
		a.note()
		if err != nil { // another has the record as a rule, but a store may refuse each swap from what it has shown
			a.sleep(a.l.clock.UpTo(min(stampede<<a.late, slowPoll, a.l.lease/leases.Margin)))
			a.late = min(a.late+1, 8)
		}
		return
	case errors.Is(err, store.ErrUnusable) && (a.Hold == nil || a.giveUpAt != 0): // asking again mends nothing
		a.why = err
		return
	case errors.Is(err, store.ErrForgotten): // as if it did not answer, until no lease of a record that is lost can run
		a.failed[op] = fmt.Errorf("a process may still hold it, whose lease has to end: %w", err)
		a.note()
	case parent.Err() == nil:
		a.failed[op] = fmt.Errorf("the store does not answer: %w", err)
		a.note()
	}
	if a.Hold != nil && a.life != nil {
		a.look()
	}
	a.sleep(a.jitter(min(slowPoll, a.l.lease/leases.Margin)))
}

// watch ends a hold in time while run waits for the store, also after the machine has slept.
func (a *attempt) watch(ctx context.Context) {
	for a.Err() == nil {
		select {
		case <-time.After(a.l.clock.Span(maxSleep)):
		case <-ctx.Done():
			return
		}
	}
}

// look ends a hold that cannot be renewed if the others cannot see its life any more, as when its file was
// removed. They may have seen that before, and replace it a lease later.
func (a *attempt) look() {
	ctx, cancel := context.WithTimeout(context.Background(), a.operation())
	defer cancel()
	living, err := storecall.Within(ctx, a.l.prover.Living)
	if errors.Is(err, store.ErrNoProof) || err == nil && !slices.Contains(living, a.life.Name()) {
		a.m.End()
	}
}

// held says who holds the lock, and for how long: a fence begins at the clock of the grant.
func (a *attempt) held(r lockrecord.Record) error {
	now := a.floor()
	age := time.Duration(epochs.Of(now-min(now, r.Fence))) * time.Millisecond
	return fmt.Errorf("%w: %s has held it for %v", lock.ErrBusy, cmp.Or(r.Name, "life "+r.Holder), age.Round(time.Second))
}
