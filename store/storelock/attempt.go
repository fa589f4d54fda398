package storelock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"time"

	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/lockrecord"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/store"
)

const (
	firstPoll = 20 * time.Millisecond
	slowPoll  = 300 * time.Millisecond // without proof; with it, a renewal
	stampede  = 2 * time.Millisecond   // over which waiters that are told at once spread
	courtesy  = time.Second            // to take back a swap when a context has ended, or others wait for it as for the dead
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
	why        error        // it is over without a grant; from over on
	trouble    hold.Trouble // what the caller is told when its patience, or the lease, ends

	// The rest is run's own.
	m        *lockrecord.Machine
	life     store.Life // nil if the store has none
	slept    int64
	giveUpAt int64 // after a release

	failed [lockrecord.Swap + 1]error // the last load and swap, until another succeeds

	// Of a wait for a life.
	blind string // a life whose end the store can never tell
	first string // the revision that was seen first without such proof
	busy  error  // who holds the lock, and why nobody can tell whether it lives
}

// now reads the clock, and tells the machine how far it has leapt.
func (a *attempt) now() int64 {
	now, slept := a.l.clock.Read()
	a.m.Leapt(slept - a.slept)
	a.slept = slept
	return now
}

func (a *attempt) run() {
	_, a.slept = a.l.clock.Read()
	a.m = lockrecord.New(a.l.Lock, a.live(), a.l.process, int64(a.l.lease))
	if a.life != nil {
		a.m.Lasts()
	}
	defer func() {
		if a.life != nil { // last: others may take the lock then
			_ = a.life.Close() // the kernel has closed the file in any case
		}
		a.release()
		close(a.over)
	}()
	for pause := firstPoll; !a.settled(); {
		if op, value, rev := a.m.Operation(a.now(), floor()); op != lockrecord.None {
			a.perform(op, value, rev)
			continue
		}
		r, rev, waits := a.m.Awaits()
		left := time.Duration(a.m.Deadline() - a.now())
		switch {
		case !waits:
			a.sleep(left)
		case a.try:
			if a.why = a.taken(r, left); a.why == nil {
				a.m.Proved(rev)
			}
		default:
			proves := a.l.prover != nil && r.Holder != a.blind
			a.failed[lockrecord.Swap] = nil // it is not what the caller waits for
			a.busy = held(r)
			if !proves && a.first == "" {
				a.first = rev
			}
			if !proves && a.first == rev {
				a.busy = noProof(a.busy, left)
			}
			a.note()
			if wait := min(jitter(pause), left); proves {
				a.await(r.Holder, rev, wait)
				pause = min(pause*3/2, a.l.lease/leases.Renew)
			} else {
				a.sleep(wait)
				pause = min(pause*3/2, slowPoll)
			}
			a.m.Poll()
		}
	}
}

// note says what stands in the way now.
func (a *attempt) note() {
	a.trouble.Note(cmp.Or(a.failed[lockrecord.Load], a.failed[lockrecord.Swap], a.busy))
}

// await waits for so long, or until the store has proved that this life is over. While the store cannot
// look, which says nothing about the life, no time passes for the wait for its lease.
func (a *attempt) await(life, rev string, d time.Duration) {
	a.m.Guard(life)
	ctx, cancel := context.WithTimeout(a.leave, d)
	defer cancel()
	began := a.now()
	switch err := a.l.prover.Over(ctx, life); {
	case err == nil: // but a swap of this life may still take effect
		a.sleep(mrand.N(stampede))
		a.m.Proved(rev)
	case ctx.Err() != nil:
	case errors.Is(err, store.ErrNoProof):
		a.m.Guard("") // the lease decides
		a.blind = life
	default:
		a.trouble.Note(fmt.Errorf("%w; the store cannot tell whether it lives: %w", a.busy, err))
		<-ctx.Done()
		a.m.Leapt(a.now() - began)
	}
}

// sleep waits for so long, or until the caller leaves.
func (a *attempt) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-a.leave.Done():
	}
}

// jitter keeps waiters from asking together.
func jitter(d time.Duration) time.Duration { return d/2 + mrand.N(d/2) }

