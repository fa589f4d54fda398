package lock_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/lock"
)

// Two processes share a lock at the same time. A call that wants it alone waits for both, and one
// that comes later and would share waits behind that.
func TestShared(t *testing.T) {
	each(t, func(t *testing.T, s system) {
		one, sharable := s.one.(lock.Sharable)
		if !sharable {
			require.Contains(t, t.Name(), "record")
			return
		}
		two := s.two.(lock.Sharable)
		require.Equal(t, "x", one.Shared().Name())
		readers := []lock.Held{acquire(t, one.Shared()), acquire(t, two.Shared()), acquire(t, one.Shared())}
		_, err := two.TryAcquire(t.Context())
		require.ErrorIs(t, err, lock.ErrBusy)
		alone, late := make(chan lock.Held, 1), make(chan lock.Held, 1)
		go func() { alone <- acquire(t, one) }()
		synctest.Wait()
		go func() { late <- acquire(t, one.Shared()) }()
		for _, h := range readers {
			synctest.Wait()
			require.Empty(t, alone)
			require.Empty(t, late)
			require.NoError(t, h.Err())
			require.NoError(t, h.Release())
		}
		h := <-alone
		for _, r := range readers {
			require.Greater(t, h.Fence(), r.Fence())
		}
		synctest.Wait()
		require.Empty(t, late)
		require.NoError(t, h.Release())
		require.NoError(t, (<-late).Release())
	})
}
