package quorum

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/quicktest"
)

var probabilities = []float64{0, 1e-9, 0.1, 0.25, 0.5, 0.7, 0.9, 0.99, 0.999999, 1}

// closed compares the availability with a closed form, to 1e-12.
func closed(t *testing.T, want float64, c Coterie[int], p float64) {
	t.Helper()
	got, err := c.Availability(p)
	require.NoError(t, err)
	require.Zero(t, got.Samples)
	require.Equal(t, got.Low, got.High)
	require.InDelta(t, want, got.Value, 1e-12, "p = %v", p)
}

// Majority: the upper tail of the binomial distribution.
func TestAvailabilityOfMajority(t *testing.T) {
	for n := 1; n <= 61; n++ {
		c := must(Majority(ints(n)...))
		for _, p := range probabilities {
			tail := 0.0
			for k := n; k > n/2; k-- {
				tail += float64(binomial(n, k)) * math.Pow(p, float64(k)) * math.Pow(1-p, float64(n-k))
			}
			closed(t, tail, c, p)
		}
	}
}

// Maekawa's grid of r rows and c columns is available if a whole row and a whole column
// are up. The closed form is by inclusion and exclusion: i given rows and j given columns
// have i*c + j*r - i*j sites.
func TestAvailabilityOfGrid(t *testing.T) {
	most := enumerated
	if quicktest.On() {
		most = 16
	}
	for rows := 2; rows <= most/2; rows++ {
		for columns := 2; rows*columns <= most; columns++ {
			c := must(Grid(columns, ints(rows*columns)...))
			for _, p := range probabilities {
				want := 0.0
				for i := 1; i <= rows; i++ {
					for j := 1; j <= columns; j++ {
						term := float64(binomial(rows, i)*binomial(columns, j)) * math.Pow(p, float64(i*columns+j*rows-i*j))
						want += math.Pow(-1, float64(i+j)) * term
					}
				}
				closed(t, want, c, p)
			}
		}
	}
}

// Trees, hierarchies, wheels and walls: the recursion of their papers.
func TestAvailabilityByRecursion(t *testing.T) {
	for _, p := range probabilities {
		tree := p // Agrawal and El Abbadi, 1991
		for h := 2; h <= 6; h++ {
			tree = p*(1-(1-tree)*(1-tree)) + (1-p)*tree*tree
			closed(t, tree, must(Tree(2, ints(1<<h-1)...)), p)
		}
		hqc := p // Kumar, 1991
		for n := 3; n <= 81; n *= 3 {
			hqc = hqc * hqc * (3 - 2*hqc)
			closed(t, hqc, must(Hierarchical(3, ints(n)...)), p)
		}
		for k := 2; k <= 60; k++ {
			whole, none := math.Pow(p, float64(k)), math.Pow(1-p, float64(k))
			closed(t, p*(1-none)+(1-p)*whole, must(Wheel(ints(k+1)...)), p)
		}
		wall := p // Peleg and Wool, 1997
		for d := 2; d <= 11; d++ {
			whole, none := math.Pow(p, float64(d)), math.Pow(1-p, float64(d))
			wall = wall*(1-none) + (1-wall)*whole
			closed(t, wall, must(Wall(nil, ints(d*(d+1)/2)...)), p)
		}
	}
	// The Fano plane, by the number of up-sets: 7 of 3 sites, 28 of 4 (all but the
	// 7 complements of lines), and all of 5, 6 and 7.
	for _, p := range probabilities {
		q := 1 - p
		want := 7*math.Pow(p, 3)*math.Pow(q, 4) + 28*math.Pow(p, 4)*math.Pow(q, 3) +
			21*math.Pow(p, 5)*q*q + 7*math.Pow(p, 6)*q + math.Pow(p, 7)
		closed(t, want, must(Plane(ints(7)...)), p)
	}
}

// At p = 1/2 a coterie has availability 1/2 if and only if it is non-dominated
// (Peleg and Wool, 1995), else less.
func TestAvailabilityAtOneHalf(t *testing.T) {
	most := enumerated
	if quicktest.On() {
		most = 16
	}
	for _, k := range shapes() {
		for n := 1; n <= most; n++ {
			c, err := k.Build(ints(n)...)
			if k.Name == "fpp" && err != nil {
				continue
			}
			require.NoError(t, err)
			non, err := nonDominated(c)
			require.NoError(t, err)
			a, err := c.Availability(0.5)
			require.NoError(t, err)
			require.LessOrEqual(t, a.Value, 0.5+1e-12)
			require.Equal(t, non, a.Value > 0.5-1e-12, "%s of %d", k.Name, n)
		}
	}
}

