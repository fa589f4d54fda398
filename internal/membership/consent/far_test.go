package consent

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/membership"
)

// Members that are far from each other leave and return one after the other, as in a rolling restart
// between continents. Each is back within eight round trips and at most five views.
func TestReturnFromFar(t *testing.T) {
	for _, trip := range []int64{0, 50, 190, 210, 250, 300, 400, 700, 1000, 2000, 3000, 5000} { // in milliseconds
		for _, jitter := range []int64{0, 10, 30} { // percent
			for n := 2; n <= 3; n++ {
				for seed := range uint64(5) {
					where := fmt.Sprintf("%d members, round trip %d ms, jitter %d %%, seed %d", n, trip, jitter, seed)
					h := newHistory(t, n, seed)
					h.delayed = func() int64 { return trip * millisecond / 200 * (100 - jitter + h.Int64N(2*jitter+1)) }
					for i := range n {
						h.start(i)
					}
					h.until(h.now+600*second, h.settled)
					for i := range n {
						h.input(i, func(m *Machine) membership.Output { return m.Leave(h.now) })
						h.until(h.now+600*second, func() bool { return h.runs[i].Phase() == Left })
						require.Equal(t, Left, h.runs[i].Phase(), where)
						h.crash(i)
						h.pass(second)
						begun := h.now
						views := h.returns(i)
						require.True(t, h.settled(), "%s: after %d views", where, views)
						require.LessOrEqual(t, views, 5, where)
						require.Less(t, time.Duration(h.now-begun), time.Second+8*time.Duration(trip)*time.Millisecond, where)
					}
				}
			}
		}
	}
}

// returns starts a member again, waits until it is back, and returns how many views another member has
// installed meanwhile.
func (h *history) returns(i int) (views int) {
	other := h.runs[(i+1)%len(h.runs)]
	last := other.View().Epoch
	h.start(i)
	h.until(h.now+600*second, func() bool {
		if epoch := other.View().Epoch; epoch != last {
			last = epoch
			views++
		}
		return h.settled()
	})
	return views
}
