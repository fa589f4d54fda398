// Package tuslock locks the uploads of tusd among several servers. A balancer in front of them need
// not be sticky.
//
//	composer.UseLocker(tuslock.Locker{Node: n})
//
// A client whose connection broke resumes at any server: the request that still hangs at another is
// asked to stop, at once and not at its timeout. The store of tusd gets no fence, because nothing of a lock
// reaches it.
package tuslock

import (
	"context"
	"errors"
	"time"

	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
)

// A Locker is a [handler.Locker].
type Locker struct{ Node *node.Node }

// NewLock implements [handler.Locker].
func (l Locker) NewLock(id string) (handler.Lock, error) {
	return &upload{mutex: l.Node.Mutex("tus/" + id)}, nil
}

type upload struct {
	mutex *node.Mutex
	held  lock.Held
}

// Lock implements [handler.Lock]. The request is also asked to stop if the lock is lost.
func (u *upload) Lock(ctx context.Context, requestUnlock func()) (err error) {
	if u.held, err = u.mutex.TryAcquire(ctx); errors.Is(err, lock.ErrBusy) {
		waits, stop := context.WithCancel(ctx)
		go u.ask(waits)
		u.held, err = u.mutex.Acquire(ctx)
		stop()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return handler.ErrLockTimeout
	case err != nil:
		return err
	}
	go func() {
		select {
		case <-node.Asked(u.held):
		case <-u.held.Context().Done():
		}
		if !errors.Is(u.held.Err(), lock.ErrReleased) {
			requestUnlock()
		}
	}()
	return nil
}

// ask asks the holder, and the next ones, until the lock is here.
func (u *upload) ask(ctx context.Context) {
	for again := time.Tick(time.Second); ; {
		_ = u.mutex.Ask(ctx)
		select {
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// Unlock implements [handler.Lock].
func (u *upload) Unlock() error { return u.held.Release() }