func TestSampling(t *testing.T) {
	c := must(Majority(ints(9)...))
	up := make([]float64, 9)
	for site := range up {
		up[site] = 0.4 + float64(site)/20
	}
	truth, err := c.Availability(up...)
	require.NoError(t, err)
	missed := 0
	for seed := range uint64(300) {
		e := c.system().sample(up, 2000, seed)
		require.Equal(t, 2000, e.Samples)
		require.LessOrEqual(t, e.Low, e.Value)
		require.LessOrEqual(t, e.Value, e.High)
		require.Less(t, e.Low, e.High)
		if truth.Value < e.Low || truth.Value > e.High {
			missed++
		}
	}
	require.LessOrEqual(t, missed, 10) // of 300, 3 are to be expected at 99 percent

	a := c.system().sample(up, 1000, 7)
	b := c.system().sample(up, 1000, 7)
	other := c.system().sample(up, 1000, 8)
	require.Equal(t, a, b, "the same seed, the same estimate")
	require.NotEqual(t, a, other)

	sure := c.system().sample(same(9, 1.0), 100, 1)
	require.Equal(t, 1.0, sure.Value)
	require.Equal(t, 1.0, sure.High)
	require.Less(t, sure.Low, 1.0, "a hundred hits prove no certainty")
}

// Where the exact methods give up, a sample takes over, and the result says so. The
// availability of a plane of order 7 is at most the union bound over its lines.
func TestAvailabilityBeyondTheExact(t *testing.T) {
	if testing.Short() {
		t.Skip("a second of sampling")
	}
	c := must(Plane(ints(57)...))
	e, err := c.Availability(0.5)
	require.NoError(t, err)
	require.Equal(t, 1<<18, e.Samples)
	require.Less(t, e.High-e.Low, 0.0052)
	require.LessOrEqual(t, e.Low, 57*math.Pow(0.5, 8))
	again, err := c.Availability(0.5)
	require.NoError(t, err)
	require.Equal(t, e, again)
}

// The plane of order 4 is small enough to be exact. Its sample of 2^18 states is 3.3 standard
// deviations off, outside the interval, though the generator is right: intervals of other seeds miss
// no more often than they should.
func TestAvailabilityOfPlane21(t *testing.T) {
	c := must(Plane(ints(21)...))
	up := 0
	var lines []uint64
	for q := range c.Quorums() {
		var line uint64
		for _, site := range q {
			line |= 1 << site
		}
		lines = append(lines, line)
	}
	require.Len(t, lines, 21)
	for state := range uint64(1 << 21) {
		if slices.ContainsFunc(lines, func(line uint64) bool { return state&line == line }) {
			up++
		}
	}
	truth := float64(up) / (1 << 21)
	e, err := c.Availability(0.5)
	require.NoError(t, err)
	require.Equal(t, Estimate{Value: truth, Low: truth, High: truth}, e)

	missed := 0
	for seed := range uint64(200) {
		if e := c.system().sample(same(21, 0.5), 4000, seed); truth < e.Low || truth > e.High {
			missed++
		}
	}
	require.LessOrEqual(t, missed, 7) // of 200, 2 are to be expected at 99 percent
}

// Availability grows with p, and reaches the ends.
func TestAvailabilityIsMonotone(t *testing.T) {
	for _, k := range Constructions[int]() {
		c, err := k.Build(ints(13)...)
		require.NoError(t, err, k.Name)
		last := -1.0
		for i := range 21 {
			a, err := c.Availability(float64(i) / 20)
			require.NoError(t, err)
			require.GreaterOrEqual(t, a.Value, last)
			last = a.Value
		}
		require.Equal(t, 1.0, last)
	}
}

