package main

import (
	"slices"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/suzukikasami"
)

// An algorithm is one that the tool can run, and what its paper promises.
type algorithm struct {
	name string
	make dmutex.Algorithm // nil for no lock at all

	// The messages of one entry: as the paper writes it, and the least and the
	// greatest number in a group of n.
	formula  string
	messages func(n int) (least, greatest int)
	free     dmutex.NodeID // the node to whose own entries that does not apply, since they need none

	about string
}

// algorithms are all that there are: a line each.
var algorithms = []algorithm{
	{"central", central.New, "3", func(int) (int, int) { return 3, 3 }, 1, "node 1 grants, first come, first served; its own entries are free"},
	{"lamport", lamport.New, "3(N-1)", func(n int) (int, int) { return 3 * (n - 1), 3 * (n - 1) }, dmutex.None, "Lamport 1978: every node queues all requests by their time"},
	{"lamport-omit", lamport.OmitReplies, "2(N-1)..3(N-1)", func(n int) (int, int) { return 2 * (n - 1), 3 * (n - 1) }, dmutex.None, "the same, but a node that wants or has the lock itself does not reply"},
	{"ricart", ricart.New, "2(N-1)", func(n int) (int, int) { return 2 * (n - 1), 2 * (n - 1) }, dmutex.None, "Ricart and Agrawala 1981: enter when all others have agreed"},
	{"carvalho", ricart.Carvalho, "0..2(N-1)", func(n int) (int, int) { return 0, 2 * (n - 1) }, dmutex.None, "Carvalho and Roucairol 1983: an agreement stands until asked back"},
	{"maekawa", maekawa.New, "3(K-1)..6(K-1)", gridMessages, dmutex.None, "Maekawa 1985, corrected: ask K nodes, a row and a column of a grid"},
	{"suzukikasami", suzukikasami.New, "0..N", func(n int) (int, int) { return 0, n }, dmutex.None, "Suzuki and Kasami 1985: ask all for the token, enter with it"},
	{"ring", ring.New, "0..N", func(n int) (int, int) { return 0, n }, dmutex.None, "a token goes around while anybody wants it"},
}

// noLock is what happens without.
var noLock = algorithm{name: "no lock", about: "everybody enters at once"}

// gridMessages counts Maekawa's messages: three to and from each of a site's
// quorum but itself, and up to three more under contention. The quorum is a row
// and a column of a square; if n is no square, the last row is short and
// quorums differ in size.
func gridMessages(n int) (least, greatest int) {
	side := 1
	for side*side < n {
		side++
	}
	least = 3 * n
	for site := range n {
		row := min(side, n-site/side*side)
		column := (n - site%side + side - 1) / side
		others := row + column - 2
		least, greatest = min(least, 3*others), max(greatest, 6*others)
	}
	return least, greatest
}

// algorithmNames lists the names of all algorithms.
func algorithmNames() string {
	var names []string
	for _, a := range algorithms {
		names = append(names, a.name)
	}
	return strings.Join(names, ", ")
}

// findAlgorithm returns the algorithm of that name, noLock and broken among
// them.
func findAlgorithm(name string) (algorithm, bool) {
	all := append(slices.Clone(algorithms), noLock, broken)
	i := slices.IndexFunc(all, func(a algorithm) bool { return a.name == name })
	if i < 0 {
		return algorithm{}, false
	}
	return all[i], true
}
