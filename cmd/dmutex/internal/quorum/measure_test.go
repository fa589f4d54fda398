package quorum

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/quorum"
)

func TestCompare(t *testing.T) {
	rows, err := compare(13, []float64{0.9})
	require.NoError(t, err)
	coteries := make(map[string]quorum.Coterie[int])
	for _, k := range quorum.Constructions[int]() {
		if c, err := k.Build(sitesTo(13)...); err == nil {
			coteries[k.Name] = c
		}
	}
	names := []string{}
	for i, r := range rows {
		names = append(names, r.Construction)
		c := coteries[r.Construction]
		low, high := c.Load()
		require.Equal(t, [2]float64{low, high}, r.Load)
		least, most := c.Resilience()
		require.Equal(t, [2]int{least, most}, r.Resilience)
		a, err := c.Availability(0.9)
		require.NoError(t, err)
		require.Equal(t, a, *r.Availability)
		if i > 0 {
			require.LessOrEqual(t, r.Availability.Low, rows[i-1].Availability.Low)
		}
	}
	require.Equal(t, []string{"majority", "fpp", "tree", "wall", "hqc"}, names[:5])
	require.Len(t, names, 8)

	find := func(name string) row {
		i := slices.Index(names, name)
		return rows[i]
	}
	require.InDelta(t, 3*(7-1), find("majority").Messages, 1e-9)  // 3(K-1)
	require.InDelta(t, 3*(4-1), find("fpp").Messages, 1e-9)       // 3(K-1)
	require.InDelta(t, 3*12.0/13, find("central").Messages, 1e-9) // 3, and 0 for the center
}

// Without p the ranking is by messages. There may be a probability for each site.
func TestCompareVariants(t *testing.T) {
	rows, err := compare(7, nil)
	require.NoError(t, err)
	require.True(t, slices.IsSortedFunc(rows, func(a, b row) int { return int(1e6 * (a.Messages - b.Messages)) }))
	require.Equal(t, "central", rows[0].Construction)
	require.Zero(t, rows[0].Availability)

	up := []float64{1, 0, 0, 0, 0, 0, 0}
	rows, err = compare(7, up)
	require.NoError(t, err)
	require.Equal(t, "central", rows[0].Construction) // its center is site 1
	require.Equal(t, 1.0, rows[0].Availability.Value)
	require.Equal(t, 0.0, rows[1].Availability.Value)
}

// The table of any number of sites has every construction that exists for that number.
func TestCompareSizes(t *testing.T) {
	for n := 1; n <= 64; n += 1 + n/20 {
		rows, err := compare(n, nil)
		require.NoError(t, err)
		exist := len(quorum.Constructions[int]())
		if _, err := quorum.Plane(sitesTo(n)...); err != nil {
			exist--
		}
		require.Len(t, rows, exist, "n = %d", n)
	}
}
