package storelock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/internal/lockrecord"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/lock/locktest"
	"github.com/dmutex/dmutex/lock/semaphore"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/filestore"
	"github.com/dmutex/dmutex/store/storelock"
)

const lease = time.Second

func open(t *testing.T, s store.Store) lock.Mutex {
	t.Helper()
	l, err := storelock.New(s, "job", lease)
	require.NoError(t, err)
	return l
}

func acquire(t *testing.T, l lock.Mutex) lock.Held {
	t.Helper()
	h, err := l.Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Err())
	return h
}

// try takes a lock that is free.
func try(t *testing.T, l lock.Mutex) lock.Held {
	t.Helper()
	h, err := l.TryAcquire(t.Context())
	require.NoError(t, err)
	return h
}

// put writes the record, whatever it was.
func put(t *testing.T, s store.Store, value []byte) {
	t.Helper()
	_, rev, err := s.Load(t.Context())
	require.NoError(t, err)
	_, err = s.Swap(t.Context(), value, rev)
	require.NoError(t, err)
}

// A new lock is free, a held one is busy, and a released one is granted again at once, with a
// higher fence.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * 365 * 24 * time.Hour) // so that fences begin above 0
		s := new(store.Memory)
		one, two := open(t, s), open(t, s)
		begin := time.Now()
		h := acquire(t, one)
		require.Zero(t, time.Since(begin))
		require.Greater(t, h.Fence(), uint64(1)<<50)
		require.Nil(t, storelock.File(h))
		_, err := two.TryAcquire(t.Context())
		require.ErrorIs(t, err, lock.ErrBusy)

		time.Sleep(10 * lease) // the holder renews
		require.NoError(t, h.Err())
		require.Greater(t, time.Until(h.Until()), lease/2)
		_, err = two.TryAcquire(t.Context())
		require.ErrorIs(t, err, lock.ErrBusy)

		require.NoError(t, h.Release())
		next, err := two.TryAcquire(t.Context())
		require.NoError(t, err)
		require.Greater(t, next.Fence(), h.Fence())
		require.NoError(t, next.Release())
	})
}

// A waiter gets the lock soon after its release.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(store.Memory)
		h := acquire(t, open(t, s))
		_, err := open(t, s).TryAcquire(t.Context())
		require.ErrorContains(t, err, `storelock: lock "job": `)
		granted := make(chan lock.Held)
		go func() {
			h, _ := open(t, s).Acquire(t.Context())
			granted <- h
		}()
		time.Sleep(time.Minute)
		require.NoError(t, h.Release())
		begin := time.Now()
		next := <-granted
		require.Less(t, time.Since(begin), 400*time.Millisecond)
		require.NoError(t, next.Release())
	})
}

// A slow store takes its time for a swap.
type slow struct{ store.Memory }

func (s *slow) Swap(ctx context.Context, value []byte, from store.Revision) (store.Revision, error) {
	time.Sleep(lease / 5)
	return s.Memory.Swap(ctx, value, from)
}

// A grant that comes after the context of the call has ended is given back.
func TestGrantedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(slow)
		_, err := open(t, s).Acquire(nodetest.ContextFor(t, lease/10))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, try(t, open(t, s)).Release())
	})
}

// Processes share no clock, so tries do not add up: without proof from the store, no number of
// tries replaces a holder that has crashed. Their errors say how long one wait must be instead.
// The error of a wait that has seen a renewal does not.
func TestTriesDoNotAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(store.Memory)
		acquire := func(patience time.Duration) (lock.Held, error) {
			return open(t, s).Acquire(nodetest.ContextFor(t, patience))
		}
		bad := outagetest.New(t, s, outagetest.Faults{})
		h, err := open(t, bad).Acquire(t.Context())
		require.NoError(t, err)
		_, err = acquire(2 * lease)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, store.ErrNoProof, "the holder renews")

		bad.Outage(true)
		for range 100 {
			time.Sleep(time.Minute)
			_, err = open(t, s).TryAcquire(t.Context())
			require.ErrorIs(t, err, lock.ErrBusy)
			require.ErrorIs(t, err, store.ErrNoProof)
			require.ErrorContains(t, err, "a wait of more than 1.021s replaces it")
			_, err = acquire(lease)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, store.ErrNoProof)
		}
		next, err := acquire(1022 * time.Millisecond)
		require.NoError(t, err)
		require.NoError(t, next.Release())
		require.ErrorIs(t, h.Release(), lock.ErrLost)
	})
}

