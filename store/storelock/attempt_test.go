package storelock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/lockrecord"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/store"
)

// A process may be paused for a lease at any moment, also right after the store has granted the lock.
// The handle is lost then.
func TestPausedAtGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &attempt{l: &mutex{lease: time.Second, clock: clock.New()}, ctx: t.Context(), leave: t.Context(), release: func() {}, granted: make(chan struct{})}
		a.m = lockrecord.New("job", "A", "", int64(a.l.lease))
		a.m.Operation(a.now(), 0)
		a.m.Loaded(a.now(), nil, "0")
		a.m.Operation(a.now(), 0)
		a.m.Swapped(a.now(), "1")
		require.Equal(t, lockrecord.Held, a.m.Phase(a.now()))
		time.Sleep(a.l.lease)
		require.False(t, a.settled(), "it is still in the record")
		<-a.granted
		require.ErrorIs(t, a.Err(), lock.ErrLost)
	})
}

// When the machine has slept for longer than the lease, the context of the handle ends soon after.
func TestSleptWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(new(store.Memory), "job", time.Hour)
		require.NoError(t, err)
		h, err := l.Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute)
		l.(*mutex).clock.StepWall(2 * time.Hour)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Error(t, h.Context().Err())
		require.ErrorIs(t, h.Release(), lock.ErrLost)
	})
}

// silent is a store whose swaps, but for the first, are not answered.
type silent struct {
	store.Memory
	swaps int
}

func (s *silent) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	if s.swaps++; s.swaps > 1 {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return s.Memory.Swap(ctx, value, rev)
}

// It does so also while the store is asked for the renewal.
func TestSleptWhileRenewing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(new(silent), "job", time.Hour)
		require.NoError(t, err)
		h, err := l.Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Hour/leases.Renew + time.Minute)
		require.NoError(t, h.Err())
		l.(*mutex).clock.StepWall(2 * time.Hour)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Error(t, h.Context().Err())
		require.ErrorIs(t, h.Release(), lock.ErrLost)
	})
}

// hidden is a store with a record that it does not show, as a database may have a row that this user may not read.
type hidden struct {
	store.Memory
	loads int
}

func (s *hidden) Load(ctx context.Context) ([]byte, store.Revision, error) {
	if s.loads++; s.loads > 1000 {
		<-ctx.Done()
	}
	return s.Memory.Load(ctx)
}

func (*hidden) Swap(context.Context, []byte, store.Revision) (store.Revision, error) {
	return "", store.ErrConflict
}

// A store that refuses each swap is not asked as fast as it answers.
func TestConflictsWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(hidden)
		l, err := New(s, "job", 0)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = l.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, s.loads, 300)
	})
}
