package quorum

import (
	"cmp"
	"flag"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/quicktest"
)

// A twin is a second implementation of coteries, obvious and slow. A set of sites is a
// mask, a family is a list of masks. A twin answers every question by its definition,
// over all 2^n sets.
type twin struct {
	n       int
	quorums []uint
}

func (t twin) all() []uint {
	list := make([]uint, 1<<t.n)
	for i := range list {
		list[i] = uint(i)
	}
	return list
}

func (t twin) holds(s uint) bool {
	for _, q := range t.quorums {
		if q&^s == 0 {
			return true
		}
	}
	return false
}

// law returns the law that the family breaks, nil if it is a coterie.
func (t twin) law() error {
	if len(t.quorums) == 0 {
		return ErrEmpty
	}
	for _, q := range t.quorums {
		if q == 0 {
			return ErrEmpty
		}
	}
	for i, q := range t.quorums {
		for j, r := range t.quorums {
			switch {
			case i >= j:
			case q == r:
				return ErrDuplicate
			case q&r == 0:
				return ErrIntersection
			case q&^r == 0 || r&^q == 0:
				return ErrMinimality
			}
		}
	}
	return nil
}

// broken counts violations: an empty family or quorum, or a pair that breaks a law.
func (t twin) broken() int {
	n := 0
	if len(t.quorums) == 0 {
		n++
	}
	for i, q := range t.quorums {
		if q == 0 {
			n++
			continue
		}
		for _, r := range t.quorums[i+1:] {
			if r != 0 && (q&r == 0 || q&^r == 0 || r&^q == 0) {
				n++
			}
		}
	}
	return n
}

func (t twin) minimal(holds func(uint) bool) []uint {
	var list []uint
	for _, s := range t.all() {
		minimal := holds(s)
		for i := range t.n {
			if s>>i&1 != 0 && holds(s&^(1<<i)) {
				minimal = false
			}
		}
		if minimal {
			list = append(list, s)
		}
	}
	return list
}

func (t twin) minimize() []uint { return t.minimal(t.holds) }

func (t twin) transversal(s uint) bool {
	for _, q := range t.quorums {
		if q&s == 0 {
			return false
		}
	}
	return true
}

func (t twin) dual() []uint { return t.minimal(t.transversal) }

// dominates: every quorum of u contains one of t, and they differ.
func (t twin) dominates(u twin) bool {
	if slices.Equal(sorted(t.quorums), sorted(u.quorums)) {
		return false
	}
	for _, q := range u.quorums {
		if !t.holds(q) {
			return false
		}
	}
	return true
}

func (t twin) gap(s uint) bool { return !t.holds(s) && !t.holds((1<<t.n-1)&^s) }

func (t twin) dominated() bool { return slices.ContainsFunc(t.all(), t.gap) }

func (t twin) availability(p []float64) float64 {
	sum := 0.0
	for _, s := range t.all() {
		if !t.holds(s) {
			continue
		}
		product := 1.0
		for i := range t.n {
			if s>>i&1 != 0 {
				product *= p[i]
			} else {
				product *= 1 - p[i]
			}
		}
		sum += product
	}
	return sum
}

func (t twin) resilience() int {
	fewest := t.n + 1
	for _, crashed := range t.all() {
		if !t.holds((1<<t.n - 1) &^ crashed) {
			fewest = min(fewest, bits.OnesCount(crashed))
		}
	}
	return fewest - 1
}

// load is the value of a game: one player picks a quorum, the other a site, and the
// second player wins if the quorum contains the site. By Shapley and Snow (1950), the
// strategies that make all payoffs of some square part of the matrix equal are optimal
// in the whole matrix. So load tries all square parts until it finds these strategies.
func (t twin) load() float64 {
	for rows := range uint(1) << t.n {
		for _, columns := range subsets(len(t.quorums), bits.OnesCount(rows)) {
			strategy, ok := t.equalize(members(rows), columns, false)
			prices, ok2 := t.equalize(members(rows), columns, true)
			if !ok || !ok2 {
				continue
			}
			high, low := 0.0, 1.0
			for i := range t.n {
				busy := 0.0
				for k, c := range columns {
					busy += strategy[k] * float64(t.quorums[c]>>i&1)
				}
				high = max(high, busy)
			}
			for _, q := range t.quorums {
				cost := 0.0
				for k, i := range members(rows) {
					cost += prices[k] * float64(q>>i&1)
				}
				low = min(low, cost)
			}
			if high-low < 1e-12 {
				return high
			}
		}
	}
	return math.NaN()
}