// lateSwaps is a store that answers swaps late, or not in time, and does them in any case.
type lateSwaps struct {
	store.Memory
	swap time.Duration
}

func (s *lateSwaps) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	type outcome struct {
		next store.Revision
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		time.Sleep(s.swap)
		next, err := s.Memory.Swap(context.WithoutCancel(ctx), value, rev)
		done <- outcome{next, err}
	}()
	select {
	case o := <-done:
		return o.next, o.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// When a call for a lock or for a permit returns without it, nothing of it is left in the record, however slow the
// store is, also if a swap is done after it was given up.
func TestNothingIsLeft(t *testing.T) {
	const lease = 10 * time.Second
	for _, swap := range []time.Duration{lease / 10, lease / 5, lease / 3, lease/2 - 1, lease / 2} {
		for ends := lease / 100; ends < lease; ends += lease / 20 {
			for _, what := range []string{"lock", "permit"} {
				synctest.Test(t, func(t *testing.T) {
					var stores []*lateSwaps
					open := func(name string) lock.Mutex {
						s := &lateSwaps{swap: swap}
						stores = append(stores, s)
						l, err := storelock.New(s, name, lease)
						require.NoError(t, err)
						return l
					}
					ctx := nodetest.ContextFor(t, ends)
					begin := time.Now()
					var h lock.Held
					var err error
					if what == "lock" {
						h, err = open("job").Acquire(ctx)
					} else if p, failed := semaphore.New("job", 3, open).Acquire(ctx); failed == nil {
						h = p
					} else {
						err = failed
					}
					if err == nil {
						require.Less(t, swap, ends)
						require.NoError(t, h.Release())
					} else {
						require.ErrorIs(t, err, context.DeadlineExceeded)
						require.Less(t, time.Since(begin), ends+2*lease)
						require.NotContains(t, err.Error(), "may wait for a lease")
					}
					for range 2 {
						for _, s := range stores {
							value, _, err := s.Load(t.Context())
							require.NoError(t, err)
							require.True(t, len(value) == 0 || lockrecord.Free(value, math.MaxUint64), "a %s: swaps take %v, the context %v: %s", what, swap, ends, value)
						}
						time.Sleep(lease) // what was given up is done by then
					}
				})
			}
		}
	}
}

// If the store does not answer, the call gives up, and its error says so.
func TestMayBeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := nodetest.ContextFor(t, lease)
		begin := time.Now()
		_, err := open(t, &lateSwaps{swap: time.Hour}).Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "the others may wait for a lease")
		require.Less(t, time.Since(begin), 3*lease)
		time.Sleep(2 * time.Hour)
	})
}

// When the store does not answer, the lock is lost a margin before the end of the lease, with
// the cause. The next holder gets it after that.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(store.Memory)
		bad := outagetest.New(t, s, outagetest.Faults{})
		h := acquire(t, open(t, bad))
		bad.Outage(true)
		begin := time.Now()
		granted := make(chan lock.Held)
		go func() {
			h, _ := open(t, s).Acquire(t.Context())
			granted <- h
		}()
		<-h.Context().Done()
		lost := time.Since(begin)
		require.LessOrEqual(t, lost, lease-lease/16)
		require.Greater(t, lost, lease/2)
		require.ErrorIs(t, h.Err(), lock.ErrLost)
		require.ErrorIs(t, h.Err(), context.DeadlineExceeded, "the error of the store")
		require.Empty(t, granted)
		next := <-granted
		require.Less(t, time.Since(begin), 2*lease)
		require.Greater(t, next.Fence(), h.Fence())
		require.ErrorIs(t, h.Release(), lock.ErrLost)
		require.NoError(t, next.Err())

		_, err := open(t, bad).Acquire(nodetest.ContextFor(t, time.Minute))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "the store does not answer")
		bad.Outage(false)
		require.NoError(t, next.Release())
		require.NoError(t, acquire(t, open(t, bad)).Release())
	})
}

