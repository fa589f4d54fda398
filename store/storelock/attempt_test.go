package storelock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/lockrecord"
	"github.com/dmutex/dmutex/lock"
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
