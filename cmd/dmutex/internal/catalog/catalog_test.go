package catalog

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/ricart"
)

// The tool has the algorithms of the list that the tests of all have, under names that are typed, and
// knows which of them share.
func TestAlgorithms(t *testing.T) {
	shares := make(map[uintptr]bool) // by its function
	of := func(a dmutex.Algorithm) uintptr { return reflect.ValueOf(a).Pointer() }
	for _, a := range All {
		shares[of(a.New)] = a.Shares()
	}
	for _, a := range algorithms.All {
		got, known := shares[of(a.Algorithm)]
		require.True(t, known, "the tool needs %s", a.Name)
		require.Equal(t, a.Shares, got, a.Name)
	}
	require.Len(t, All, len(algorithms.All), "the tool has one that is not in the list")
}

// An algorithm that is added comes first, and is the default. No formula says how many messages it may send.
func TestAdd(t *testing.T) {
	before := All
	t.Cleanup(func() { All = before })
	require.Equal(t, "all", Default("all"))
	Add(ricart.New)
	require.Equal(t, "mine", Default("all"))
	require.Len(t, All, len(before)+1)
	require.Equal(t, "central", before[0].Name, "the list is not changed in place")
	require.Equal(t, "mine", All[0].Name)
	require.True(t, All[0].Shares())
	m := All[0].Shared().Count(9, 7, 2)
	require.True(t, m.Fit())
	require.Equal(t, "-", m.Span())
	require.Equal(t, "3.500", m.Measured())
}

func TestFormulas(t *testing.T) {
	rows := make(map[string]bool)
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
		rows[c.name] = true
		a, ok := Find(c.name)
		require.True(t, ok)
		least, greatest := a.Messages(5)
		require.Equal(t, []int{c.least5, c.greatest5}, []int{least, greatest}, c.name)
		least, greatest = a.Messages(16)
		require.Equal(t, []int{c.least16, c.greatest16}, []int{least, greatest}, c.name)
	}
	for _, a := range All {
		require.True(t, rows[a.Name], "%s needs a row", a.Name)
	}
}
