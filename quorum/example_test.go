package quorum_test

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dmutex/dmutex/quorum"
)

// Seven sites, and groups of three that may act for all of them.
func Example() {
	c, err := quorum.Plane(1, 2, 3, 4, 5, 6, 7)
	if err != nil {
		fmt.Println(err)
		return
	}
	up, _ := c.Availability(0.99)
	survives, _ := c.Resilience()
	_, load := c.Load()
	fmt.Printf("%v\nload %.2f, survives any %d crashes, up %.4f%% of the time\n", c, load, survives, 100*up.Value)

	replies := []int{2, 5, 6, 7}
	fmt.Println("may I enter?", c.HasQuorum(replies...))

	assigned, _ := c.Assign() // Maekawa: each site asks one quorum
	fmt.Println("site 4 asks", assigned.Quorum(4))

	_, err = quorum.New([]int{1, 2, 3}, []int{2, 5, 7}, []int{5, 7, 9})
	fmt.Println(err)
	// Output:
	// {1,2,3},{1,4,5},{1,6,7},{2,4,6},{2,5,7},{3,4,7},{3,5,6}
	// load 0.43, survives any 2 crashes, up 99.9993% of the time
	// may I enter? true
	// site 4 asks [1 4 5]
	// quorum: intersection: quorum 0 {1,2,3} and quorum 2 {5,7,9} share no site; add one site to both
}

// A coterie cannot be unlawful: New names the quorums that offend.
func ExampleNew() {
	c, err := quorum.New([]int{1, 2}, []int{2, 3}, []int{1, 3})
	fmt.Println(c, err)

	_, err = quorum.New([]int{1, 2, 3}, []int{2, 5, 7}, []int{5, 7, 9})
	fmt.Println(err)

	var v *quorum.Violation[int]
	fmt.Println(errors.Is(err, quorum.ErrIntersection), errors.As(err, &v), v.First, v.Second)
	// Output:
	// {1,2},{1,3},{2,3} <nil>
	// quorum: intersection: quorum 0 {1,2,3} and quorum 2 {5,7,9} share no site; add one site to both
	// true true 0 2
}

func ExampleCheck() {
	for v := range quorum.Check([]string{"a", "b"}, []string{"b", "a", "c"}, []string{"c", "d"}) {
		fmt.Println(v)
	}
	// Output:
	// quorum: minimality: quorum 0 {a,b} is contained in quorum 1 {b,a,c}; remove the larger, or use Minimize
	// quorum: intersection: quorum 0 {a,b} and quorum 2 {c,d} share no site; add one site to both
}

func ExampleMinimize() {
	c, err := quorum.Minimize([]int{1, 2, 3}, []int{1, 2}, []int{2, 3}, []int{2, 1})
	fmt.Println(c, err)
	// Output: {1,2},{2,3} <nil>
}

func ExampleMajority() {
	c, _ := quorum.Majority("ams", "fra", "lon")
	fmt.Println(c)
	fmt.Println(c.HasQuorum("fra", "lon"), c.HasQuorum("ams"))
	// Output:
	// {ams,fra},{ams,lon},{fra,lon}
	// true false
}

// The large site may decide with any small one; without it, all small ones must.
func ExampleWeighted() {
	c, _ := quorum.Weighted(3, []quorum.Vote[string]{
		{Site: "large", Votes: 2}, {Site: "s1", Votes: 1}, {Site: "s2", Votes: 1}, {Site: "s3", Votes: 1},
	}...)
	fmt.Println(c)
	// Output: {large,s1},{large,s2},{large,s3},{s1,s2,s3}
}

// Two rows, 1 2 3 and 4 5 6; each site's quorum is its row and its column.
func ExampleGrid() {
	c, _ := quorum.Grid(3, 1, 2, 3, 4, 5, 6)
	fmt.Println(c)
	// Output: {1,2,3,4},{1,2,3,5},{1,2,3,6},{1,4,5,6},{2,4,5,6},{3,4,5,6}
}

