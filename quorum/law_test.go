package quorum

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The two examples of the lecture notes, and the other offenses, each with its
// law, the places of the offenders, and what the message says.
//
// LESSONS L60.
func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		quorums       [][]int
		law           error
		first, second int
		says          string
	}{
		{[][]int{{1, 2, 3}, {2, 5, 7}, {5, 7, 9}}, ErrIntersection, 0, 2, "quorum: intersection: quorum 0 {1,2,3} and quorum 2 {5,7,9} share no site; add one site to both"},
		{[][]int{{1, 2, 3}, {1, 3}}, ErrMinimality, 0, 1, "quorum: minimality: quorum 0 {1,2,3} contains quorum 1 {1,3}; remove the larger, or use Minimize"},
		{[][]int{{1, 3}, {3, 2, 1}}, ErrMinimality, 0, 1, "quorum 0 {1,3} is contained in quorum 1 {3,2,1}"},
		{[][]int{{1, 2}, {2, 1}}, ErrDuplicate, 0, 1, "quorum 0 {1,2} and quorum 1 {2,1} are the same quorum; remove one, or use Minimize"},
		{[][]int{{1, 2}, {}}, ErrEmpty, 1, -1, "quorum 1 {} has no site; remove it"},
		{[][]int{{1, 2, 1}}, ErrDuplicate, 0, -1, "quorum 0 {1,2,1} names a site twice; name each site once"},
		{[][]int{}, ErrEmpty, -1, -1, "no quorum is given; give at least one"},
	} {
		_, err := New(c.quorums...)
		require.ErrorIs(t, err, c.law)
		var v *Violation[int]
		require.ErrorAs(t, err, &v)
		require.Equal(t, [2]int{c.first, c.second}, [2]int{v.First, v.Second})
		require.ErrorContains(t, err, c.says)
		if c.second >= 0 {
			require.Equal(t, [][]int{c.quorums[c.first], c.quorums[c.second]}, v.Quorums)
		}
	}
	_, err := New([]float64{1, math.NaN()})
	require.ErrorIs(t, err, ErrValue)
	require.ErrorContains(t, err, "not a number (NaN); remove that site")
}

// Check lists all violations, single quorums first, and can be broken off.
func TestCheckListsAll(t *testing.T) {
	var got []string
	for v := range Check([]string{"a"}, []string{"b"}, nil, []string{"a", "b"}, []string{"c", "c"}) {
		got = append(got, v.Error())
	}
	require.Equal(t, []string{
		"quorum: non-emptiness: quorum 2 {} has no site; remove it, or every site would hold it",
		"quorum: duplicate: quorum 4 {c,c} names a site twice; name each site once",
		"quorum: intersection: quorum 0 {a} and quorum 1 {b} share no site; add one site to both",
		"quorum: minimality: quorum 0 {a} is contained in quorum 3 {a,b}; remove the larger, or use Minimize",
		"quorum: minimality: quorum 1 {b} is contained in quorum 3 {a,b}; remove the larger, or use Minimize",
	}, got)
	for range Check([]int{1}, []int{2}, []int{3}) {
		break
	}
}

func TestMinimize(t *testing.T) {
	c, err := Minimize([]int{3, 2, 1}, []int{1, 2}, []int{2, 1}, []int{2, 3}, []int{1, 3, 4}, []int{1, 3})
	require.NoError(t, err)
	require.Equal(t, "{1,2},{1,3},{2,3}", c.String())
	_, err = Minimize([]int{1, 2}, []int{3, 4})
	require.ErrorIs(t, err, ErrIntersection)
	_, err = Minimize([]int{1, 2, 2})
	require.ErrorIs(t, err, ErrDuplicate)
	_, err = Minimize[int]()
	require.ErrorIs(t, err, ErrEmpty)
}

