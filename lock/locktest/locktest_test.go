package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/lock/locktest"
)

// backup is the code under test.
func backup(ctx context.Context, nightly lock.Mutex, save func(fence uint64, part string)) error {
	held, err := nightly.Acquire(ctx)
	if err != nil {
		return err
	}
	defer held.Release()
	for _, part := range []string{"orders", "invoices", "users"} {
		if err := held.Err(); err != nil {
			return err
		}
		save(held.Fence(), part)
	}
	return nil
}

func Example() {
	nightly := locktest.New("nightly")
	err := backup(context.Background(), nightly, func(fence uint64, part string) {
		fmt.Println("save", part, "under fence", fence)
		if part == "invoices" {
			nightly.Lose(errors.New("no network"))
		}
	})
	fmt.Println("it has stopped:", errors.Is(err, lock.ErrLost))
	fmt.Println(strings.Join(nightly.History(), ", "))
	// Output:
	// save orders under fence 1
	// save invoices under fence 1
	// it has stopped: true
	// 1 acquired, 1 lost: no network
}

// The conformance suite in package lock tests what a lock.Mutex does. This tests the other
// methods of Lock.
func TestLevers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New("l")
		l.Lose(nil)
		l.Suspend(time.Second) // nobody holds it
		h, err := l.Acquire(t.Context())
		require.NoError(t, err)

		l.Suspend(time.Second)
		require.True(t, h.Suspended())
		require.Equal(t, time.Second, time.Until(h.Until()))
		l.Resume()
		time.Sleep(time.Hour)
		require.False(t, h.Suspended())
		require.NoError(t, h.Err())

		away := errors.New("away")
		waits := make(chan error)
		go func() {
			_, err := l.Acquire(t.Context())
			waits <- err
		}()
		synctest.Wait()
		l.Fail(away)
		require.ErrorIs(t, <-waits, away)
		require.ErrorIs(t, l.Do(t.Context(), func(context.Context, uint64) error { return nil }), away)
		require.NoError(t, h.Release())
		_, err = l.TryAcquire(t.Context())
		require.ErrorIs(t, err, away)
		l.Fail(nil)

		next, err := l.TryAcquire(t.Context())
		require.NoError(t, err)
		_, err = l.TryAcquire(t.Context())
		require.ErrorIs(t, err, lock.ErrBusy)
		l.Suspend(time.Second)
		time.Sleep(time.Second)
		require.ErrorIs(t, next.Err(), lock.ErrLost)
		require.ErrorIs(t, next.Release(), lock.ErrLost)
		require.Equal(t, []string{
			"1 acquired", "1 suspended", "1 resumed", "failed: away", "failed: away", "1 released", "failed: away",
			"2 acquired", "busy", "2 suspended", "2 lost: its lease has ended",
		}, l.History())
	})
}