// A Release gives up when the store has not answered for long.
func TestReleaseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := outagetest.New(t, new(store.Memory), outagetest.Faults{})
		h := acquire(t, open(t, bad))
		bad.Outage(true)
		time.Sleep(lease/3 + lease/100) // a renewal is under way
		begin := time.Now()
		require.NoError(t, h.Release())
		require.Greater(t, time.Since(begin), lease)
		require.Less(t, time.Since(begin), 2*lease)
		require.ErrorContains(t, storelock.Unreleased(h), "so the others wait for a lease: the store does not answer")
	})
}

// deaf is a store whose calls do not return when their context ends, while there is a channel to wait for.
type deaf struct {
	store.Memory
	until atomic.Pointer[chan struct{}]
	calls atomic.Int32 // that have not returned
}

func (d *deaf) listen() {
	if until := d.until.Load(); until != nil {
		d.calls.Add(1)
		<-*until
		d.calls.Add(-1)
	}
}

func (d *deaf) Load(ctx context.Context) ([]byte, store.Revision, error) {
	d.listen()
	return d.Memory.Load(ctx)
}

func (d *deaf) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	d.listen()
	return d.Memory.Swap(ctx, value, rev)
}

// A store that breaks its contract, and does not return when a context ends, keeps no call: Acquire and
// Release return, and the handle ends in time. At most one call an attempt is left behind.
func TestStoreThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, hears := new(deaf), make(chan struct{})
		l := open(t, bad)
		h := acquire(t, l)
		begun := time.Now()
		bad.until.Store(&hears)
		<-h.Context().Done()
		require.LessOrEqual(t, time.Since(begun), lease)
		begun = time.Now()
		require.ErrorIs(t, h.Release(), lock.ErrLost)
		require.Less(t, time.Since(begun), 2*lease)

		ctx := nodetest.ContextFor(t, time.Minute)
		begun = time.Now()
		_, err := l.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "the store does not return")
		require.Less(t, time.Since(begun), time.Minute+2*time.Second)
		synctest.Wait()
		require.LessOrEqual(t, bad.calls.Load(), int32(2))

		bad.until.Store(nil)
		close(hears)
		require.NoError(t, acquire(t, l).Release())

		h = acquire(t, l)
		hears = make(chan struct{})
		bad.until.Store(&hears)
		begun = time.Now()
		require.NoError(t, h.Release())
		require.Less(t, time.Since(begun), 2*lease)
		close(hears)
	})
}

// A lock that was lost while the store did not answer is given back when the store answers again.
func TestLostIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := outagetest.New(t, new(store.Memory), outagetest.Faults{})
		h := acquire(t, open(t, bad))
		bad.Outage(true)
		<-h.Context().Done()
		bad.Outage(false)
		require.ErrorIs(t, h.Release(), lock.ErrLost)
		require.NoError(t, try(t, open(t, bad)).Release())
	})
}

// An error that waiting does not mend is returned at once, and changes nothing.
func TestRefused(t *testing.T) {
	s := new(store.Memory)
	rev, err := s.Swap(t.Context(), []byte("dmutex record 2\nepoch 1\n"), "0")
	require.NoError(t, err)
	_, err = open(t, s).Acquire(t.Context())
	require.ErrorIs(t, err, storelock.ErrRecord)
	require.EqualError(t, err, `storelock: lock "job": bad record: it is not one of a lock: use another record, or delete it`)
	_, last, err := s.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, rev, last)

	s = new(store.Memory)
	require.NoError(t, acquire(t, open(t, s)).Release())
	other, err := storelock.New(s, "other", lease)
	require.NoError(t, err)
	_, err = other.TryAcquire(t.Context())
	require.ErrorContains(t, err, `it is of the lock "job", not of "other": give each lock a record of its own`)

	s = new(store.Memory)
	_, err = s.Swap(t.Context(), []byte("dmutex lock 1\nlock \"job\"\nfence 9223372036854775807\nlease 1000000000\nholder \nname \"\"\n"), "0")
	require.NoError(t, err)
	_, err = open(t, s).Acquire(t.Context())
	require.ErrorContains(t, err, "its fences are used up")

	_, err = open(t, unusable{}).Acquire(t.Context())
	require.ErrorIs(t, err, store.ErrUnusable)

	for _, length := range []int{0, 2000} {
		_, err = storelock.New(s, string(make([]byte, length)), 0)
		require.ErrorContains(t, err, "the name of a lock has 1 to 1024 bytes")
	}
	_, err = storelock.New(s, "job", time.Millisecond)
	require.ErrorContains(t, err, "the lease is 100ms to 1h")
	_, err = storelock.New(nil, "job", 0)
	require.ErrorContains(t, err, "the store is nil")
}

