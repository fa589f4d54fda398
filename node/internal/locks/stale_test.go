package locks

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/membership"
)

// A machine of an earlier view that was not swept says nothing about the view that acts, and answers for nothing in it.
func TestMachineOfAnEarlierView(t *testing.T) {
	members := []dmutex.NodeID{1, 2, 3}
	holdings := make([]membership.Holding, len(members))
	for i := range 30 { // in view 2; in view 3 nobody holds them
		of := &holdings[i%3]
		of.Node = members[i%3]
		of.Holds = append(of.Holds, membership.Hold{Lock: fmt.Sprint(i), Fence: 1})
	}
	for _, a := range algorithms.All {
		for _, self := range members {
			table, _ := alone(t)
			table.cfg.Algorithm, table.cfg.Clock = a.Algorithm, func() int64 { return 0 }
			view := func(epoch uint64, whole bool, holdings []membership.Holding) *membership.Word {
				table.Freeze(epoch, dmutex.Start{Self: self, Members: members, Fence: epochs.First(epoch), Limit: epochs.Last(epoch)})
				_, word, frozen := table.Frozen(epoch, whole)
				require.True(t, frozen)
				require.True(t, table.Act(epoch, holdings, nil))
				return word
			}
			view(2, false, holdings)
			table.mu.Lock()
			for i := range 30 {
				table.lock(fmt.Sprint(i))
			}
			table.mu.Unlock()
			view(3, false, nil)
			require.Empty(t, table.Totals().MayHold)
			for i := range 30 {
				require.Equal(t, dmutex.None, table.Lends(fmt.Sprint(i)))
			}
			word := view(4, true, nil)
			table.Sweep()
			require.Zero(t, table.Totals().Locks)

			table, _ = alone(t)
			table.cfg.Algorithm, table.cfg.Clock = a.Algorithm, func() int64 { return 0 }
			view(3, true, nil)
			require.ElementsMatch(t, view(4, true, nil).Differs, word.Differs, "%s at %d", a.Name, self)
		}
	}
}

// Those that waited when a view was frozen, and those that have come since, are served in the next one.
func TestWaitsForTheNextView(t *testing.T) {
	table, _ := alone(t)
	waits := func(name string) *Waiter {
		w, _, err := table.Join(t.Context(), name, Want{}, nil)
		require.NoError(t, err)
		require.NotNil(t, w)
		return w
	}
	table.Halt()
	was := waits("before")
	table.Freeze(2, dmutex.Start{Self: 1, Members: []dmutex.NodeID{1}, Fence: epochs.First(2), Limit: epochs.Last(2)})
	_, _, frozen := table.Frozen(2, false)
	require.True(t, frozen)
	come := waits("since")
	require.True(t, waits("no more").Quit(dmutex.ErrMisuse))
	require.Len(t, table.waiting, 2)
	table.Resume()
	require.True(t, table.Act(2, nil, nil))
	require.True(t, was.Over())
	require.True(t, come.Over())
	require.Empty(t, table.waiting)
}
