package group

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/clock"
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
