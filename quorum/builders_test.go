package quorum

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/quicktest"
)

// shapes returns all builders that need only sites, and the others in several shapes.
func shapes() []Construction[int] {
	list := Constructions[int]()
	for _, columns := range []int{1, 2, 3, 5, 8} {
		name := "/" + strconv.Itoa(columns)
		list = append(list,
			Construction[int]{"grid" + name, func(s ...int) (Coterie[int], error) { return Grid(columns, s...) }},
			Construction[int]{"wall" + name, func(s ...int) (Coterie[int], error) { return Wall(even(len(s), columns), s...) }})
	}
	for _, degree := range []int{2, 3, 4, 7} {
		name := "/" + strconv.Itoa(degree)
		list = append(list,
			Construction[int]{"tree" + name, func(s ...int) (Coterie[int], error) { return Tree(degree, s...) }},
			Construction[int]{"hqc" + name, func(s ...int) (Coterie[int], error) { return Hierarchical(degree, s...) }})
	}
	return append(list,
		Construction[int]{"weighted", func(s ...int) (Coterie[int], error) {
			votes, total := make([]Vote[int], len(s)), 0
			for i, site := range s {
				votes[i] = Vote[int]{site, 1 + i%4}
				total += votes[i].Votes
			}
			return Weighted(total/2+1, votes...)
		}},
		Construction[int]{"composed", func(s ...int) (Coterie[int], error) {
			return Compose(must(Grid(0, ints(min(7, len(s)))...)), func(part int) Coterie[int] {
				k := min(7, len(s))
				return must(Majority(s[share(part, k, len(s)):share(part+1, k, len(s))]...))
			})
		}})
}

// even returns the widths of rows for n sites. All but the first row are full.
func even(n, width int) []int {
	widths := []int{}
	if n%width > 0 {
		widths = append(widths, n%width)
	}
	for range n / width {
		widths = append(widths, width)
	}
	return widths
}

// Every builder obeys the laws for every size from 1 to 64. New examines coteries of up
// to 500 quorums in full. Of every coterie, a sample is examined: the quorums that
// random costs make cheapest.
func TestBuildersObeyTheLaws(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	r := rand.New(rand.NewPCG(5, 6))
	for _, k := range shapes() {
		sizes := 0
		for n := 1; n <= 64; n++ {
			if n > 33 && n != 57 && quicktest.On() {
				continue
			}
			sites := ints(n)
			c, err := k.Build(sites...)
			if k.Name == "fpp" && err != nil {
				require.ErrorIs(t, err, ErrSize)
				continue
			}
			require.NoError(t, err, "%s of %d", k.Name, n)
			sizes++
			require.Subset(t, sites, c.Sites())
			if c.Len() <= 500 {
				again, err := New(quorumsOf(t, c)...)
				require.NoError(t, err, "%s of %d", k.Name, n)
				require.Equal(t, c.Len(), again.Len())
				require.Equal(t, c.Sites(), again.Sites())
			}
			sampleLaws(t, r, c)
		}
		if k.Name == "fpp" {
			require.Equal(t, 5, sizes) // 7, 13, 21, 31, 57
		}
	}
}

func sampleLaws(t *testing.T, r *rand.Rand, c Coterie[int]) {
	t.Helper()
	s := c.system()
	n := len(c.Sites())
	cost := make([]float64, n)
	var sample []set
	for range 12 {
		for i := range cost {
			cost[i] = r.Float64()
		}
		with := r.IntN(n)
		cost[with] -= float64(n)
		q, _ := s.cheapest(cost)
		require.True(t, q.has(with))
		require.True(t, isQuorum(c, c.members(q)...), "%v of %v", c.members(q), c)
		others := full(n)
		for i := range q.each() {
			others.remove(i)
		}
		require.False(t, s.holds(others), "%v of %v leaves a quorum", c.members(q), c)
		require.GreaterOrEqual(t, q.count(), smallest(c))
		require.LessOrEqual(t, q.count(), largest(c))
		sample = append(sample, q)
	}
	for i, q := range sample {
		for _, p := range sample[:i] {
			require.Positive(t, p.common(q))
			require.True(t, slices.Equal(p, q) || !p.within(q) && !q.within(p))
		}
	}
}

