package tool

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFormulas(t *testing.T) {
	for _, c := range []struct {
		name                string
		least5, greatest5   int
		least16, greatest16 int
	}{
		{"central", 3, 3, 3, 3},
		{"witnessed", 3, 3, 3, 3},
		{"lamport", 12, 12, 45, 45},
		{"lamport-omit", 8, 12, 30, 45},
		{"ricart", 8, 8, 30, 30},
		{"carvalho", 0, 8, 0, 30},
		{"maekawa", 6, 18, 18, 36}, // quorums of 3 or 4; all of 7
		{"suzukikasami", 0, 5, 0, 16},
		{"ring", 0, 5, 0, 16},
	} {
		a, ok := Find(c.name)
		require.True(t, ok)
		least, greatest := a.Messages(5)
		require.Equal(t, []int{c.least5, c.greatest5}, []int{least, greatest}, c.name)
		least, greatest = a.Messages(16)
		require.Equal(t, []int{c.least16, c.greatest16}, []int{least, greatest}, c.name)
	}
}