type unusable struct{}

func (unusable) Load(context.Context) ([]byte, store.Revision, error) {
	return nil, "", fmt.Errorf("no permission: %w", store.ErrUnusable)
}

func (unusable) Swap(context.Context, []byte, store.Revision) (store.Revision, error) {
	return "", store.ErrUnusable
}

// The lock is lost if another process empties the record.
func TestTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(store.Memory)
		h := acquire(t, open(t, s))
		put(t, s, nil)
		<-h.Context().Done()
		require.ErrorIs(t, h.Err(), lock.ErrLost)
		require.ErrorContains(t, h.Err(), "another process has the lock, or the record was deleted")
		require.ErrorIs(t, h.Release(), lock.ErrLost)
	})
}

// If an old record is put back, another process gets the lock, with a higher fence, and the holder loses it
// when it renews.
func TestPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * 365 * 24 * time.Hour)
		s := new(store.Memory)
		require.NoError(t, acquire(t, open(t, s)).Release())
		old, _, err := s.Load(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Millisecond)
		h := acquire(t, open(t, s))
		time.Sleep(time.Millisecond)
		put(t, s, old)
		next := acquire(t, open(t, s))
		require.Greater(t, next.Fence(), h.Fence())
		time.Sleep(lease / 2)
		require.ErrorIs(t, h.Err(), lock.ErrLost)
		require.NoError(t, next.Err())
		require.ErrorIs(t, h.Release(), lock.ErrLost)
		require.NoError(t, next.Release())
	})
}

// What stands in the way of a caller is what failed last: a load that succeeds does not hide that swaps fail.
// A caller that waits for a holder learns its name, and for how long it has held the lock.
func TestTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * 365 * 24 * time.Hour)
		s := &prover{full: errors.New("no space left on device")}
		_, err := open(t, s).Acquire(nodetest.ContextFor(t, 10*lease))
		require.ErrorIs(t, err, s.full)
		require.NotErrorIs(t, err, lock.ErrBusy, "nobody holds it")
		s.full = nil
		h := acquire(t, open(t, s))
		time.Sleep(time.Hour)
		host, err := os.Hostname()
		require.NoError(t, err)
		holder := fmt.Sprintf("%s/%d has held it for 1h0m0s", host, os.Getpid())
		_, err = open(t, s).TryAcquire(t.Context())
		require.ErrorContains(t, err, "lock is busy: "+holder)
		_, err = open(t, s).Acquire(nodetest.ContextFor(t, 10*lease))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, lock.ErrBusy)
		require.ErrorContains(t, err, "lock is busy: ")
		require.NoError(t, h.Release())
	})
}

// A record that is deleted, and made again at once, has a higher fence.
func TestMadeAgain(t *testing.T) {
	s, last := new(store.Memory), uint64(0)
	for range 100 {
		h := acquire(t, open(t, s))
		require.Greater(t, h.Fence(), last)
		last = h.Fence()
		require.NoError(t, h.Release())
		put(t, s, nil)
	}
}

// A handle of another package has no file.
func TestForeignFile(t *testing.T) {
	h, err := locktest.New("job").Acquire(t.Context())
	require.NoError(t, err)
	require.Nil(t, storelock.File(h))
	require.NoError(t, storelock.Unreleased(h))
}

// Over a file, processes hold the lock one at a time, and a handle has a file for a child to inherit.
func TestFile(t *testing.T) {
	s, err := filestore.Open(filepath.Join(t.TempDir(), "job"))
	require.NoError(t, err)
	var inside, total atomic.Int32
	var working sync.WaitGroup
	for range 4 {
		working.Go(func() {
			for range 5 {
				h, err := open(t, s).Acquire(t.Context())
				require.NoError(t, err)
				require.EqualValues(t, 1, inside.Add(1))
				require.Equal(t, runtime.GOOS != "windows", storelock.File(h) != nil)
				inside.Add(-1)
				total.Add(1)
				require.NoError(t, h.Release())
			}
		})
	}
	working.Wait()
	require.EqualValues(t, 20, total.Load())
}
