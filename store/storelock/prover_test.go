package storelock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/storelock"
)

// A prover is a store that knows which lives are over.
type prover struct {
	store.Memory
	mu     sync.Mutex
	lives  map[string]chan struct{}
	begun  int
	ignore bool   // it proves nothing
	blind  error  // of Over
	full   error  // of Swap
	none   error  // of Live
	last   func() // called before a life ends
}

// set changes how the store behaves.
func (p *prover) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *prover) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	var full error
	p.set(func() { full = p.full })
	if full != nil {
		return "", full
	}
	return p.Memory.Swap(ctx, value, rev)
}

func (p *prover) Live(context.Context) (store.Life, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.none != nil {
		return nil, p.none
	}
	if p.lives == nil {
		p.lives = make(map[string]chan struct{})
	}
	l := life{fmt.Sprint("L", p.begun), make(chan struct{}), p.last}
	p.begun++
	p.lives[l.name] = l.over
	return l, nil
}

func (p *prover) Over(ctx context.Context, name string) error {
	p.mu.Lock()
	over, blind, ignore := p.lives[name], p.blind, p.ignore
	p.mu.Unlock()
	switch {
	case blind != nil:
		return blind
	case over == nil || ignore:
		return store.ErrNoProof
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *prover) Living(context.Context) (living []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ignore {
		return nil, store.ErrNoProof
	}
	for name, over := range p.lives {
		select {
		case <-over:
		default:
			living = append(living, name)
		}
	}
	return living, nil
}

type life struct {
	name string
	over chan struct{}
	last func()
}

func (l life) Name() string   { return l.name }
func (l life) File() *os.File { return nil }
func (l life) Close() error {
	if l.last != nil {
		l.last()
	}
	close(l.over)
	return nil
}

// A handle ends before others learn that its life is over.
func TestLifeOutlastsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h lock.Held
		var ended error
		s := new(prover)
		s.last = func() { ended = h.Err() }
		h = acquire(t, open(t, s))
		put(t, s, []byte("spoiled"))
		<-s.lives["L0"]
		require.ErrorIs(t, ended, storelock.ErrRecord)
		require.ErrorIs(t, h.Release(), lock.ErrLost)
	})
}

var errPasses = errors.New("too many open files")

// A prover that cannot look now says nothing about a life: a waiter keeps asking, and waits for a lease
// from when it learns that there is no proof.
func TestPassingError(t *testing.T) {
	for _, how := range []string{"dies", "unknown"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := make(chan struct{})
				s := &prover{lives: map[string]chan struct{}{"X": x}, blind: errPasses}
				put(t, s, record("X"))
				_, err := open(t, s).Acquire(nodetest.ContextFor(t, 10*lease))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, errPasses)
				require.NotErrorIs(t, err, store.ErrNoProof)
				s.lives = map[string]chan struct{}{}
				_, err = open(t, s).TryAcquire(t.Context())
				require.ErrorIs(t, err, lock.ErrBusy)
				require.ErrorIs(t, err, errPasses)
				require.NotErrorIs(t, err, store.ErrNoProof)
				s.lives["X"] = x

				var since time.Time
				time.AfterFunc(10*lease, func() {
					s.set(func() { since, s.blind, s.ignore = time.Now(), nil, how == "unknown" })
					if how != "unknown" {
						close(x)
					}
				})
				h := acquire(t, open(t, s))
				var took time.Duration
				s.set(func() {
					require.False(t, since.IsZero())
					took = time.Since(since)
				})
				if how == "unknown" {
					require.Greater(t, took, lease-lease/3, "nobody can prove it, so it waits")
				} else {
					require.Less(t, took, lease/2)
				}
				require.NoError(t, h.Release())
			})
		})
	}
}

