package membership

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/machinetest"
)

// A leaseExplorer finds the states of a leaseWorld, breadth first.
type leaseExplorer struct {
	*leaseWorld
	seen   table
	parent []uint32
	via    []uint16 // which of the parent's possible actions
	ends   []uint32 // where the edges of a state end
	edges  []uint32 // what happens by itself
	happy  []bool   // all is well, or the bounds are left by what happens by itself
}

// exploreLeases visits every state within the bounds. Beside what apply checks, from
// each of them one is reached in which all is well, by what happens by itself, or the
// bounds are left.
func exploreLeases(s leaseSetup, most int) found {
	e := &leaseExplorer{leaseWorld: newLeaseWorld(s)}
	e.seen.find(fingerprint(e.first), 0)
	e.parent, e.via = []uint32{0}, []uint16{0}
	this := append([]uint32{uint32(len(e.first))}, e.first...)
	var next []uint32
	for id := uint32(0); len(this) > 0; {
		for k := 0; k < len(this); id++ {
			s := this[k+1 : k+1+int(this[k])]
			k += 1 + len(s)
			var wrong string
			if next, wrong = e.expand(id, s, next); wrong != "" {
				return found{states: len(e.parent), wrong: wrong, run: e.retell(uint32(len(e.parent)-1), wrong)}
			}
			if most > 0 && len(e.parent) >= most {
				return found{states: len(e.parent)}
			}
		}
		this, next = next, this[:0]
	}
	if id, stuck := e.stuck(); stuck {
		s := e.run(id, nil)
		wrong := e.complaint(s)
		return found{states: len(e.parent), wrong: wrong, run: e.retell(id, wrong)}
	}
	return found{states: len(e.parent), all: true}
}

// expand finds the states that follow state id, and adds the new ones to next.
func (e *leaseExplorer) expand(id uint32, s, next []uint32) ([]uint32, string) {
	happy := e.good(s)
	for k, a := range e.possible(s) {
		fair := e.fair(s, a)
		t, wrong := e.apply(s, a)
		if wrong == outside {
			happy = happy || fair
			continue
		}
		if wrong != "" {
			e.parent, e.via = append(e.parent, id), append(e.via, uint16(k))
			return nil, wrong
		}
		to, fresh := e.seen.find(fingerprint(t), uint32(len(e.parent)))
		if fair && to != id {
			e.edges = append(e.edges, to)
		}
		if fresh {
			next = append(append(next, uint32(len(t))), t...)
			e.parent, e.via = append(e.parent, id), append(e.via, uint16(k))
		}
	}
	e.ends = append(e.ends, uint32(len(e.edges)))
	e.happy = append(e.happy, happy)
	return next, ""
}

// stuck finds a state from which none is reached in which all is well.
func (e *leaseExplorer) stuck() (uint32, bool) {
	into := make([]uint32, len(e.parent)+1) // where the edges that lead into a state begin
	for _, to := range e.edges {
		into[to+1]++
	}
	for k := range e.parent {
		into[k+1] += into[k]
	}
	from := make([]uint32, len(e.edges))
	fill := slices.Clone(into)
	begin := uint32(0)
	for id, end := range e.ends {
		for _, to := range e.edges[begin:end] {
			from[fill[to]] = uint32(id)
			fill[to]++
		}
		begin = end
	}
	var queue []uint32
	for id, happy := range e.happy {
		if happy {
			queue = append(queue, uint32(id))
		}
	}
	for len(queue) > 0 {
		id := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, before := range from[into[id]:into[id+1]] {
			if !e.happy[before] {
				e.happy[before] = true
				queue = append(queue, before)
			}
		}
	}
	id := slices.Index(e.happy, false)
	return uint32(max(id, 0)), id >= 0
}

// run goes the way to state id, and calls each for every step.
func (e *leaseExplorer) run(id uint32, each func(s, t []uint32, a action)) []uint32 {
	var way []uint16
	for ; id != 0; id = e.parent[id] {
		way = append(way, e.via[id])
	}
	s := e.first
	for _, k := range slices.Backward(way) {
		a := e.possible(s)[k]
		t, _ := e.apply(s, a)
		t = slices.Clone(t)
		if each != nil {
			each(s, t, a)
		}
		s = t
	}
	return s
}

