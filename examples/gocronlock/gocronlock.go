// Package gocronlock runs the jobs of gocron in one process of several.
//
//	locker := &gocronlock.Locker{Mutex: locks, Keep: time.Minute}
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//	elector := &gocronlock.Elector{Mutex: n.Mutex("jobs")}
//	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//
// gocron passes nothing from a lock to its job. So a job asks for the handle, which has the fence of the
// grant and a context that ends with it: locker.Held("nightly"), or elector.Held().
//
// The lock of a job is renewed for as long as the job runs. If it is lost all the same, Lost says so at
// once. If another process holds the lock, the job is skipped at once; nothing polls.
package gocronlock

import (
	"context"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/dmutex/dmutex/lock"
)

// A Locker lets each job run in one process at a time: in another that is due meanwhile it is skipped.
type Locker struct {
	Mutex func(job string) lock.Mutex // such as: func(job string) lock.Mutex { return n.Mutex(job) }

	// Keep is how long the lock of a job is kept at least, so that a scheduler whose clock is behind
	// does not run a short job again. It should be more than the clocks differ, and less than the
	// time from one run to the next.
	Keep time.Duration

	Lost func(job string, why error) // the lock was lost while the job ran; nil to ignore it

	held sync.Map // lock.Held of the jobs that run, by their names
}

// Held returns the handle of a job that runs in this process, or nil.
func (l *Locker) Held(job string) lock.Held {
	h, _ := l.held.Load(job)
	held, _ := h.(lock.Held)
	return held
}

// Lock implements [gocron.Locker].
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	h, err := l.Mutex(job).TryAcquire(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(h.Context(), func() {
		if l.Lost != nil {
			l.Lost(job, h.Err())
		}
	})
	l.held.Store(job, h)
	return &run{h, time.Now().Add(l.Keep), func() {
		stop()
		l.held.CompareAndDelete(job, h)
	}}, nil
}

type run struct {
	lock.Held
	keep time.Time
	over func()
}

// Unlock implements [gocron.Lock].
func (r *run) Unlock(context.Context) error {
	r.over()
	if left := time.Until(r.keep); left > 0 && r.Err() == nil {
		time.AfterFunc(left, func() { _ = r.Release() })
		return nil
	}
	return r.Release()
}

// An Elector lets one process run all jobs: the first that has one due while there is no other.
type Elector struct {
	Mutex lock.Mutex

	mu   sync.Mutex
	held lock.Held
}

// IsLeader implements [gocron.Elector].
func (e *Elector) IsLeader(ctx context.Context) (err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held != nil {
		if e.held.Err() == nil {
			return nil
		}
		_ = e.held.Release() // it is lost
	}
	e.held, err = e.Mutex.TryAcquire(ctx)
	return err
}

// Held returns the handle of the process that leads, or nil in one that never did.
func (e *Elector) Held() lock.Held {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.held
}

// Resign lets another process lead.
func (e *Elector) Resign() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held == nil {
		return nil
	}
	return e.held.Release()
}