// equalize finds probabilities on columns that make rows equal (or the other way
// round), by elimination; false if there are none.
func (t twin) equalize(rows, columns []int, transposed bool) ([]float64, bool) {
	k := len(rows)
	m := make([][]float64, k+1) // unknowns: k probabilities and the value
	for i := range m {
		m[i] = make([]float64, k+2)
	}
	for i := range k {
		for j := range k {
			r, c := rows[i], columns[j]
			if transposed {
				r, c = rows[j], columns[i]
			}
			m[i][j] = float64(t.quorums[c] >> r & 1)
		}
		m[i][k] = -1
		m[k][i] = 1
	}
	m[k][k+1] = 1
	for c := range k + 1 {
		pivot := c
		for r := c; r <= k; r++ {
			if math.Abs(m[r][c]) > math.Abs(m[pivot][c]) {
				pivot = r
			}
		}
		if math.Abs(m[pivot][c]) < 1e-9 {
			return nil, false
		}
		m[c], m[pivot] = m[pivot], m[c]
		for r := range m {
			if r != c {
				by := m[r][c] / m[c][c]
				for j := range m[r] {
					m[r][j] -= by * m[c][j]
				}
			}
		}
	}
	x := make([]float64, k)
	for i := range x {
		x[i] = m[i][k+1] / m[i][i]
		if x[i] < -1e-9 {
			return nil, false
		}
	}
	return x, true
}

func subsets(n, k int) [][]int {
	var list [][]int
	for s := range uint(1) << n {
		if bits.OnesCount(s) == k {
			list = append(list, members(s))
		}
	}
	return list
}

func members(s uint) []int {
	list := []int{}
	for i := 0; s>>i != 0; i++ {
		if s>>i&1 != 0 {
			list = append(list, i)
		}
	}
	return list
}

func mask(q []int) uint {
	s := uint(0)
	for _, i := range q {
		s |= 1 << i
	}
	return s
}

func masks(quorums [][]int) []uint {
	list := []uint{}
	for _, q := range quorums {
		list = append(list, mask(q))
	}
	return list
}

func sorted[T cmp.Ordered](list []T) []T { return slices.Sorted(slices.Values(list)) }

func (t twin) slices() [][]int {
	list := [][]int{}
	for _, q := range t.quorums {
		list = append(list, members(q))
	}
	return list
}

// compare checks that the package and the twin agree about a family.
func (t twin) compare(tb testing.TB) {
	tb.Helper()
	quorums := t.slices()
	require.Len(tb, slices.Collect(Check(quorums...)), t.broken(), "%v", quorums)
	c, err := New(quorums...)
	if law := t.law(); law == nil {
		require.NoError(tb, err, "%v", quorums)
		t.measure(tb, c)
	} else {
		require.Error(tb, err, "%v", quorums)
		var v *Violation[int]
		require.ErrorAs(tb, err, &v)
		require.ErrorIs(tb, err, v.Law)
		t.offends(tb, v)
	}

	c, err = Minimize(quorums...)
	least := twin{t.n, t.minimize()}
	if law := least.law(); law == nil && !slices.Contains(t.quorums, 0) {
		require.NoError(tb, err, "%v", quorums)
		require.Equal(tb, least.quorums, sorted(masks(quorumsOf(tb, c))), "%v", quorums)
	} else {
		require.Error(tb, err, "%v", quorums)
	}
}

// offends checks that a violation is right.
func (t twin) offends(tb testing.TB, v *Violation[int]) {
	tb.Helper()
	if v.First < 0 {
		require.Empty(tb, t.quorums)
		return
	}
	q := t.quorums[v.First]
	require.Equal(tb, q, mask(v.Quorums[0]))
	if v.Second < 0 {
		require.ErrorIs(tb, v, ErrEmpty)
		require.Zero(tb, q)
		return
	}
	require.Less(tb, v.First, v.Second)
	require.Equal(tb, t.quorums[v.Second], mask(v.Quorums[1]))
	require.Equal(tb, twin{t.n, []uint{q, t.quorums[v.Second]}}.law(), v.Law)
}

// measure compares the measures of a coterie with the twin's.
func (t twin) measure(tb testing.TB, c Coterie[int]) {
	tb.Helper()
	require.Equal(tb, sorted(t.quorums), sorted(masks(quorumsOf(tb, c))))
	require.Equal(tb, len(t.quorums), c.Len())
	for _, s := range t.all() {
		require.Equal(tb, t.holds(s), c.HasQuorum(members(s)...))
		require.Equal(tb, slices.Contains(t.quorums, s), isQuorum(c, members(s)...))
	}
	require.Equal(tb, t.dual(), sorted(masks(slices.Collect(c.Dual()))), "dual of %v", c)

	least, most := c.Resilience()
	require.Equal(tb, [2]int{t.resilience(), t.resilience()}, [2]int{least, most}, "resilience of %v", c)

	p := make([]float64, t.n)
	for _, uniform := range []float64{0, 0.3, 0.9, 1} {
		for i := range p {
			p[i] = uniform
		}
		got, err := c.Availability(uniform)
		require.NoError(tb, err)
		require.Zero(tb, got.Samples)
		require.InDelta(tb, t.availability(p), got.Value, 1e-12, "availability of %v", c)
	}
	for i := range p {
		p[i] = 0.5 + 0.45*math.Sin(float64(7*i))
	}
	up := []float64{} // of the sites that occur
	for _, site := range c.Sites() {
		up = append(up, p[site])
	}
	got, err := c.Availability(up...)
	require.NoError(tb, err)
	require.InDelta(tb, t.availability(p), got.Value, 1e-12, "availability of %v at %v", c, p)

	sizes := []int{}
	for _, q := range t.quorums {
		sizes = append(sizes, bits.OnesCount(q))
	}
	require.Equal(tb, slices.Min(sizes), smallest(c))
	require.Equal(tb, slices.Max(sizes), largest(c))
	t.domination(tb, c)
}