// settled lets the machine follow the caller, and the handle follow the machine. It reports whether
// nothing is left to do.
func (a *attempt) settled() bool {
	now := a.now()
	if a.leave.Err() != nil {
		a.leave, a.giveUpAt = context.Background(), now+int64(a.l.lease)
		a.m.Release(now)
	}
	phase := a.m.Phase(now)
	if a.Hold == nil && (phase == lockrecord.Held || phase == lockrecord.Ended) { // perhaps it ended at once
		lapsed := a.lapsed
		if a.life != nil {
			lapsed = nil
		}
		a.Hold = hold.New(a.ctx, a.l.clock, a.l.lease, a.m.Fence(), a.m.LeaseEnd(), lapsed)
		a.busy = nil
		a.note()
		close(a.granted)
	}
	switch {
	case phase == lockrecord.Over && a.Hold == nil:
		a.why = a.m.Err()
	case phase >= lockrecord.Ended && a.m.Err() != nil:
		a.End(a.l.Error(fmt.Errorf("%w: %w", lock.ErrLost, a.m.Err())))
	case phase >= lockrecord.Ended:
		a.End(a.lapsed())
	case phase == lockrecord.Held && a.Over():
		a.m.End() // and renew it no more
	case phase == lockrecord.Held:
		a.Extend(a.m.LeaseEnd())
	}
	if phase == lockrecord.Ended && now >= a.m.LeaseEnd() { // nobody need call Release then
		a.release()
	}
	return phase == lockrecord.Over || a.why != nil || a.giveUpAt != 0 && now >= a.giveUpAt
}

// lapsed is the error of a handle whose lease has ended.
func (a *attempt) lapsed() error {
	return a.l.Error(a.trouble.Add(fmt.Errorf("%w: the lease was not renewed in time", lock.ErrLost)))
}

// live begins a life, and returns its name. Without a store that proves anything it is only that.
func (a *attempt) live() string {
	if a.l.prover != nil {
		ctx, cancel := context.WithTimeout(a.leave, a.l.lease/leases.Operation)
		defer cancel()
		if life, err := a.l.prover.Live(ctx); err == nil {
			a.life = life
			return life.Name()
		}
	}
	return rand.Text()
}

// floor is below the fences of a new record.
func floor() uint64 { return epochs.Fence(time.Now().UnixNano()) }

// perform asks the store, and gives the machine the outcome. If that is unknown, it then waits.
func (a *attempt) perform(op lockrecord.Operation, value []byte, rev string) {
	parent := context.Background()
	if op == lockrecord.Load {
		parent = a.leave // it is asked for again if it is needed then
	}
	ctx, cancel := context.WithTimeout(parent, a.l.lease/leases.Operation)
	defer cancel()
	var next store.Revision
	var err error
	if op == lockrecord.Load {
		value, next, err = a.l.store.Load(ctx)
	} else {
		next, err = a.l.store.Swap(ctx, value, store.Revision(rev))
	}
	switch now := a.now(); {
	case err != nil:
		a.m.Unknown(now)
	case op == lockrecord.Load:
		a.m.Loaded(now, value, string(next))
	default:
		a.m.Swapped(now, string(next))
	}
	switch {
	case err == nil || errors.Is(err, store.ErrConflict):
		a.failed[op] = nil
		a.note()
		return
	case errors.Is(err, store.ErrUnusable) && a.Hold == nil:
		a.why = err
		return
	case parent.Err() == nil:
		a.failed[op] = fmt.Errorf("the store does not answer: %w", err)
		a.note()
	}
	if a.Hold != nil && a.life != nil && a.now() >= a.m.LeaseEnd() {
		a.look()
	}
	a.sleep(jitter(min(slowPoll, a.l.lease/leases.Margin)))
}

// look ends a hold past its lease if the others cannot see its life any more, as when its file was removed.
func (a *attempt) look() {
	ctx, cancel := context.WithTimeout(context.Background(), a.l.lease/leases.Operation)
	defer cancel()
	if living, err := a.l.prover.Living(ctx); err == nil && !slices.Contains(living, a.life.Name()) {
		a.m.End()
	}
}

// taken is why a try fails, nil if the holder is proved to be dead.
func (a *attempt) taken(r lockrecord.Record, left time.Duration) error {
	busy := held(r)
	if a.l.prover == nil {
		return noProof(busy, left)
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.l.lease/leases.Operation)
	defer cancel()
	living, err := a.l.prover.Living(ctx)
	switch {
	case slices.Contains(living, r.Holder):
		return busy
	case err == nil:
		err = a.l.prover.Over(ctx, r.Holder)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNoProof):
		return noProof(busy, left)
	}
	return fmt.Errorf("%w; the store cannot tell whether it lives: %w", busy, err)
}

// held says who holds the lock, and for how long: a fence begins at the clock of the grant.
func held(r lockrecord.Record) error {
	now := floor()
	age := time.Duration(epochs.Of(now-min(now, r.Fence))) * time.Millisecond
	return fmt.Errorf("%w: %s has held it for %v", lock.ErrBusy, cmp.Or(r.Name, "life "+r.Holder), age.Round(time.Second))
}

// noProof adds what a caller learns of a holder that is replaced if the record does not change for so long.
func noProof(busy error, left time.Duration) error {
	return fmt.Errorf("%w; if that has crashed, a wait of more than %v replaces it: %w",
		busy, left.Truncate(time.Millisecond)+time.Millisecond, store.ErrNoProof)
}