// If the others can see the life of a holder, the hold does not end with its lease: it is suspended, and goes
// on when a swap succeeds. It is lost when they cannot see the life any more, or have the lock.
func TestRenewedLate(t *testing.T) {
	for _, how := range []string{"goes on", "released", "life removed", "record deleted"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(prover)
				h := acquire(t, open(t, s))
				time.Sleep(10 * lease)
				require.False(t, h.Suspended())
				require.Zero(t, h.Until(), "no lease ends it")
				full := errors.New("no space left on device")
				s.set(func() { s.full = full })
				waiting, cancel := context.WithCancel(t.Context())
				defer cancel()
				granted := make(chan error, 1)
				go func() {
					next, err := open(t, s).Acquire(waiting)
					if err == nil {
						err = next.Release()
					}
					granted <- err
				}()
				time.Sleep(10 * lease)
				require.NoError(t, h.Err())
				require.True(t, h.Suspended())
				require.Empty(t, granted)
				switch how {
				case "goes on":
					s.set(func() { s.full = nil })
					time.Sleep(lease)
					require.NoError(t, h.Err())
					require.False(t, h.Suspended())
					require.Empty(t, granted)
					require.NoError(t, h.Release())
					require.NoError(t, <-granted)
				case "released":
					require.NoError(t, h.Release())
					s.set(func() { s.full = nil })
					require.NoError(t, <-granted, "its life is over")
				case "life removed":
					cancel()
					<-granted
					s.set(func() { delete(s.lives, "L0") })
					time.Sleep(lease)
					require.ErrorIs(t, h.Err(), lock.ErrLost)
					require.ErrorIs(t, h.Err(), full)
					time.Sleep(2 * lease) // it tries to leave the record
				case "record deleted":
					put(t, &s.Memory, nil)
					time.Sleep(lease)
					require.ErrorIs(t, h.Err(), lock.ErrLost)
					s.set(func() { s.full = nil })
					require.NoError(t, <-granted)
				}
			})
		})
	}
}

// A holder whose life the others cannot see any more is replaced a lease after they have learned that. It
// has ended its hold before, also if it cannot change the record just then, and also right after a renewal.
func TestLifeForgotten(t *testing.T) {
	for _, how := range []string{"removed", "no proof"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(prover)
				cut := outagetest.New(t, s, outagetest.Faults{})
				h := acquire(t, open(t, struct {
					*outagetest.Store
					lives
				}{cut, s}))
				time.Sleep(lease/3 + time.Millisecond)
				cut.Outage(true)
				if how == "removed" {
					s.set(func() { delete(s.lives, "L0") })
				} else {
					s.set(func() { s.ignore = true })
				}
				next := acquire(t, open(t, s))
				require.ErrorIs(t, h.Err(), lock.ErrLost)
				require.NoError(t, next.Release())
				time.Sleep(2 * lease)
			})
		})
	}
}

// lives are what a prover knows besides the record.
type lives interface {
	Live(ctx context.Context) (store.Life, error)
	Over(ctx context.Context, name string) error
	Living(ctx context.Context) ([]string, error)
}

// A lost hold is given back when its lease has ended, and keeps no goroutine, without a Release.
func TestLostWithoutRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := outagetest.New(t, new(store.Memory), outagetest.Faults{})
		h := acquire(t, open(t, bad))
		bad.Outage(true)
		<-h.Context().Done()
		bad.Outage(false)
		_, err := open(t, bad).TryAcquire(t.Context())
		require.ErrorIs(t, err, lock.ErrBusy, "code that has lost it still has time to stop")
		time.Sleep(lease / 2)
		require.NoError(t, try(t, open(t, bad)).Release())

		h = acquire(t, open(t, bad))
		bad.Outage(true)
		time.Sleep(5 * lease)
		require.ErrorIs(t, h.Err(), lock.ErrLost)
		// The bubble fails if a goroutine is left.
	})
}

// A lease that decided no longer does when the store sees the life after all, as when an operator has
// mended a mode, or cannot look now.
func TestProofAgain(t *testing.T) {
	for _, then := range []error{nil, errPasses} {
		synctest.Test(t, func(t *testing.T) {
			x := make(chan struct{})
			s := &prover{lives: map[string]chan struct{}{"X": x}, ignore: true}
			put(t, s, record("X"))
			time.AfterFunc(lease/2, func() { s.set(func() { s.ignore, s.blind = false, then }) })
			time.AfterFunc(time.Hour, func() { s.set(func() { s.blind = nil }); close(x) })
			begin := time.Now()
			h := acquire(t, open(t, s))
			require.GreaterOrEqual(t, time.Since(begin), time.Hour)
			require.NoError(t, h.Release())
		})
	}
}

