package quorum

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompare(t *testing.T) {
	rows, err := Compare(13, 0.9)
	require.NoError(t, err)
	names := []string{}
	for i, r := range rows {
		names = append(names, r.Name)
		require.Equal(t, r.Coterie.Smallest(), r.Smallest)
		require.Equal(t, r.Coterie.Largest(), r.Largest)
		require.Equal(t, r.Coterie.Load(), r.Load)
		least, most := r.Coterie.Resilience()
		require.Equal(t, [2]int{least, most}, r.Resilience)
		a, err := r.Coterie.Availability(0.9)
		require.NoError(t, err)
		require.Equal(t, a, r.Availability)
		if i > 0 {
			require.LessOrEqual(t, r.Availability.Low, rows[i-1].Availability.Low)
		}
	}
	require.Equal(t, []string{"majority", "fpp", "tree", "wall", "hqc"}, names[:5])
	require.Len(t, names, 9)
	require.NotContains(t, names, "degenerate", "it is the plane")

	find := func(name string) Row {
		i := slices.Index(names, name)
		return rows[i]
	}
	require.InDelta(t, 3*(7-1), find("majority").Messages, 1e-9)  // 3(K-1)
	require.InDelta(t, 3*(4-1), find("fpp").Messages, 1e-9)       // 3(K-1)
	require.InDelta(t, 3*12.0/13, find("central").Messages, 1e-9) // 3, and 0 for the centre
}

// Without p the ranking is by messages; a probability for each site is taken at
// its word.
func TestCompareVariants(t *testing.T) {
	rows, err := Compare(7)
	require.NoError(t, err)
	require.True(t, slices.IsSortedFunc(rows, func(a, b Row) int { return int(1e6 * (a.Messages - b.Messages)) }))
	require.Equal(t, "central", rows[0].Name)
	require.Zero(t, rows[0].Availability)

	up := []float64{1, 0, 0, 0, 0, 0, 0}
	rows, err = Compare(7, up...)
	require.NoError(t, err)
	require.Equal(t, "central", rows[0].Name) // its centre is site 1
	require.Equal(t, 1.0, rows[0].Availability.Value)
	require.Equal(t, 0.0, rows[1].Availability.Value)
}

// Every n from 1 to 64 has a table, and every construction but the plane is in it.
func TestCompareEveryN(t *testing.T) {
	for n := 1; n <= 64; n += 1 + n/20 {
		rows, err := Compare(n)
		require.NoError(t, err)
		require.Len(t, rows, len(Constructions[int]())-1, "n = %d", n)
	}
}
