package dmutextest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/quicktest"
	"github.com/dmutex/dmutex/internal/search"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/suzukikasami"
)

// A halting is a world in which one node may stop while its machine excludes others, and the
// others go on: the law of Excludes, word by word. Explore checks the law without stopping
// a node: see knows.
type halting struct {
	*world
	claims  func(m dmutex.Machine, peer dmutex.NodeID) bool
	stopped int // the place of the node; -1 while none has stopped
}

// A halt is an action, or the stop of the node at a place.
type halt struct {
	action
	ends bool
}

func (h *halting) Clone(*halting) *halting { return &halting{h.world.Clone(nil), h.claims, h.stopped} }

func (h *halting) AppendState(b []byte) []byte {
	return h.world.AppendState(append(b, byte(h.stopped+1)))
}

func (h *halting) Steps(list []halt) []halt {
	for _, a := range h.world.Steps(nil) {
		at := a.at
		if !a.do.local() {
			at = h.flights[h.wire[a.at]].to
		}
		if at != h.stopped {
			list = append(list, halt{a, false})
		}
	}
	for i := range h.places {
		if h.stopped < 0 && slices.ContainsFunc(h.Members, func(id dmutex.NodeID) bool { return h.excludes(i, id) }) {
			list = append(list, halt{action{at: i}, true})
		}
	}
	return list
}

// excludes asks the machine inside broken, which hides Excludes from the other checks.
func (h *halting) excludes(i int, id dmutex.NodeID) bool {
	return id != h.Members[i] && h.claims(h.places[i].machine.(*broken).Machine, id)
}

func (h *halting) Do(a halt) error {
	if a.ends {
		h.stopped = a.at
		return nil
	}
	return h.world.Do(a.action)
}

func (h *halting) Tell(b []byte, a halt, after *halting) []byte {
	if a.ends {
		return fmt.Appendf(b, "\n%d stops\n", h.Members[a.at])
	}
	return h.world.Tell(b, a.action, after.world)
}

func (h *halting) lawful() error {
	for i, id := range h.Members {
		if h.stopped >= 0 && h.places[i].phase == dmutex.Held && h.excludes(h.stopped, id) {
			return search.Wrong(ErrExcluded, "%d has excluded %d, stopped, and %d holds the lock", h.Members[h.stopped], id, id)
		}
	}
	return nil
}

func halts(t *testing.T, c Config, claims func(dmutex.Machine, dmutex.NodeID) bool) (search.Report, error) {
	c.Algorithm = broken{}.of(c.Algorithm)
	first, err := newWorld(c)
	require.NoError(t, err)
	s := search.Search[*halting, halt]{
		First:  &halting{first, claims, -1},
		State:  (*halting).lawful,
		Script: func(told string, _ *halting, _ *Violation) string { return told },
	}
	return s.Run()
}

// Every machine with Excludes keeps its law if a node stops in any state, with all that it
// has sent still in flight.
func TestExcludesLaw(t *testing.T) {
	fifo, free := Network{}, Network{Unordered: true}
	excludes := func(m dmutex.Machine, peer dmutex.NodeID) bool { return m.(dmutex.Excluder).Excludes(peer) }
	var rows []string
	for _, tt := range []struct {
		name              string
		algorithm         dmutex.Algorithm
		nodes             int
		holder            dmutex.NodeID
		requests, cancels int
		network           Network
		states            [2]int // without and with the states in which a node has stopped
	}{
		{"central", central.New, 2, 0, 3, 2, free, [2]int{3_323, 4_819}},
		{"central", central.New, 3, 0, 1, 1, free, [2]int{518, 1_108}},
		{"central", central.New, 3, 0, 2, 0, free, [2]int{1_832, 3_932}},
		{"central", central.At(2), 3, 3, 1, 1, fifo, [2]int{653, 1_407}},
		{"central.Witnessed", central.Witnessed, 2, 0, 3, 2, free, [2]int{29_987, 57_978}},
		{"central.Witnessed", central.Witnessed, 3, 0, 1, 1, free, [2]int{1_080, 2_875}},
		{"central.Witnessed", central.Witnessed, 3, 0, 2, 0, free, [2]int{5_929, 14_884}},
		{"central.Witnessed", central.Witnessed, 3, 1, 1, 1, free, [2]int{2_189, 5_443}},
		{"central.Witnessed", central.Witnessed, 3, 3, 1, 1, fifo, [2]int{1_184, 3_171}},
		{"maekawa", maekawa.New, 2, 0, 2, 1, fifo, [2]int{1_651, 3_273}},
		{"maekawa", maekawa.New, 3, 0, 1, 0, fifo, [2]int{1_564, 4_697}},
		{"maekawa", maekawa.New, 3, 2, 1, 0, fifo, [2]int{1_970, 5_963}},
		{"suzukikasami", suzukikasami.New, 2, 0, 3, 2, free, [2]int{4_136, 6_931}},
		{"suzukikasami", suzukikasami.New, 3, 0, 1, 1, free, [2]int{3_745, 5_690}},
		{"suzukikasami", suzukikasami.New, 3, 3, 1, 1, fifo, [2]int{3_165, 4_798}},
		{"ring", ring.New, 2, 0, 3, 2, fifo, [2]int{2_952, 4_970}},
		{"ring", ring.New, 3, 0, 2, 1, fifo, [2]int{65_775, 99_768}},
		{"ring", ring.New, 3, 2, 1, 1, fifo, [2]int{1_187, 1_864}},
		{"lamport", lamport.New, 2, 0, 2, 1, fifo, [2]int{10_778, 13_384}},
		{"lamport.OmitReplies", lamport.OmitReplies, 2, 2, 2, 1, fifo, [2]int{11_844, 14_112}},
		{"ricart", ricart.New, 3, 0, 1, 1, fifo, [2]int{14_023, 15_153}},
		{"ricart.Carvalho", ricart.Carvalho, 3, 2, 1, 0, free, [2]int{3_013, 3_502}},
	} {
		rows = append(rows, tt.name)
		t.Run(fmt.Sprintf("%s, %d nodes, holder %d, requests %d, cancels %d, %v", tt.name, tt.nodes, tt.holder, tt.requests, tt.cancels, tt.network), func(t *testing.T) {
			if quicktest.On() && tt.states[0] > 6_000 {
				t.Skip("takes seconds; set CI=1")
			}
			c := Config{
				Algorithm: tt.algorithm, Members: Nodes(tt.nodes), Holder: tt.holder, Network: tt.network,
				Requests: []int{tt.requests}, Cancels: []int{tt.cancels},
			}
			r, err := halts(t, c, excludes)
			require.NoError(t, err)
			require.True(t, r.Complete)
			group, err := Explore(c)
			require.NoError(t, err)
			require.Equal(t, tt.states, [2]int{group.States, r.States})

			_, err = halts(t, c, func(m dmutex.Machine, _ dmutex.NodeID) bool { return m.Phase() == dmutex.Idle })
			require.ErrorIs(t, err, ErrExcluded)
		})
	}
	require.Empty(t, algorithms.Without(rows), "these need a row")
}
