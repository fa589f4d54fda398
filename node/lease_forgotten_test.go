package node_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
)

// An amnesiac is a store that can lose everything, and says so, as a process has opened it.
type amnesiac struct {
	store.Store
	histories *atomic.Int64 // of all processes
	last      atomic.Int64  // that this one knows; 0 if it knows none
}

func (f *amnesiac) Load(ctx context.Context) ([]byte, store.Revision, error) {
	value, rev, err := f.Store.Load(ctx)
	now := f.histories.Load()
	last := f.last.Swap(now)
	switch {
	case err != nil:
		return value, rev, err
	case len(value) == 0 && now > 1:
		return nil, rev, store.ErrForgotten
	case last != 0 && last != now:
		return nil, "", store.ErrForgotten
	}
	return value, rev, nil
}

// When the store has forgotten the record, the locks are lost, and the members form a group again by themselves, in which
// locks are granted after a lease. Waiters keep waiting, and fences rise.
func TestLeaseForgotten(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		var histories atomic.Int64
		histories.Store(1)
		g.wrapStore = func(s store.Store) store.Store { return &amnesiac{Store: s, histories: &histories} }
		all := slices.Clone(g.open(3))
		for range 2 {
			held := all[0].acquire("x")
			waiting := all[1].acquireLater(t.Context(), "x")
			histories.Add(1)
			g.put("")
			began := time.Now()
			h := granted(t, waiting)
			require.GreaterOrEqual(t, time.Since(began), leaseOf)
			require.Less(t, time.Since(began), 2*leaseOf)
			require.Greater(t, h.Fence(), held.Fence())
			require.ErrorIs(t, held.Err(), node.ErrLost)
			require.ErrorIs(t, held.Err(), store.ErrForgotten)
			require.NoError(t, h.Release())
			for _, s := range all {
				require.NoError(t, s.acquire("y").Release())
				require.NoError(t, s.Status().Err)
				require.Len(t, s.Status().View.Members, 3)
			}
		}
	})
}