// Every measure of every builder, against the twin, for up to eight sites: the
// shortcuts of the gates are right.
func TestBuildersAgainstTwin(t *testing.T) {
	for _, k := range shapes() {
		for n := 1; n <= 8; n++ {
			c, err := k.Build(ints(n)...)
			if k.Name == "fpp" && err != nil {
				continue
			}
			require.NoError(t, err)
			twin{n, masks(quorumsOf(t, c))}.measure(t, c)
		}
	}
}

// Random votes and random compositions of everything, against the twin.
func TestCompositionsAgainstTwin(t *testing.T) {
	rounds := 300
	if *long {
		rounds *= 100
	}
	r := rand.New(rand.NewPCG(7, 8))
	builders := shapes()
	random := func(sites []int) Coterie[int] {
		votes, total := make([]Vote[int], len(sites)), 0
		for i, s := range sites {
			votes[i] = Vote[int]{s, r.IntN(5)}
			total += votes[i].Votes
		}
		if total > 0 && r.IntN(2) == 0 {
			return must(Weighted(total/2+1+r.IntN(total-total/2), votes...))
		}
		for {
			if c, err := builders[r.IntN(len(builders))].Build(sites...); err == nil {
				return c
			}
		}
	}
	for range rounds {
		n := 1 + r.IntN(8)
		outer := random(ints(1 + r.IntN(n)))
		sites := r.Perm(n)
		k := len(outer.Sites())
		c, err := Compose(outer, func(site int) Coterie[int] {
			at := 0
			for outer.Sites()[at] != site {
				at++
			}
			return random(sites[share(at, k, n):share(at+1, k, n)])
		})
		require.NoError(t, err)
		family := twin{n, masks(quorumsOf(t, c))}
		require.NoError(t, family.law())
		family.measure(t, c)
	}
}

// exact checks the load.
func exact(t *testing.T, want float64, c Coterie[int]) {
	t.Helper()
	low, high := c.Load()
	require.InDelta(t, want, low, 1e-11)
	require.InDelta(t, want, high, 1e-11)
}

func smallest(c Coterie[int]) int {
	least, _ := c.Size()
	return least
}

func largest(c Coterie[int]) int {
	_, most := c.Size()
	return most
}

func resilience(t *testing.T, want int, c Coterie[int]) {
	t.Helper()
	least, most := c.Resilience()
	require.Equal(t, [2]int{want, want}, [2]int{least, most}, "%v", c)
}

// Majority: floor(n/2)+1 sites, C(n, size) quorums, load size/n, resilience
// ceil(n/2)-1, non-dominated for odd n.
func TestMajorityFormulas(t *testing.T) {
	for n := 1; n <= 64; n++ {
		c := must(Majority(ints(n)...))
		size := n/2 + 1
		require.Equal(t, size, smallest(c))
		require.Equal(t, size, largest(c))
		require.Equal(t, int(min(math.MaxInt, binomial(n, size))), c.Len())
		exact(t, float64(size)/float64(n), c)
		resilience(t, (n+1)/2-1, c)
		non, err := nonDominated(c)
		require.NoError(t, err)
		require.Equal(t, n%2 == 1, non)
	}
}

// binomial returns a number of Pascal's triangle, by additions only.
func binomial(n, k int) uint64 {
	row := make([]uint64, k+1)
	row[0] = 1
	for range n {
		for j := k; j > 0; j-- {
			row[j] += row[j-1]
		}
	}
	return row[k]
}

// Grid, full, of r > 1 rows and c > 1 columns: r*c quorums of r+c-1, load
// (r+c-1)/(r*c), resilience min(r, c)-1.
func TestGridFormulas(t *testing.T) {
	for rows := 2; rows <= 8; rows++ {
		for columns := 2; columns <= 8; columns++ {
			n := rows * columns
			size := rows + columns - 1
			c := must(Grid(columns, ints(n)...))
			require.Equal(t, n, c.Len())
			require.Equal(t, size, smallest(c))
			require.Equal(t, size, largest(c))
			exact(t, float64(size)/float64(n), c)
			resilience(t, min(rows, columns)-1, c)
			non, err := nonDominated(c)
			require.NoError(t, err)
			require.False(t, non)
		}
	}
}

