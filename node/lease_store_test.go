package node_test

import (
	"context"
	"fmt"
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

// A deniedStore takes no operation while it is denied.
type deniedStore struct {
	store.Store
	loads, swaps bool // are denied
}

var errDenied = fmt.Errorf("%w: permission denied", store.ErrUnusable)

func (s *deniedStore) Load(ctx context.Context) ([]byte, store.Revision, error) {
	if s.loads {
		return nil, "", errDenied
	}
	return s.Store.Load(ctx)
}

func (s *deniedStore) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	if s.swaps {
		return "", errDenied
	}
	return s.Store.Swap(ctx, value, rev)
}

// A store that only an operator can mend ends a node that has not acted yet, at once.
func TestLeaseUnusableStore(t *testing.T) {
	for _, denied := range []*deniedStore{{loads: true}, {swaps: true}} {
		withCrew(t, ricart.New, func(t *testing.T, c *crew) {
			denied.Store = &c.store
			config := c.config(&sailor{crew: c})
			config.Store = denied
			began := time.Now()
			n, err := node.Open(t.Context(), config)
			require.NoError(t, err)
			err = n.Ready(t.Context())
			require.ErrorIs(t, err, store.ErrUnusable)
			_, err = n.Mutex("x").Acquire(t.Context())
			require.ErrorIs(t, err, store.ErrUnusable)
			require.NotErrorIs(t, err, node.ErrStore)
			require.EqualError(t, n.Status().Err, "node: store: unusable until this is mended: permission denied")
			require.Less(t, time.Since(began), leaseOf/10)
			require.NoError(t, n.Close(contextFor(t, time.Second)))
		})
	}
}

// A member that has acted goes on when the store is mended.
func TestLeaseUnusableStoreLater(t *testing.T) {
	withCrew(t, ricart.New, func(t *testing.T, c *crew) {
		denied := &deniedStore{Store: &c.store}
		config := c.config(&sailor{crew: c})
		config.Store = denied
		n, err := node.Open(t.Context(), config)
		require.NoError(t, err)
		require.NoError(t, n.Ready(contextFor(t, 2*leaseOf)))
		synctest.Wait()
		denied.loads, denied.swaps = true, true
		time.Sleep(2 * leaseOf)
		_, err = n.Mutex("x").TryAcquire(t.Context())
		require.ErrorIs(t, err, node.ErrStore)
		require.ErrorIs(t, err, store.ErrUnusable)
		synctest.Wait()
		denied.loads, denied.swaps = false, false
		held, err := n.Mutex("x").Acquire(contextFor(t, leaseOf))
		require.NoError(t, err)
		require.NoError(t, held.Release())
		require.NoError(t, n.Close(contextFor(t, time.Second)))
	})
}
