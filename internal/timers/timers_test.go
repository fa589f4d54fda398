package timers

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/due"
)

const (
	first = iota
	second
)

// A timer that is set goes off once, and until then Next has it.
func TestTable(t *testing.T) {
	table := New()
	require.EqualValues(t, int64(due.Never), table.Next())
	require.False(t, table.Due(first, due.Never-1))
	table[second], table[first] = 3, 2
	require.EqualValues(t, 2, table.Next())
	require.False(t, table.Due(first, 1))
	require.True(t, table.Due(first, 2))
	require.False(t, table.Due(first, 2))
	require.EqualValues(t, 3, table.Next())
	require.True(t, table.Due(second, 4))
	require.Equal(t, New(), table)
}