// Load: Naor and Wool's lower bounds hold, and the load of every builder is exact up to
// n = 64.
func TestLoadOfEveryBuilder(t *testing.T) {
	most := 64
	if testing.Short() {
		most = 30
	}
	for _, k := range shapes() {
		for n := 1; n <= most; n += 1 + n/6 {
			c, err := k.Build(ints(n)...)
			if k.Name == "fpp" && err != nil {
				continue
			}
			require.NoError(t, err)
			low, high := c.Load()
			size := float64(smallest(c))
			require.Equal(t, low, high, "%s of %d", k.Name, n)
			require.GreaterOrEqual(t, high, max(1/size, size/float64(len(c.Sites())))-1e-9)
			require.LessOrEqual(t, high, 1+1e-9)
		}
	}
}

// Gates are small, so the load of large trees and walls is exact, and so is that of a
// composition.
func TestLoadOfLarge(t *testing.T) {
	exact(t, 2.0/13, must(Tree(2, ints(4095)...)))
	exact(t, math.Pow(2.0/3, 8), must(Hierarchical(3, ints(6561)...)))
	exact(t, 2.0/91, must(Wall(nil, ints(90*91/2)...)))
	exact(t, 2.0/3*3/7, must(Compose(must(Majority(0, 1, 2)), func(i int) Coterie[int] {
		return must(Plane(10*i, 10*i+1, 10*i+2, 10*i+3, 10*i+4, 10*i+5, 10*i+6))
	})))
}

// Where a gate is beyond the linear program, the bounds still hold.
func TestLoadBeyondTheProgram(t *testing.T) {
	k := 400.0
	low, high := must(Wheel(ints(int(k) + 1)...)).Load()
	require.LessOrEqual(t, low, k/(2*k-1))
	require.GreaterOrEqual(t, high, k/(2*k-1))
}

// The dual of the dual is the coterie. A coterie is its own dual exactly if it is
// non-dominated.
func TestDualOfDual(t *testing.T) {
	for _, k := range shapes() {
		for n := 1; n <= 9; n++ {
			c, err := k.Build(ints(n)...)
			if k.Name == "fpp" && err != nil {
				continue
			}
			dual := twin{n, nil}
			for q := range c.Dual() {
				dual.quorums = append(dual.quorums, mask(q))
			}
			require.Equal(t, sorted(masks(quorumsOf(t, c))), dual.dual(), "%s of %d", k.Name, n)
			non, err := nonDominated(c)
			require.NoError(t, err)
			require.Equal(t, non, fmt.Sprint(sorted(masks(quorumsOf(t, c)))) == fmt.Sprint(sorted(dual.quorums)))
		}
	}
}

// The zero Coterie is accepted by every method.
func TestZeroCoterie(t *testing.T) {
	var c Coterie[string]
	require.Empty(t, c.Sites())
	require.Zero(t, c.Len())
	smallest, largest := c.Size()
	require.Zero(t, smallest)
	require.Zero(t, largest)
	low, high := c.Load()
	require.Zero(t, low)
	require.Zero(t, high)
	require.False(t, c.HasQuorum("a"))
	require.False(t, c.HasQuorum())
	require.Empty(t, c.String())
	require.Empty(t, quorumsOf(t, c))
	least, most := c.Resilience()
	require.Equal(t, [2]int{-1, -1}, [2]int{least, most})
	a, err := c.Availability(0.9)
	require.NoError(t, err)
	require.Zero(t, a.Value)
	gap, err := c.Gap()
	require.NoError(t, err)
	require.NotNil(t, gap)
	require.Empty(t, gap)
	non, err := nonDominated(c)
	require.NoError(t, err)
	require.False(t, non)
	_, err = c.Assign()
	require.ErrorIs(t, err, ErrEmpty)
}

// Each minimal transversal is a gap or a quorum, so the search looks at few, even in
// the largest grid that is built.
func TestGapOfLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a moment")
	}
	c := must(Grid(0, ints(8192)...))
	gap, err := c.Gap()
	require.NoError(t, err)
	require.False(t, c.HasQuorum(gap...))
	others := slices.DeleteFunc(c.Sites(), func(site int) bool { return slices.Contains(gap, site) })
	require.False(t, c.HasQuorum(others...))
}

// The search ends when its budget is spent.
func TestHittingIsBounded(t *testing.T) {
	g := newList(numbered(quorumsOf(t, must(Majority(ints(9)...))), ints(9)), 9)
	budget, found := 200, 0
	for range g.hitting(&budget, nil) {
		found++
	}
	require.Negative(t, budget)
	require.Less(t, found, 126)
}