func (t twin) domination(tb testing.TB, c Coterie[int]) {
	tb.Helper()
	non, err := nonDominated(c)
	require.NoError(tb, err)
	require.Equal(tb, !t.dominated(), non, "%v", c)
	gap, err := c.Gap()
	require.NoError(tb, err)
	if non {
		require.Nil(tb, gap)
		return
	}
	require.True(tb, t.gap(mask(gap)), "gap %v of %v", gap, c)
	// The gap as one more quorum dominates c (Garcia-Molina and Barbara, 1985, theorem 2.1).
	better, err := Minimize(append(quorumsOf(tb, c), gap)...)
	require.NoError(tb, err)
	require.True(tb, twin{t.n, masks(quorumsOf(tb, better))}.dominates(t))
}

// isQuorum reports whether these sites are a quorum, none missing and none too many.
func isQuorum[T cmp.Ordered](c Coterie[T], sites ...T) bool {
	for i := range sites {
		if c.HasQuorum(slices.Concat(sites[:i], sites[i+1:])...) {
			return false
		}
	}
	return c.HasQuorum(sites...)
}

// quorumsOf returns the quorums of a coterie.
func quorumsOf[T cmp.Ordered](tb testing.TB, c Coterie[T]) [][]T {
	tb.Helper()
	require.LessOrEqual(tb, c.Len(), 1<<20)
	return slices.Collect(c.Quorums())
}

// nonDominated reports whether no other coterie dominates c.
func nonDominated[T cmp.Ordered](c Coterie[T]) (bool, error) {
	gap, err := c.Gap()
	return gap == nil && err == nil, err
}

// must unwraps the result of a builder.
func must[T cmp.Ordered](c Coterie[T], err error) Coterie[T] {
	if err != nil {
		panic(err)
	}
	return c
}

func ints(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// long makes the random tests a hundred times longer (minutes):
//
//	go test ./quorum -long
var long = flag.Bool("long", false, "run the long form of the random tests")

// Every family of subsets of one to four sites, the empty subset too: there are 4, 16,
// 256 and 65,536 families, and 1, 3, 11 and 80 of them are coteries.
func TestTwinExhaustive(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	most := 4
	if quicktest.On() {
		most = 3
	}
	for n := 1; n <= most; n++ {
		coteries := 0
		for chosen := range uint(1) << (1 << n) {
			family := twin{n, nil}
			for _, s := range members(chosen) {
				family.quorums = append(family.quorums, uint(s))
			}
			family.compare(t)
			if family.law() == nil {
				coteries++
			}
		}
		require.Equal(t, []int{1, 3, 11, 80}[n-1], coteries)
	}
}

// Random families over up to seven sites, most of them nearly coteries, and their
// minimized families.
func TestTwinRandom(t *testing.T) {
	rounds := 1000
	switch {
	case *long:
		rounds = 200_000
	case testing.Short():
		rounds = 200
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		n := 1 + r.IntN(7)
		family := twin{n, nil}
		for range r.IntN(12) {
			s := r.UintN(1 << n)
			meets := func(q uint) bool { return q&s != 0 }
			if r.IntN(10) > 0 && (!all(family.quorums, meets) || slices.Contains(family.quorums, s)) {
				continue
			}
			family.quorums = append(family.quorums, s)
		}
		family.compare(t)
		family = twin{n, family.minimize()}
		family.compare(t)
	}
}

func all[T any](list []T, ok func(T) bool) bool {
	return !slices.ContainsFunc(list, func(v T) bool { return !ok(v) })
}

// The load, against the twin, of every coterie over four sites and of those over
// five that have up to seven quorums.
func TestTwinLoad(t *testing.T) {
	check := func(family twin) {
		c := must(New(family.slices()...))
		low, high := c.Load()
		require.Equal(t, low, high, "%v", c)
		require.InDelta(t, family.load(), low, 1e-12, "%v", c)
	}
	for q := range coteries(4) {
		check(twin{4, q})
	}
	if quicktest.On() {
		return
	}
	for q := range coteries(5) {
		if len(q) <= 7 {
			check(twin{5, q})
		}
	}
}