// Grid, square, of any n: at most 2*ceil(sqrt(n))-1 sites, every site occurs,
// and the resilience that gridBarrier claims is what the search finds.
func TestSquareGridOfEveryN(t *testing.T) {
	for n := 1; n <= 200; n++ {
		c := must(Grid(0, ints(n)...))
		require.Len(t, c.Sites(), n)
		require.LessOrEqual(t, largest(c), 2*int(math.Ceil(math.Sqrt(float64(n))))-1)
		least, most := c.Resilience()
		require.Equal(t, least, most)
		if g, ok := c.system().gate.(*list); ok && n <= 50 {
			require.Equal(t, g.proved-1, most)
			again := newList(g.family, n) // knows nothing
			low, high := again.barrier(same(n, 1.0))
			require.Equal(t, [2]int{g.proved, g.proved}, [2]int{int(low), int(high)}, "n = %d", n)
		}
	}
	for n := 1; n <= 40; n++ {
		for columns := 1; columns <= n; columns++ {
			c := must(Grid(columns, ints(n)...))
			non, err := nonDominated(c)
			require.NoError(t, err)
			require.Equal(t, n == 1, non)
			least, _ := c.Resilience()
			again := must(New(quorumsOf(t, c)...))
			_, most := again.Resilience()
			require.Equal(t, most, least, "n = %d, %d columns", n, columns)
		}
	}
}

// Plane of every prime-power order up to 16, and 31: n = q^2+q+1 lines of q+1
// points, two lines meet in exactly one point, each point on q+1 lines, load
// (q+1)/n, resilience q, non-dominated for q = 2 alone.
func TestPlaneFormulas(t *testing.T) {
	orders := []int{2, 3, 4, 5, 7, 8, 9, 11, 13, 16, 25, 27, 31}
	if testing.Short() {
		orders = orders[:10]
	}
	for _, q := range orders {
		n := q*q + q + 1
		c := must(Plane(ints(n)...))
		require.Equal(t, n, c.Len())
		require.Len(t, c.Sites(), n)
		require.Equal(t, q+1, smallest(c))
		require.Equal(t, q+1, largest(c))
		exact(t, float64(q+1)/float64(n), c)
		resilience(t, q, c)
		non, err := nonDominated(c)
		require.NoError(t, err)
		require.Equal(t, q == 2, non, "order %d", q)
		lines := numbered(quorumsOf(t, c), c.Sites())
		for i, a := range lines {
			for j := range i {
				require.Equal(t, 1, a.common(lines[j]))
			}
		}
	}
}

// The field axioms, for every prime power up to 32.
func TestFields(t *testing.T) {
	fields := 0
	for q := range 33 {
		f, ok := newField(q)
		if !ok {
			continue
		}
		fields++
		for a := range q {
			require.Equal(t, a, f.add(a, 0))
			require.Equal(t, a, f.multiply(a, 1))
			sums, products := newSet(q), newSet(q)
			for b := range q {
				sums.add(f.add(a, b))
				products.add(f.multiply(a, b))
			}
			require.Equal(t, full(q), sums)
			require.Equal(t, a > 0, products.has(1), "%d has an inverse", a)
			for b := range q {
				require.Equal(t, f.add(a, b), f.add(b, a))
				require.Equal(t, f.multiply(a, b), f.multiply(b, a))
				for c := 0; c < q; c += 1 + q/8 {
					require.Equal(t, f.multiply(a, f.multiply(b, c)), f.multiply(f.multiply(a, b), c))
					require.Equal(t, f.multiply(a, f.add(b, c)), f.add(f.multiply(a, b), f.multiply(a, c)))
				}
			}
		}
	}
	require.Equal(t, 18, fields) // 2 3 4 5 7 8 9 11 13 16 17 19 23 25 27 29 31 32
}