// record is one in which this life holds the lock.
func record(life string) []byte {
	return []byte("dmutex lock 1\nlock \"job\"\nfence 7\nlease 1000000000\nholder " + life + "\nname \"web/7\"\n")
}

// If the store proves death, a dead holder is replaced at once, and a living one is not
// replaced, although it does not renew. Without proof, the lease decides.
func TestProof(t *testing.T) {
	for _, how := range []string{"dead", "dies", "unknown"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := make(chan struct{})
				s := &prover{lives: map[string]chan struct{}{"X": x}, ignore: how == "unknown"}
				put(t, s, record("X"))
				_, err := open(t, s).TryAcquire(t.Context())
				require.ErrorIs(t, err, lock.ErrBusy)
				if how == "dead" {
					close(x)
					require.NoError(t, try(t, open(t, s)).Release())
					return
				}
				begin := time.Now()
				time.AfterFunc(time.Hour, func() { close(x) })
				h := acquire(t, open(t, s))
				took := time.Since(begin)
				if how == "unknown" {
					require.Greater(t, took, lease)
					require.Less(t, took, 3*lease)
				} else {
					require.GreaterOrEqual(t, took, time.Hour)
					require.Less(t, took, time.Hour+50*time.Millisecond)
				}
				require.NoError(t, h.Release())
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// A lock that is released is granted soon, however long its lease, also while the life of its last holder goes on: a child
// may have inherited it.
func TestReleasedWhileTheLifeLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &prover{lives: map[string]chan struct{}{"X": make(chan struct{})}}
		put(t, s, record("X"))
		l, err := storelock.New(s, "job", time.Hour)
		require.NoError(t, err)
		var released time.Time
		time.AfterFunc(time.Hour, func() {
			released = time.Now()
			put(t, s, record(""))
		})
		h := acquire(t, l)
		require.Less(t, time.Since(released), 2*time.Second)
		require.NoError(t, h.Release())
	})
}

// What cannot be written is known at once: a lock that is free is an error, whether the record or the life cannot be,
// and a release ends promptly, and says why the record was not changed. With a life the next one has the lock at once.
func TestFull(t *testing.T) {
	full := fmt.Errorf("%w: no space left on device", store.ErrUnusable)
	for _, lives := range []bool{true, false} {
		t.Run(fmt.Sprint("lives ", lives), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, begin := new(prover), time.Now()
				if !lives {
					s.none = store.ErrNoProof
				}
				s.full = full
				_, err := open(t, s).TryAcquire(t.Context())
				require.ErrorIs(t, err, full)
				_, err = open(t, s).Acquire(t.Context())
				require.ErrorIs(t, err, full)
				s.full = nil
				if lives {
					s.none = full
					_, err = open(t, s).Acquire(t.Context())
					require.ErrorIs(t, err, full)
					s.none = nil
				}
				require.Zero(t, time.Since(begin))
				h := acquire(t, open(t, s))
				require.NoError(t, storelock.Unreleased(h))
				s.set(func() { s.full = full })
				time.Sleep(lease / 2)
				begin = time.Now()
				require.NoError(t, h.Release())
				require.Less(t, time.Since(begin), lease/8)
				require.ErrorIs(t, storelock.Unreleased(h), full)
				require.ErrorContains(t, storelock.Unreleased(h), `storelock: lock "job": the record was not changed by the release, `)
				s.set(func() { s.full = nil })
				next, err := open(t, s).TryAcquire(t.Context())
				if !lives {
					require.ErrorIs(t, err, lock.ErrBusy)
					next = acquire(t, open(t, s))
				}
				require.NoError(t, next.Err())
				require.NoError(t, next.Release())
				require.NoError(t, storelock.Unreleased(next))
			})
		})
	}
}