// Bad input is refused by everything that takes input, with a sentence that says
// what to change.
func TestBadInput(t *testing.T) {
	site := func(s ...string) []string { return s }
	second := func(_ any, err error) error { return err }
	vote := func(s string, v int) Vote[string] { return Vote[string]{s, v} }
	maj := must(Majority(1, 2, 3))
	for name, c := range map[string]struct {
		err  error
		kind error
		says string
	}{
		"majority of none":         {second(Majority[int]()), ErrSize, "no sites (n = 0); give at least one"},
		"majority, twice":          {second(Majority(site("a", "b", "a")...)), ErrDuplicate, "site 2 (a) is given twice; name each site once"},
		"singleton of NaN":         {second(Majority(math.NaN())), ErrValue, "not a number"},
		"weighted, none":           {second(Weighted[string](1)), ErrSize, "n = 0"},
		"weighted, no votes":       {second(Weighted(1, vote("a", 0), vote("b", 0))), ErrSize, "the votes sum to nothing; give at least one site a vote"},
		"weighted, negative":       {second(Weighted(1, vote("a", 3), vote("b", -2))), ErrSize, "site 1 (b) has -2 votes; give 0 or more"},
		"weighted, low":            {second(Weighted(2, vote("a", 2), vote("b", 2))), ErrSize, "two disjoint groups could both have 2 of 4 votes; let the threshold be at least 3"},
		"weighted, high":           {second(Weighted(5, vote("a", 2), vote("b", 2))), ErrSize, "no group can have 5 of 4 votes; let the threshold be at most 4"},
		"weighted, huge":           {second(Weighted(math.MaxInt/2+1, vote("a", math.MaxInt))), ErrTooLarge, "divide the votes"},
		"weighted, overflow":       {second(Weighted(math.MaxInt, vote("a", math.MaxInt), vote("b", math.MaxInt))), ErrTooLarge, "divide the votes"},
		"weighted, twice":          {second(Weighted(2, vote("a", 2), vote("a", 1))), ErrDuplicate, "given twice"},
		"grid of none":             {second(Grid[int](0)), ErrSize, "n = 0"},
		"grid, columns":            {second(Grid(-1, 1, 2)), ErrSize, "a grid of -1 columns; give it at least one"},
		"plane of none":            {second(Plane[int]()), ErrSize, "n = 0"},
		"plane, twice":             {second(Plane(1, 2, 3, 4, 5, 6, 6)), ErrDuplicate, "given twice"},
		"tree, degree":             {second(Tree(1, 1, 2)), ErrSize, "a tree of degree 1; give its sites at least two children"},
		"tree of none":             {second(Tree[int](2)), ErrSize, "n = 0"},
		"hierarchy, degree":        {second(Hierarchical(1, 1, 2)), ErrSize, "divide by at least two"},
		"hierarchy, twice":         {second(Hierarchical(2, 1, 1)), ErrDuplicate, "given twice"},
		"wheel, twice":             {second(Wheel("a", "b", "a")), ErrDuplicate, "given twice"},
		"wall, widths":             {second(Wall([]int{1, 2}, 1, 2)), ErrSize, "the rows of a wall hold 3 sites, and there are 2; let the widths sum to that"},
		"wall, width":              {second(Wall([]int{3, 0}, 1, 2, 3)), ErrSize, "row 1 of a wall is 0 wide"},
		"wall, overflow":           {second(Wall([]int{math.MaxInt, math.MaxInt}, 1, 2, 3)), ErrSize, "let the widths sum to that"},
		"wall of none":             {second(Wall[int](nil)), ErrSize, "n = 0"},
		"compose, zero":            {second(Compose(Coterie[int]{}, func(int) Coterie[int] { return maj })), ErrEmpty, "the outer coterie has no quorum"},
		"compose, zero part":       {second(Compose(maj, func(int) Coterie[int] { return Coterie[int]{} })), ErrEmpty, "the part for site 0 (1) has no quorum"},
		"compose, shared":          {second(Compose(maj, func(int) Coterie[int] { return maj })), ErrDuplicate, "is in two parts; let each site be in one"},
		"availability, high":       {second(maj.Availability(1.01)), ErrValue, "probability 1.01; give a number from 0 to 1"},
		"availability, low":        {second(maj.Availability(0.9, -1, 0.9)), ErrValue, "-1; give"},
		"availability, NaN":        {second(maj.Availability(math.NaN())), ErrValue, "NaN; give"},
		"availability, none":       {second(maj.Availability()), ErrValue, "0 probabilities are given for 3 sites; give one for all of them, or one for each"},
		"availability, two":        {second(maj.Availability(0.9, 0.9)), ErrValue, "2 probabilities are given for 3 sites"},
		"availability, of nothing": {second(Coterie[int]{}.Availability()), ErrValue, "0 probabilities are given"},
		"assignment of none":       {second(NewAssignment[int]()), ErrSize, "n = 0"},
		"assignment, twice":        {second(NewAssignment(Entry[int]{1, []int{1}}, Entry[int]{1, []int{1}})), ErrDuplicate, "given twice"},
		"assignment, empty":        {second(NewAssignment(Entry[int]{1, nil})), ErrEmpty, "the quorum of site 0 (1) has no site; remove it, or every site would hold it"},
		"assignment, repeated":     {second(NewAssignment(Entry[int]{1, []int{1, 1}})), ErrDuplicate, "the quorum of site 0 (1) names a site twice"},
		"assignment, unknown":      {second(NewAssignment(Entry[int]{1, []int{1, 7}})), ErrValue, "site 1 (7) in the quorum of site 0 (1) is unknown; give it an entry too, or remove it"},
		"assign, others NaN":       {second(must(Majority(1.0)).Assign(math.NaN())), ErrValue, "not a number"},
		"grid, too large":          {second(Grid(0, ints(20_000)...)), ErrTooLarge, "20000 sites; give at most 8192, or put smaller coteries together by Compose"},
	} {
		require.ErrorIs(t, c.err, c.kind, name)
		require.ErrorContains(t, c.err, c.says, name)
		require.True(t, strings.HasPrefix(c.err.Error(), "quorum: "), name)
	}
}

