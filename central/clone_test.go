package central_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/dmutextest"
)

// TestCloneHasItsOwnOutput: an input of a clone does not overwrite what the original
// has just returned, nor the other way round.
func TestCloneHasItsOwnOutput(t *testing.T) {
	for _, algorithm := range []dmutex.Algorithm{central.New, central.At(1)} {
		m, err := algorithm(dmutex.Start{Self: 2, Members: dmutextest.Nodes(3)})
		require.NoError(t, err)
		out, err := m.Request()
		require.NoError(t, err)
		require.NotEmpty(t, out)
		want := slices.Clone(out)
		c := m.(dmutextest.Machine).Clone()
		_, err = c.Cancel() // wipes the output of the last input
		require.NoError(t, err)
		require.Equal(t, want, out)

		fresh, err := algorithm(dmutex.Start{Self: 2, Members: dmutextest.Nodes(3)})
		require.NoError(t, err)
		c = fresh.(dmutextest.Machine).Clone()
		out, err = c.Request()
		require.NoError(t, err)
		_, err = fresh.Request()
		require.NoError(t, err)
		_, err = fresh.Cancel()
		require.NoError(t, err)
		require.Equal(t, want, out)
	}
}