// The plane of order 2, of seven points: any two lines meet in one point.
func ExamplePlane() {
	c, _ := quorum.Plane(1, 2, 3, 4, 5, 6, 7)
	fmt.Println(c)
	_, err := quorum.Plane(1, 2, 3, 4, 5, 6, 7, 8)
	fmt.Println(err)
	// Output:
	// {1,2,3},{1,4,5},{1,6,7},{2,4,6},{2,5,7},{3,4,7},{3,5,6}
	// quorum: no such construction: 8 is not q^2+q+1 for a prime power q, as 7, 13, 21, 31 and 57 are; Grid takes any number
}

// Paths from root 1 to a leaf; children stand in for a site that is down.
func ExampleTree() {
	c, _ := quorum.Tree(2, 1, 2, 3)
	fmt.Println(c)
	c, _ = quorum.Tree(2, 1, 2, 3, 4, 5, 6, 7)
	fmt.Println(c.HasQuorum(1, 2, 4), c.HasQuorum(4, 5, 6, 7), c.Len())
	// Output:
	// {1,2},{1,3},{2,3}
	// true true 15
}

// A majority of three groups, and in each a majority of three sites.
func ExampleHierarchical() {
	c, _ := quorum.Hierarchical(3, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	fmt.Println(c.Len(), c.HasQuorum(1, 2, 4, 6))
	// Output: 27 true
}

func ExampleWheel() {
	c, _ := quorum.Wheel("hub", "a", "b", "c")
	fmt.Println(c)
	// Output: {a,hub},{b,hub},{c,hub},{a,b,c}
}

// Rows {1}, {2,3}, {4,5}: a whole row and one site of every row below.
func ExampleWall() {
	c, _ := quorum.Wall([]int{1, 2, 2}, 1, 2, 3, 4, 5)
	fmt.Println(c.Len(), c.HasQuorum(1, 2, 5), c.HasQuorum(2, 3, 4), c.HasQuorum(4, 5))
	// Output: 7 true true true
}

// Two of three data centers, and a majority in each of them.
func ExampleCompose() {
	centers, _ := quorum.Majority("ams", "fra", "lon")
	c, err := quorum.Compose(centers, func(center string) quorum.Coterie[string] {
		within, _ := quorum.Majority(center+"1", center+"2", center+"3")
		return within
	})
	fmt.Println(c.Len(), c.HasQuorum("ams1", "ams3", "lon2", "lon3"), err)
	// Output: 27 true <nil>
}

func ExampleCoterie_Assign() {
	c, _ := quorum.Plane(1, 2, 3, 4, 5, 6, 7)
	a, _ := c.Assign()
	for site, q := range a.All() {
		fmt.Println(site, q)
	}
	fmt.Print(a.Report())
	// Output:
	// 1 [1 2 3]
	// 2 [2 4 6]
	// 3 [3 4 7]
	// 4 [1 4 5]
	// 5 [2 5 7]
	// 6 [3 5 6]
	// 7 [1 6 7]
	// M1 (any two share a site): yes
	// M2 (own membership): yes
	// M3 (equal size 3): yes
	// M4 (equal duty 3): yes
}

// A majority of an even number of sites loses availability in every tie. With its gap as
// one more quorum, it becomes a coterie that dominates the majority.
func ExampleCoterie_Gap() {
	c, _ := quorum.Majority(1, 2, 3, 4)
	gap, _ := c.Gap()
	better, _ := quorum.Minimize(append(slices.Collect(c.Quorums()), gap)...)
	fmt.Println(c, gap)
	fmt.Println(better)
	was, _ := c.Availability(0.9)
	is, _ := better.Availability(0.9)
	fmt.Printf("%.4f %.4f\n", was.Value, is.Value)
	// Output:
	// {1,2,3},{1,2,4},{1,3,4},{2,3,4} [1 2]
	// {1,2},{1,3,4},{2,3,4}
	// 0.9477 0.9558
}

func ExampleCoterie_Dual() {
	c, _ := quorum.Grid(2, 1, 2, 3, 4)
	for t := range c.Dual() {
		fmt.Print(t, " ")
	}
	fmt.Println(c.HasQuorum(2, 3))
	// Output: [1 4] [1 2] [2 4] [1 3] [2 3] [3 4] false
}

func ExampleCoterie_Availability() {
	c, _ := quorum.Wheel("hub", "a", "b")
	a, _ := c.Availability(0.9, 0.9, 0.99) // a, b, hub
	fmt.Printf("%.4f exact: %v\n", a.Value, a.Low == a.High)
	// Output: 0.9882 exact: true
}