// retell writes down the run to state id.
func (e *leaseExplorer) retell(id uint32, wrong string) string {
	var b strings.Builder
	e.run(id, func(s, t []uint32, a action) { e.tell(&b, s, t, a) })
	fmt.Fprintf(&b, "\n%s\n", wrong)
	return b.String()
}

// LESSONS L64, L67, L70.
//
// Every run of these groups does nothing wrong: one life at most holds the lock, fences
// rise, no epoch has two views, and all members of a view have the same report of the
// holder. From every state one is reached in which all lives that are there are the
// members and act, without further faults. Any member may exclude any other at any time
// within the bounds. The numbers are what is there: a change of one is a finding.
// DMUTEX_LONG=1 adds the large groups; those with a round million are cut there.
func TestLeaseExplore(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, tt := range []struct {
		setup  leaseSetup
		states int
		cut    bool
		long   bool
	}{
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, faults: leaseFaults{crashes: 1, slow: 1}}, 110_588, false, false},
		{leaseSetup{n: 2, lease: 2, wait: 2, epochs: 2, faults: leaseFaults{crashes: 1}}, 12_866, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 2, epochs: 1, faults: leaseFaults{slow: 2}}, 10_516, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, fresh: true, faults: leaseFaults{slow: 1, exits: 1}}, 67_322, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, faults: leaseFaults{crashes: 1, wipes: 1}}, 128_782, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 3, faults: leaseFaults{exits: 1, alarms: 1}}, 26_232, false, false},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 1, faults: leaseFaults{crashes: 1}}, 17_704, false, false},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 1, faults: leaseFaults{exits: 1}}, 9_592, false, false},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 2}, 136_075, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 4, faults: leaseFaults{exits: 2, returns: 1}}, 42_166, false, false},
		{leaseSetup{n: 2, lease: 2, wait: 2, epochs: 3, faults: leaseFaults{exits: 1, returns: 1}}, 40_758, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 3, faults: leaseFaults{slow: 1, exits: 1, returns: 1}}, 411_706, false, true},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 4, faults: leaseFaults{crashes: 1, exits: 1, returns: 1}}, 196_750, false, true},
		{leaseSetup{n: 2, lease: 2, wait: 2, epochs: 2, faults: leaseFaults{crashes: 1, slow: 1}}, 370_694, false, true},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 3, faults: leaseFaults{crashes: 1, slow: 1}}, 613_882, false, true},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, faults: leaseFaults{crashes: 1, slow: 3}}, 2_809_956, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 2, faults: leaseFaults{exits: 1}}, 194_521, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 2, faults: leaseFaults{crashes: 1}}, 860_152, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 3, fresh: true}, 4_000_000, true, true},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 4, faults: leaseFaults{crashes: 1}}, 57_574, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 2, fresh: true}, 673_142, false, true},
		{leaseSetup{n: 3, lease: 2, wait: 2, epochs: 1, faults: leaseFaults{crashes: 1}}, 62_568, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 1, faults: leaseFaults{slow: 1}}, 271_400, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 2, faults: leaseFaults{slow: 1}}, 4_000_000, true, true},
		{leaseSetup{n: 3, lease: 2, wait: 2, epochs: 2, faults: leaseFaults{crashes: 1}}, 4_000_000, true, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 4, fresh: true, faults: leaseFaults{crashes: 1, exits: 1}}, 4_000_000, true, true},
	} {
		t.Run(tt.setup.name(), func(t *testing.T) {
			if tt.long {
				machinetest.Long(t)
			}
			most := 8_000_000
			if tt.cut {
				most = tt.states
			}
			f := exploreLeases(tt.setup, most)
			require.Empty(t, f.wrong, f.run)
			require.Equal(t, !tt.cut, f.all)
			if !tt.cut {
				require.Equal(t, tt.states, f.states)
			}
		})
	}
}
