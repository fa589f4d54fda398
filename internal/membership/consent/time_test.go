package consent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/membership"
)

// Members that meet one after the other, over a slow network, agree soon after the last two have met.
func TestMeetSlowly(t *testing.T) {
	for seed := range uint64(200) {
		h := newHistory(t, 2+int(seed%5), seed)
		h.delayed = func() int64 { return h.Int64N(300 * millisecond) }
		begun := h.now
		for i := range h.runs {
			h.start(i)
		}
		h.until(begun+10*second, h.settled)
		require.True(t, h.settled(), "seed %d", seed)
	}
}

// Members that leave together are out within some round trips, or some pauses if these are longer. If all messages
// take equally long, members that begin together collide at every step.
func TestLeaveTogether(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond} {
		for n := 2; n <= 6; n++ {
			for leavers := range 1 << n {
				h := newHistory(t, n, 0)
				h.delayed = func() int64 { return int64(delay) }
				for i := range n {
					h.start(i)
				}
				h.settle()
				leaves := func(i int) bool { return leavers&(1<<i) != 0 }
				for i := range n {
					if leaves(i) {
						h.input(i, func(m *Machine) membership.Output { return m.Leave(h.now) })
					}
				}
				begun := h.now
				h.until(begun+60*second, func() bool {
					for i, p := range h.runs {
						if leaves(i) && p.Phase() != Left {
							return false
						}
					}
					return true
				})
				require.Less(t, time.Duration(h.now-begun), 500*time.Millisecond+20*delay, "of %d members, %b leave, and a message takes %v", n, leavers, delay)
			}
		}
	}
}
