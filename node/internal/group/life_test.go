package group

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/kit/wrongclock"
	"github.com/dmutex/dmutex/internal/outside"
)

// A process that is restarted at once has a higher life than before. A process with a lower life
// would have to stop if it came into a view before all members have reported.
func TestLivesRise(t *testing.T) {
	c := strict{group: &Group{cfg: Config{Self: 2, Members: []dmutex.NodeID{1, 2}}, clocks: clock.New()}}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * 365 * 24 * time.Hour) // from the year 2000 to a time after 2020, when epochs begin
		for range 1000 {
			former := c.newLife(0)
			time.Sleep(2 * time.Millisecond)
			require.Greater(t, c.newLife(0), former)
		}
	})
	require.Greater(t, c.newLife(1<<63), uint64(1<<63))
}

// Members that start at the same moment have different lives. Otherwise a stream could take a
// frame of another stream for its own.
func TestLivesDiffer(t *testing.T) {
	members := []dmutex.NodeID{1, 2, 7}
	for range 1000 {
		for i, id := range members {
			c := strict{group: &Group{cfg: Config{Self: id, Members: members}, clocks: clock.New()}}
			require.EqualValues(t, i, c.newLife(0)%4)
		}
	}
}

// Each life of a simulated process, in both modes, begins at its wall clock, which may be wrong.
func TestLivesOfSimulatedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrong := wrongclock.New(1, 0)
		wrong.Step(30 * 365 * 24 * time.Hour) // from the year 2000 to a time after 2020, when epochs begin
		g := &Group{cfg: Config{Self: 2, Members: []dmutex.NodeID{1, 2}}}
		(&outside.Process{Clock: wrong}).Open(func() { g.clocks = clock.New() })
		year := uint64(365 * 24 * time.Hour)
		require.Greater(t, (&strict{group: g}).newLife(0), 9*year)
		require.Greater(t, (&record{group: g}).newLife(0), 9*year)
		require.Zero(t, epochs.Since(time.Now().UnixNano()))
	})
}
