package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A process that is restarted at once has a higher life than the one before: a lower
// one that is in a view before all have told what they know would have to stop.
func TestLivesRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * 365 * 24 * time.Hour) // the bubble's clock begins in the year 2000
		for range 1000 {
			former := newLife(0)
			time.Sleep(2 * time.Millisecond)
			require.Greater(t, newLife(0), former)
		}
	})
	require.Greater(t, newLife(1<<63), uint64(1<<63))
}
