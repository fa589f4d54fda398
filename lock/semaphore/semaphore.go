// Package semaphore lets up to k callers in at a time, of all processes together.
//
//	jobs := semaphore.New("jobs", 5, n.Mutex) // n is a node.Node or a client.Client
//	err := jobs.Do(ctx, func(ctx context.Context, permit int, fence uint64) error { ... })
//
// A semaphore is k locks, of which a caller holds any one, its permit. So a permit has what a lock
// has: a number, a fence, a context that ends when it is lost, and a holder that is replaced when it has
// crashed, while the others are not delayed. No permit can leak: an Acquire gives back what it was granted
// beside its permit, and Release waits for that. One that returns an error has given all back: over records it may
// return some time after its context has ended, see package storelock. It works over every [lock.Mutex]: for records,
// let the function open the record of that name.
//
// Permit 0 is the lock of the semaphore's name, permit i that of NAME#i. So a semaphore of one permit is the
// plain lock. Processes should agree on k; if they do not, the highest k is what holds.
//
// A caller tries one permit. If it is taken, or if there is no answer within a second, the caller waits for
// all of them, and keeps the first. With holds longer than a thousand messages take, callers are served about
// as they came. With shorter ones later callers may be first. A waiting call takes k of the 1000 requests of
// a client.
package semaphore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/internal/mistake"
	"github.com/dmutex/dmutex/lock"
)

// A Semaphore has some permits. Its methods are safe for concurrent use.
type Semaphore struct {
	name  string
	locks []lock.Mutex
	next  atomic.Int64 // the permit to try first: the last that was released here
}

// New returns the semaphore of that name, with 1 to 64 permits. mutex returns the lock of a name, such
// as the method Mutex of a node or a client. With another number of permits, or without
// locks, all calls return an error.
func New[M lock.Mutex](name string, permits int, mutex func(name string) M) *Semaphore {
	s := &Semaphore{name: name}
	if permits < 1 || permits > 64 || mutex == nil {
		return s
	}
	for i := range permits {
		of := name
		if i > 0 {
			of = fmt.Sprintf("%s#%d", name, i)
		}
		var l lock.Mutex = mutex(of)
		if l == nil {
			s.locks = nil
			return s
		}
		s.locks = append(s.locks, l)
	}
	s.next.Store(rand.Int64N(int64(permits)))
	return s
}

// A Permit is the handle of one permit. Of two grants of the permits with one number the later has the
// higher fence, so let the guarded resource keep one [fence.Gate] for each number.
//
// [fence.Gate]: https://pkg.go.dev/github.com/dmutex/dmutex/lock/fence#Gate
type Permit struct {
	lock.Held
	Number int // from 0

	s      *Semaphore
	others *sync.WaitGroup // the calls for other permits by the Acquire that was granted this one
}

// Release gives the permit back, see [lock.Held]. It also waits until the Acquire that was granted the permit
// holds and asks for no other one: a process that ends after that leaves none taken.
func (p *Permit) Release() error {
	if p == nil || p.s == nil {
		return mistake.Misuse("semaphore: the permit was not granted: take one by Acquire")
	}
	err := p.Held.Release()
	p.others.Wait()
	p.s.next.Store(int64(p.Number))
	return err
}

// Acquire waits for a permit. It returns either a permit or an error, never both. The error says what the
// last of the permits that the call waited for waits for. A call that has to wait returns a [dmutex.ErrMisuse] of the
// lock of any permit, such as that its name is too long.
func (s *Semaphore) Acquire(ctx context.Context) (*Permit, error) {
	if ctx == nil {
		return nil, s.fail(hold.ContextError(ctx))
	}
	if len(s.locks) > 1 {
		soon, cancel := context.WithTimeout(ctx, time.Second) // others may be free while nobody answers for this one
		p, err := s.try(soon, int(s.next.Load()))
		cancel()
		if err == nil {
			return p, nil
		}
	}
	all, cancel := context.WithCancel(ctx)
	defer cancel()
	var taken atomic.Bool
	type answer struct {
		*Permit
		err error
	}
	answers, asking := make(chan answer, len(s.locks)), new(sync.WaitGroup)
	for i, l := range s.locks {
		asking.Go(func() {
			h, err := l.Acquire(all)
			if err == nil && taken.Swap(true) { // another permit came first, and is the answer
				_ = h.Release()
				return
			}
			answers <- answer{&Permit{h, i, s, asking}, err}
		})
	}
	err := errNone
	for range s.locks {
		a := <-answers
		if a.err == nil {
			return a.Permit, nil
		}
		if err = a.err; errors.Is(err, dmutex.ErrMisuse) && !taken.Swap(true) { // else the semaphore has fewer permits than it says
			cancel()
			asking.Wait()
			break
		}
	}
	return nil, s.fail(err)
}

var errNone = mistake.Misuse("it has no permits: choose 1 to 64, and give New the method Mutex of a node or a client")

// TryAcquire returns [lock.ErrBusy] if no permit is free. It asks for one after the other.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Permit, error) {
	err, first := errNone, int(s.next.Load())
	for i := range s.locks {
		p, failed := s.try(ctx, (first+i)%len(s.locks))
		if failed == nil {
			return p, nil
		}
		if i == 0 || !errors.Is(failed, lock.ErrBusy) {
			err = failed
		}
	}
	return nil, s.fail(err)
}

// A worker is the handle of a member, whose Close waits for the function under it.
type worker interface {
	Work() (self dmutex.NodeID, working bool)
	Rest()
}

// Do runs f while it holds a permit, like Do of a [lock.Mutex]. Close of a node waits for f.
func (s *Semaphore) Do(ctx context.Context, f func(ctx context.Context, permit int, fence uint64) error) error {
	if f == nil {
		return s.fail(hold.ErrNoFunction)
	}
	p, err := s.Acquire(ctx)
	if err != nil {
		return err
	}
	if w, ok := p.Held.(worker); ok {
		_, working := w.Work()
		defer w.Rest()
		if !working {
			return p.Release() // it is lost
		}
	}
	return hold.Run(ctx, p, p.Release, func(ctx context.Context, fence uint64) error { return f(ctx, p.Number, fence) })
}

func (s *Semaphore) try(ctx context.Context, i int) (*Permit, error) {
	h, err := s.locks[i].TryAcquire(ctx)
	return &Permit{h, i, s, new(sync.WaitGroup)}, err
}

func (s *Semaphore) fail(err error) error {
	return fmt.Errorf("semaphore %q of %d: %w", s.name, len(s.locks), err)
}
