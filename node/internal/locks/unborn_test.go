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

// What a node knows of a lock does not depend on whether its machine was born: also not if the lock was
// carried into the view, by any member, alone or shared. It is found out when it is asked for.
func TestUnbornKnowsTheSame(t *testing.T) {
	members := []dmutex.NodeID{1, 2, 3}
	var holdings []membership.Holding
	for _, id := range members {
		of := membership.Holding{Node: id}
		for i := range 30 { // at home with any of them
			alone := membership.Hold{Lock: fmt.Sprintf("%d alone %d", id, i), Fence: 1}
			shared := membership.Hold{Lock: fmt.Sprint("shared ", i%10), Fence: 1, Shared: true}
			some := membership.Hold{Lock: fmt.Sprintf("shared but by %d: %d", id%3+1, i%10), Fence: 1, Shared: true}
			of.Holds = append(of.Holds, alone, shared, some)
		}
		holdings = append(holdings, of)
	}
	for _, a := range algorithms.All {
		for _, self := range members {
			word := func(born bool) (differs, apart map[string]uint64) {
				table, _ := alone(t)
				table.cfg.Algorithm = a.Algorithm
				table.Freeze(2, dmutex.Start{Self: self, Members: members, Fence: epochs.First(2), Limit: epochs.Last(2)})
				_, _, frozen := table.Frozen(2, true)
				require.True(t, frozen)
				table.cfg.Clock = func() int64 { return 0 }
				require.True(t, table.Act(2, holdings, nil))
				if born {
					for _, of := range holdings {
						for _, h := range of.Holds {
							table.mu.Lock()
							table.lock(h.Lock)
							table.mu.Unlock()
						}
					}
				}
				table.Freeze(3, dmutex.Start{Self: self, Members: members[:1]}) // is overtaken
				_, w, _ := table.Frozen(3, false)
				require.True(t, w.Brief)
				table.Freeze(4, dmutex.Start{Self: self, Members: members, Fence: epochs.First(4), Limit: epochs.Last(4)})
				_, w, _ = table.Frozen(4, true)
				require.Equal(t, uint64(2), w.Epoch)
				require.False(t, w.Brief)
				differs, apart = make(map[string]uint64), make(map[string]uint64)
				for _, d := range w.Differs {
					require.NotContains(t, differs, d.Lock)
					differs[d.Lock] = d.Bits
				}
				for _, d := range w.Alone {
					require.NotContains(t, apart, d.Lock)
					apart[d.Lock] = d.Bits
				}
				return differs, apart
			}
			differs, apart := word(false)
			wantDiffers, wantApart := word(true)
			require.Equal(t, wantDiffers, differs, "%s at %d", a.Name, self)
			require.Equal(t, wantApart, apart, "%s at %d", a.Name, self)
		}
	}
}
