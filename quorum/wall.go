package quorum

import (
	"cmp"
	"strconv"
)

// Wheel returns the coterie of the hub, which is the first site, with any one site of the
// rim, and of the whole rim. It is weighted voting with as many votes for the hub as the
// rim has sites, less one. Without a rim it is the hub alone; with a rim of one site, that
// alone.
//
// Its smallest quorums have two sites; with k > 1 sites in the rim its load is
// k/(2k-1), above one half, and its resilience 1. It is non-dominated.
//
// Holzman, Marcus and Peleg, "Load Balancing in Quorum Systems", SIAM Journal on
// Discrete Mathematics 10(2), 1997; as the wall of widths 1 and n-1 in Peleg and
// Wool, "Crumbling Walls", Distributed Computing 10(2), 1997.
func Wheel[T cmp.Ordered](sites ...T) (Coterie[T], error) {
	widths := []int{1}
	if len(sites) > 1 {
		widths = append(widths, len(sites)-1)
	}
	return Wall(widths, sites...)
}

// Wall returns the crumbling wall: the sites are laid into rows of the given
// widths, the first row on top, and a quorum is one whole row and one site of
// every row below it. Two of them meet in the lower one's whole row.
//
// Without widths it is the triangular wall: rows 1, 2, 3, ... sites wide, what is left
// of the sites being spread over the last rows. With n = d(d+1)/2 sites, which make d
// rows, all its quorums have d sites, about sqrt(2n). Of two sites it is the second alone.
//
// Peleg and Wool, "Crumbling Walls: A Class of Practical and Efficient Quorum
// Systems", Distributed Computing 10(2), 1997; the triangular wall is from Erdos and
// Lovasz, "Problems and Results on 3-Chromatic Hypergraphs and Some Related Questions", 1975.
//
// A row that is one site wide makes the rows above it superfluous, and their
// sites then occur in no quorum. A wall is non-dominated exactly if some row is
// one site wide; usually that is the first.
//
// It refuses a width below 1 and widths that do not sum to the number of sites (ErrSize).
func Wall[T cmp.Ordered](widths []int, sites ...T) (Coterie[T], error) {
	if err := distinct(sites); err != nil {
		return Coterie[T]{}, err
	}
	if len(widths) == 0 {
		widths = triangle(len(sites))
	}
	sum := 0
	for i, w := range widths {
		if w < 1 {
			return Coterie[T]{}, refuse(ErrSize, "row "+strconv.Itoa(i)+" of a wall is "+strconv.Itoa(w)+" wide; give it at least one site")
		}
		sum = plus(sum, w)
	}
	if sum != len(sites) {
		return Coterie[T]{}, refuse(ErrSize, "the rows of a wall hold "+strconv.Itoa(sum)+" sites, and there are "+
			strconv.Itoa(len(sites))+"; let the widths sum to that")
	}
	top, in := widths[0], leaves(len(sites))
	wall := voting(same(top, 1), top, in[:top])
	for _, w := range widths[1:] {
		in = in[top:]
		wall, top = wheel(wall, in[:w]), w
	}
	return finish(wall, sites), nil
}

// triangle returns widths 1, 2, ..., d that sum to n, the last ones wider by one
// or two where n asks for it. The first row stays one site wide, which keeps the
// wall non-dominated; for n = 2 the second site becomes a row, and decides.
func triangle(n int) []int {
	var widths []int
	for w := 1; n >= w; w++ {
		widths = append(widths, w)
		n -= w
	}
	last := len(widths) - 1
	if n > 0 && last == 0 {
		return append(widths, 1)
	}
	for i := range n {
		widths[last-i%last]++
	}
	return widths
}

// wheel returns the system of a hub and a rim; without a rim it is the hub. Row by row a
// wall is a wheel: the row is the rim, and the wall above it the hub.
func wheel(hub *system, rim []*system) *system {
	if len(rim) == 0 {
		return hub
	}
	weight := append([]int{len(rim) - 1}, same(len(rim), 1)...)
	return voting(weight, len(rim), append([]*system{hub}, rim...))
}