func TestMembership(t *testing.T) {
	c := must(New([]string{"c", "a"}, []string{"b", "a"}, []string{"b", "c"}))
	require.Equal(t, []string{"a", "b", "c"}, c.Sites())
	require.Equal(t, [][]string{{"a", "b"}, {"a", "c"}, {"b", "c"}}, slices.Collect(c.Quorums()))
	require.True(t, c.HasQuorum("b", "a"))
	require.False(t, c.HasQuorum("a", "z"))
	require.True(t, c.HasQuorum("a", "z", "b", "b"))
	require.False(t, c.HasQuorum("a", "a"))
	c.Sites()[0] = "changed"
	require.Equal(t, []string{"a", "b", "c"}, c.Sites(), "the slice is the caller's")
	for range c.Quorums() {
		break
	}
	for range must(Majority(ints(60)...)).Quorums() {
		break // of 10^17
	}
	for range must(Majority(ints(60)...)).Dual() {
		break
	}
}

// What is too large to be compared is refused at once by New, Minimize and Check.
func TestTooLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a moment")
	}
	star := func(quorums, others int) (list [][]int) { // they meet in site 0 alone
		for i := range quorums {
			q := []int{0}
			for k := range others {
				q = append(q, 1+others*i+k)
			}
			list = append(list, q)
		}
		return list
	}
	many := make([][]int, 92_682)
	for i := range many {
		many[i] = []int{0}
	}
	for name, quorums := range map[string][][]int{
		"sites":               star(8_192, 1),
		"twice the sites":     star(16_000, 2),
		"quorums":             many,
		"pairs of many sites": append(star(5_500, 1), many[:5_500]...),
	} {
		_, err := New(quorums...)
		require.ErrorIs(t, err, ErrTooLarge, name)
		require.ErrorContains(t, err, "give at most 8192 of each (of up to 64 sites, 92681 quorums), or put smaller coteries together by Compose")
		_, err = Minimize(quorums...)
		require.ErrorIs(t, err, ErrTooLarge, name)
		violations := slices.Collect(Check(quorums...))
		require.Len(t, violations, 1)
		require.Equal(t, Violation[int]{Law: ErrTooLarge, First: -1, Second: -1}, *violations[0])
	}
	first := slices.Collect(Check(append(star(8_192, 1), nil)...))
	require.Len(t, first, 2)
	require.ErrorIs(t, first[0], ErrEmpty, "single quorums first")
	_, err := New(star(2_000, 4)...)
	require.NoError(t, err, "8001 sites")
}

// Availability draws fewer samples where one of them is much work.
func TestAffordableSamples(t *testing.T) {
	for sites, want := range map[int]int{400: 1 << 18, 2500: sampleWork / (2500*40 + 1), 6400: fewestSamples} {
		require.Equal(t, want, must(Grid(0, ints(sites)...)).system().affordable(sites), "%d sites", sites)
	}
	if testing.Short() {
		return
	}
	e, err := must(Grid(0, ints(2500)...)).Availability(0.99)
	require.NoError(t, err)
	require.Equal(t, sampleWork/(2500*40+1), e.Samples)
	require.Less(t, e.High-e.Low, 0.04)
}
