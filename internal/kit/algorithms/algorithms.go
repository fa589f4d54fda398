// Package algorithms lists the lock algorithms and what each can, for the tests that run with all of
// them. A new one is added here, and package repotest says where else.
package algorithms

import (
	"slices"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/quicktest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/suzukikasami"
)

// An Algorithm is one of the list.
type Algorithm struct {
	Name string // its package, and its function unless that is New
	dmutex.Algorithm

	Forgets bool // a node forgets a lock that was released and is not used
	Ordered bool // the messages from one node to another must arrive in order
	Shares  bool // its machines are Sharers

	// In the lease mode, whether a lock waits for the lease of a dead member although that did
	// not hold it: every lock, one that began at that member, and one of these that another
	// member took afterwards.
	Waits struct{ Any, Begun, Taken bool }
}

// All are the algorithms.
var All = []Algorithm{
	{"central", central.New, true, false, true, waits{Begun: true, Taken: true}},
	{"central.Witnessed", central.Witnessed, true, false, true, waits{}},
	{"lamport", lamport.New, true, true, true, waits{true, true, true}},
	{"lamport.OmitReplies", lamport.OmitReplies, true, true, true, waits{true, true, true}},
	{"maekawa", maekawa.New, true, false, false, waits{}},
	{"ricart", ricart.New, true, false, true, waits{true, true, true}},
	{"ricart.Carvalho", ricart.Carvalho, true, false, false, waits{true, true, true}},
	{"ring", ring.New, false, true, false, waits{Begun: true}},
	{"suzukikasami", suzukikasami.New, false, false, false, waits{Begun: true}},
}

type waits = struct{ Any, Begun, Taken bool }

// Typical reports whether the algorithm is the one with a coordinator, the one that asks everybody, or the one with a
// token that stands for the others where tests are to be quick.
func (a Algorithm) Typical() bool {
	return slices.Contains([]string{"central.Witnessed", "lamport", "suzukikasami"}, a.Name)
}

// Some returns the algorithms with which slow tests run: all of them where CI or DMUTEX_LONG is set, else the
// typical ones. So it is under the race detector, which looks at what surrounds the machines.
func Some() (some []Algorithm) {
	if !quicktest.On() && !racetest.On {
		return All
	}
	for _, a := range All {
		if a.Typical() {
			some = append(some, a)
		}
	}
	return some
}

// Named returns the algorithm of that name, which is in the list.
func Named(name string) dmutex.Algorithm {
	for _, a := range All {
		if a.Name == name {
			return a.Algorithm
		}
	}
	panic("no such algorithm: " + name)
}

// Without returns the names of the list that no row of a table is about. A row has the name of an
// algorithm as its first word.
func Without(rows []string) (names []string) {
	for _, a := range All {
		if !slices.ContainsFunc(rows, func(row string) bool { first, _, _ := strings.Cut(row, " "); return first == a.Name }) {
			names = append(names, a.Name)
		}
	}
	return names
}