// Full binary trees of h levels: quorums of h to 2^(h-1) sites, load 2/(h+1),
// resilience h-1; and every tree is non-dominated.
func TestTreeFormulas(t *testing.T) {
	for h := 1; h <= 6; h++ {
		c := must(Tree(2, ints(1<<h-1)...))
		require.Equal(t, h, smallest(c))
		require.Equal(t, 1<<(h-1), largest(c))
		exact(t, 2/float64(h+1), c)
		resilience(t, h-1, c)
	}
	require.Equal(t, "{1,2,4},{1,2,5},{1,4,5},{1,3,6},{1,3,7},{1,6,7},{2,3,4,6},{2,3,5,6},{3,4,5,6},"+
		"{2,3,4,7},{2,3,5,7},{3,4,5,7},{2,4,6,7},{2,5,6,7},{4,5,6,7}", must(Tree(2, 1, 2, 3, 4, 5, 6, 7)).String())
	for n := 1; n <= 64; n++ {
		for degree := 2; degree <= 5; degree++ {
			c := must(Tree(degree, ints(n)...))
			non, err := nonDominated(c)
			require.NoError(t, err)
			require.True(t, non)
			if n == 2 {
				require.Equal(t, "{1}", c.String())
			} else {
				require.Len(t, c.Sites(), n)
			}
		}
	}
}

// Hierarchies of 3^k: quorums of 2^k sites, load (2/3)^k, resilience 2^k-1.
func TestHierarchicalFormulas(t *testing.T) {
	for k, n := 0, 1; n <= 81; k, n = k+1, 3*n {
		c := must(Hierarchical(3, ints(n)...))
		require.Equal(t, 1<<k, smallest(c))
		require.Equal(t, 1<<k, largest(c))
		exact(t, math.Pow(2.0/3, float64(k)), c)
		resilience(t, 1<<k-1, c)
		non, err := nonDominated(c)
		require.NoError(t, err)
		require.True(t, non)
	}
}

// Wheel with k > 1 in the rim: k quorums of two and one of k, load k/(2k-1),
// resilience 1, non-dominated; it is a weighted vote.
func TestWheelFormulas(t *testing.T) {
	for k := 2; k <= 63; k++ {
		c := must(Wheel(ints(k + 1)...))
		require.Equal(t, k+1, c.Len())
		require.Equal(t, 2, smallest(c))
		require.Equal(t, k, largest(c))
		exact(t, float64(k)/float64(2*k-1), c)
		resilience(t, 1, c)
		non, err := nonDominated(c)
		require.NoError(t, err)
		require.True(t, non)
		votes := []Vote[int]{{0, k - 1}}
		for i := 1; i <= k; i++ {
			votes = append(votes, Vote[int]{i, 1})
		}
		require.Equal(t, quorumsOf(t, must(Weighted(k, votes...))), quorumsOf(t, c))
	}
	require.Equal(t, "{hub}", must(Wheel("hub")).String())
	require.Equal(t, "{rim}", must(Wheel("hub", "rim")).String())
}

// Walls: the triangular wall of d rows has quorums of d sites, d! * sum of 1/k!
// of them, load at most 2/(d+1), and is non-dominated. A wall is non-dominated
// exactly if some row is single (Peleg and Wool, 1997).
func TestWallFormulas(t *testing.T) {
	for d := 1; d <= 10; d++ {
		c := must(Wall(nil, ints(d*(d+1)/2)...))
		require.Equal(t, d, smallest(c))
		require.Equal(t, d, largest(c))
		quorums, product := 0, 1
		for row := d; row >= 1; row-- { // the whole row, and one of each below
			quorums += product
			product *= row
		}
		require.Equal(t, quorums, c.Len())
		_, load := c.Load()
		require.LessOrEqual(t, load, 2/float64(d+1)+1e-9)
		resilience(t, d-1, c)
	}
	for n := 1; n <= 64; n++ {
		non, err := nonDominated(must(Wall(nil, ints(n)...)))
		require.NoError(t, err)
		require.True(t, non, "n = %d", n)
	}
	for _, c := range []struct {
		widths       []int
		text         string
		nonDominated bool
	}{
		{[]int{1}, "{0}", true},
		{[]int{2}, "{0,1}", false},
		{[]int{1, 2}, "{0,1},{0,2},{1,2}", true},
		{[]int{2, 2}, "{0,1,2},{0,1,3},{2,3}", false},
		{[]int{1, 2, 2}, "{0,1,3},{0,2,3},{1,2,3},{0,1,4},{0,2,4},{1,2,4},{3,4}", true},
		{[]int{3, 1}, "{3}", true},
		{[]int{1, 1, 2}, "{1,2},{1,3},{2,3}", true},
	} {
		n := 0
		for _, w := range c.widths {
			n += w
		}
		wall := must(Wall(c.widths, ints(n)...))
		require.Equal(t, c.text, wall.String())
		non, err := nonDominated(wall)
		require.NoError(t, err)
		require.Equal(t, c.nonDominated, non, "%v", c.widths)
	}
}

