package quorum

import (
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

type built struct {
	build   func() Coterie[int]
	quorums [][]int
}

// large returns the two large coteries of the benchmarks: a grid of 1,000 sites (25 rows of
// 40: 1,000 quorums of 64) and the plane of order 31 (993 lines of 32 points).
func large(tb testing.TB) map[string]built {
	grid := func() Coterie[int] { return must(Grid(40, ints(1000)...)) }
	plane := func() Coterie[int] { return must(Plane(ints(993)...)) }
	return map[string]built{
		"grid-1000": {grid, quorumsOf(tb, grid())},
		"plane-31":  {plane, quorumsOf(tb, plane())},
	}
}

// Validating takes memory in proportion to the input, not to the half million
// pairs. (BenchmarkValidate measures the time.)
func TestValidationMemory(t *testing.T) {
	for name, l := range large(t) {
		c, err := New(l.quorums...)
		require.NoError(t, err)
		require.Len(t, l.quorums, c.Len())

		input := 0
		for _, q := range l.quorums {
			input += 8 * len(q)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.Empty(t, slices.Collect(Check(l.quorums...)))
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8*input), "validating %s", name)
	}
}

// HasQuorum allocates a few sets for a single gate of any size.
func TestAllocations(t *testing.T) {
	c := must(Majority(ints(1000)...))
	sites := ints(600)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { c.HasQuorum(sites...) }), 3.0)
}

func BenchmarkValidate(b *testing.B) {
	for name, l := range large(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				_, err := New(l.quorums...)
				require.NoError(b, err)
			}
		})
	}
}

func BenchmarkBuild(b *testing.B) {
	for name, l := range large(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				l.build()
			}
		})
	}
}

func BenchmarkAssign(b *testing.B) {
	for name, l := range large(b) {
		c := l.build()
		b.Run(name, func(b *testing.B) {
			for range b.N {
				_, err := c.Assign()
				require.NoError(b, err)
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	c := must(Tree(2, ints(63)...))
	for range b.N {
		c.Load()
	}
}

func BenchmarkAvailability(b *testing.B) {
	for name, c := range map[string]Coterie[int]{
		"majority-101": must(Majority(ints(101)...)),
		"grid-64":      must(Grid(0, ints(64)...)),
		"plane-21":     must(Plane(ints(21)...)),
		"tree-1023":    must(Tree(2, ints(1023)...)),
	} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				_, err := c.Availability(0.9)
				require.NoError(b, err)
			}
		})
	}
}

func BenchmarkHasQuorum(b *testing.B) {
	c := must(Majority(ints(5)...))
	for range b.N {
		c.HasQuorum(0, 2, 4)
	}
}
