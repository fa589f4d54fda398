// Package storelock is a lock in one record of a store. There is no group: a process that wants
// the lock changes the record, and one that waits looks at it. It is for jobs that come, run
// under one lock and go, such as commands in cron. For many grants a second use package node.
//
//	file, err := filestore.Open("/var/lib/app/nightly")
//	...
//	lock, err := storelock.New(file, "nightly", 0)
//	...
//	err = lock.Do(ctx, func(ctx context.Context, fence uint64) error { ... })
//
// The holder renews its lease in the record. If it cannot, its handle is lost before the lease ends; docs/modes.md has
// the times. A holder that has crashed is replaced after a lease. If the store is a [store.Prover], such as filestore,
// it is replaced at once, and a holder whose process lives, even if it is stopped, is not replaced. So its handle does
// not end with the lease: it has no Until, and is Suspended while the store does not answer. All processes that use the
// lock must then run on the machine of the store: on another one, which cannot see that the holder lives, a process
// would replace it after a lease.
//
// The record needs no preparation, and serves one lock. Do not delete it, or put an old one back, while
// the lock is held: two could hold it then, until the first renews it.
//
// Waiters are served in no particular order. Each of them loads the record some times a second, unless the store is a
// Prover. Clocks may be wrong by 1 % in their rates. A process that was paused may write after its lease, before it
// notices: only a resource that refuses fences lower than the highest it has seen is safe from that. Fences rise from
// grant to grant, and also after the record was lost, if no clock was set back by more than the time between.
package storelock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/lockrecord"
	"github.com/dmutex/dmutex/internal/names"
	"github.com/dmutex/dmutex/internal/storecall"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/store"
)

// ErrRecord says that the record is not one of this lock.
var ErrRecord = lockrecord.ErrRecord

// A mutex is a lock in a record.
type mutex struct {
	hold.Mutex
	store   store.Store
	prover  store.Prover // nil if the store is none
	process string       // its name, for people
	lease   time.Duration
	clock   *clock.Clock
}

// New returns the lock of this name in the record of the store. The lease is how long others wait
// for a holder that has crashed, 100 ms to 1 h; 0 is 10 s.
//
// Acquire also waits while the store does not answer. If its context ends first, the error wraps
// that of the context, that of a store that did not answer, [lock.ErrBusy] with the name of the holder if there
// was one, and [store.ErrNoProof] if that may have crashed, and the context left too little time to replace it. Other errors are those
// that waiting does not mend: [ErrRecord] and [store.ErrUnusable].
//
// When a call returns without the lock, nothing of it is left in the record, and a process that ends then keeps nobody
// waiting. So if its context ends while a swap is under way, the call returns when the store has answered, but in
// less than two leases. If the store has not answered then, the error says that the others may wait for a lease.
//
// TryAcquire takes the lock if it is free, or if its holder is proved dead, and otherwise returns
// [lock.ErrBusy]. If the store cannot prove it, the error also wraps [store.ErrNoProof]: only a
// process that has itself waited for a lease may replace a holder that has crashed, since
// processes share no clock. Let Acquire wait for longer than the error says.
//
// The handle's Release waits until the store has confirmed it, but for less than two leases, and not after an
// ErrUnusable. If the store has not confirmed it then, others replace this process as if it had crashed:
// [Unreleased] says so.
func New(s store.Store, name string, lease time.Duration) (lock.Mutex, error) {
	lease = cmp.Or(lease, time.Duration(leases.Default))
	switch {
	case s == nil:
		return nil, errors.New("storelock: the store is nil")
	case len(name) < 1 || len(name) > lockrecord.MaxName:
		return nil, fmt.Errorf("storelock: the name of a lock has 1 to %d bytes, not %d", lockrecord.MaxName, len(name))
	case lease < leases.Min || lease > leases.Max:
		return nil, fmt.Errorf("storelock: lock %q: the lease is 100ms to 1h, not %v", name, lease)
	}
	l := &mutex{store: s, lease: lease, clock: clock.New()}
	host, _ := os.Hostname()
	l.process = names.Of(host, "", os.Getpid())
	l.Mutex = hold.Mutex{Package: "storelock", Lock: name, Take: l.acquire}
	l.prover, _ = s.(store.Prover)
	return l, nil
}

func (l *mutex) acquire(ctx context.Context, try, _ bool) (lock.Held, error) {
	a := &attempt{l: l, line: storecall.NewLine(), ctx: ctx, try: try, granted: make(chan struct{}), over: make(chan struct{})}
	a.leave, a.release = context.WithCancel(context.Background())
	hold.Show(ctx, &a.trouble)
	go a.run()
	select {
	case <-a.granted:
		return a, nil
	case <-a.over:
		if a.Hold != nil { // and was lost at once
			return a, nil
		}
		return nil, a.why
	case <-ctx.Done():
	}
	a.release()
	<-a.over // soon, unless a swap is under way
	err := a.trouble.Add(hold.ContextError(ctx))
	if a.unsure {
		err = fmt.Errorf("%w; the store has not said whether the lock was taken, so the others may wait for a lease", err)
	}
	return nil, err
}

// File returns a file for a child process to inherit. Then, if this process dies, the lock is
// not free before the child has died, too. It is nil if the store cannot do that, or if the handle is
// not one of this package; filestore can, but not on Windows.
func File(h lock.Held) *os.File {
	if a, ok := h.(*attempt); ok && a.life != nil {
		return a.life.File()
	}
	return nil
}

// Unreleased returns why the record still says that the lock is held, after a Release that could not change that.
// It is nil otherwise, and if the handle is not one of this package.
func Unreleased(h lock.Held) error {
	a, ok := h.(*attempt)
	if !ok {
		return nil
	}
	select {
	case <-a.over:
	default:
		return nil
	}
	switch {
	case a.why == nil:
		return nil
	case a.life != nil:
		return a.l.Error(fmt.Errorf("the record was not changed by the release, but the others see that the hold is over: %w", a.why))
	}
	return a.l.Error(fmt.Errorf("the record was not changed by the release, so the others wait for a lease: %w", a.why))
}

// Release implements [lock.Held]; see [New].
func (a *attempt) Release() error {
	lost := a.Released(a.l.Error(lock.ErrReleased))
	a.release()
	<-a.over
	return lost
}