func TestTriangle(t *testing.T) {
	for n, widths := range [][]int{
		1: {1}, 2: {1, 1}, 3: {1, 2}, 4: {1, 3}, 5: {1, 4}, 6: {1, 2, 3}, 7: {1, 2, 4}, 8: {1, 3, 4}, 9: {1, 3, 5}, 10: {1, 2, 3, 4},
	} {
		require.Equal(t, widths, triangle(n))
	}
}

// The walls over n sites in which only the first row is single are as many as the
// compositions of n-1 into parts of two or more: a Fibonacci number (Peleg and Wool,
// 1997). All of them are different.
func TestWallsAreFibonacci(t *testing.T) {
	fibonacci := []int{1, 0, 1, 1, 2, 3, 5, 8, 13, 21}
	for n := 1; n <= 10; n++ {
		different := map[string]bool{}
		for cuts := range uint(1) << (n - 1) {
			widths := []int{1}
			for i := range n - 1 {
				if cuts>>i&1 != 0 {
					widths = append(widths, 1)
				} else {
					widths[len(widths)-1]++
				}
			}
			wall := must(Wall(widths, ints(n)...))
			non, err := nonDominated(wall)
			require.NoError(t, err)
			require.Equal(t, slices.Contains(widths, 1), non, "%v", widths)
			if widths[0] == 1 && !slices.Contains(widths[1:], 1) {
				different[fmt.Sprint(quorumsOf(t, wall))] = true
			}
		}
		require.Len(t, different, fibonacci[n-1], "n = %d", n)
	}
}

// Weighted voting reduces to minimal quorums; sites that decide nothing are left out.
func TestWeighted(t *testing.T) {
	for _, c := range []struct {
		threshold int
		votes     []int
		text      string
	}{
		{1, []int{1}, "{0}"},
		{2, []int{1, 1, 1}, "{0,1},{0,2},{1,2}"},
		{3, []int{2, 1, 1, 1}, "{0,1},{0,2},{0,3},{1,2,3}"},
		{3, []int{3, 1, 1}, "{0}"},
		{4, []int{3, 1, 1}, "{0,1},{0,2}"},
		{5, []int{3, 1, 1}, "{0,1,2}"},
		{51, []int{49, 49, 2}, "{0,1},{0,2},{1,2}"},
		{2, []int{0, 1, 1, 0}, "{1,2}"},
		{7, []int{5, 4, 3, 1}, "{0,1},{0,2},{1,2}"},
	} {
		votes := []Vote[int]{}
		for i, v := range c.votes {
			votes = append(votes, Vote[int]{i, v})
		}
		require.Equal(t, c.text, must(Weighted(c.threshold, votes...)).String())
	}
}

// Without the site that decides nothing, the votes are a majority. Its load is known exactly,
// although it is too large for the linear program.
func TestEqualWithoutDummy(t *testing.T) {
	votes := []Vote[int]{{300, 1}}
	for i := range 300 {
		votes = append(votes, Vote[int]{i, 2})
	}
	c := must(Weighted(302, votes...))
	require.Equal(t, ints(300), c.Sites())
	exact(t, 151.0/300, c)
}

// Composition: the measures of the whole follow from those of the parts.
func TestComposeFormulas(t *testing.T) {
	outer := must(Majority(0, 1, 2))
	c := must(Compose(outer, func(i int) Coterie[int] { return must(Majority(ints(15)[5*i : 5*i+5]...)) }))
	require.Equal(t, 6, smallest(c))
	require.Equal(t, 3*10*10, c.Len())
	exact(t, 2.0/3*3/5, c)
	resilience(t, 2*3-1, c)
	non, err := nonDominated(c)
	require.NoError(t, err)
	require.True(t, non)
}
