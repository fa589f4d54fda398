package node_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/store"
)

// A stuckStore returns from no operation before it is released, whatever its context says.
type stuckStore struct {
	store.Store
	released chan struct{} // nil if it is not stuck
}

func (s *stuckStore) Load(ctx context.Context) ([]byte, store.Revision, error) {
	if s.released != nil {
		<-s.released
	}
	return s.Store.Load(ctx)
}

func (s *stuckStore) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	if s.released != nil {
		<-s.released
	}
	return s.Store.Swap(ctx, value, rev)
}

// A store that breaks its contract, and does not return when its context has ended, keeps
// neither Open nor Close: both return, and Close says why the record still has the node.
// At most one call of the store is left behind.
func TestLeaseStuckStore(t *testing.T) {
	for _, joined := range []bool{true, false} {
		withCrew(t, ricart.New, func(t *testing.T, c *crew) {
			stuck := &stuckStore{Store: &c.store}
			release := make(chan struct{})
			if !joined {
				stuck.released = release
			}
			config := c.config(&sailor{crew: c})
			config.Store = stuck
			n, err := node.Open(t.Context(), config)
			require.NoError(t, err)
			if joined {
				require.NoError(t, n.Ready(contextFor(t, 2*leaseOf)))
				synctest.Wait()
				stuck.released = release
			}
			time.Sleep(3 * leaseOf)
			_, err = n.Mutex("x").TryAcquire(t.Context())
			require.ErrorIs(t, err, node.ErrStore)
			require.ErrorContains(t, err, "the store does not return")

			began := time.Now()
			err = n.Close(contextFor(t, time.Second))
			require.Less(t, time.Since(began), 3*time.Second)
			if joined {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, node.ErrStore)
			}
			close(release) // or the bubble would not end
		})
	}
}
