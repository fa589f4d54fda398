package suzukikasami

import (
	"testing"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

var (
	unordered = dmutextest.Network{Unordered: true}
	repeating = dmutextest.Network{Unordered: true, Duplicates: 2}
)

// lawful checks what should hold of a machine after each step.
var lawful = machinetest.Probe[*machine]{
	Excludes: (*machine).Excludes,
	After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
		switch {
		case m.token && m.Pending():
			return nil, dmutex.Misuse("a node waits for the token that it has")
		case m.Phase() == dmutex.Held && !m.token:
			return nil, dmutex.Misuse("a node is in without the token")
		case m.token && m.ln[m.Place()] != m.rn[m.Place()]:
			return nil, dmutex.Misuse("the holder's own request is not in LN")
		case m.token && m.Phase() == dmutex.Idle && len(m.q) > 0:
			return nil, dmutex.Misuse("an idle token is wanted")
		}
		return out, nil
	},
}

// An entry costs N messages or none. The channels may reorder and repeat messages.
func TestExplore(t *testing.T) {
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{Algorithm: lawful.Of(New), Nodes: 2, Requests: []int{3}, States: 272, Messages: [2]int{2, 12}},
		{Algorithm: lawful.Of(New), Nodes: 2, Requests: []int{3}, Cancels: []int{3}, States: 4_397, Messages: [2]int{2, 12}},
		{Algorithm: lawful.Of(New), Nodes: 2, Network: unordered, Requests: []int{3}, Cancels: []int{3}, States: 4_825, Messages: [2]int{2, 12}},
		{Algorithm: lawful.Of(New), Nodes: 2, Network: repeating, Requests: []int{3}, Cancels: []int{3}, States: 168_358, Messages: [2]int{2, 12}},
		{Algorithm: lawful.Of(New), Nodes: 2, Holder: 2, Network: unordered, Requests: []int{3}, Cancels: []int{1}, States: 2_040, Messages: [2]int{2, 12}},
		{Algorithm: lawful.Of(New), Nodes: 3, Home: 2, Network: unordered, Requests: []int{1}, Cancels: []int{1}, States: 3_745, Messages: [2]int{6, 9}},
		{Algorithm: lawful.Of(New), Nodes: 3, Holder: 3, Network: repeating, Requests: []int{1}, Cancels: []int{1}, States: 106_489, Messages: [2]int{6, 9}},
		{Algorithm: lawful.Of(New), Nodes: 3, Requests: []int{2}, States: 21_764, Messages: [2]int{6, 18}},
		{Algorithm: lawful.Of(New), Nodes: 3, Network: unordered, Requests: []int{2}, States: 107_366, Messages: [2]int{6, 18}},
		{Algorithm: lawful.Of(New), Nodes: 3, Requests: []int{2}, Cancels: []int{1}, States: 326_299, Messages: [2]int{6, 18}},
		{Algorithm: lawful.Of(New), Nodes: 3, Requests: []int{3}, States: 500_010, Messages: [2]int{6, 27}, Long: true},
		{Algorithm: lawful.Of(New), Nodes: 3, Network: unordered, Requests: []int{2}, Cancels: []int{2}, States: 3_553_185, Messages: [2]int{6, 18}, Long: true},
		{Algorithm: lawful.Of(New), Nodes: 3, Network: repeating, Requests: []int{2}, States: 8_991_372, Messages: [2]int{6, 18}, Long: true},
		{Algorithm: lawful.Of(New), Nodes: 4, Requests: []int{1}, States: 79_019, Messages: [2]int{12, 16}},
		{Algorithm: lawful.Of(New), Nodes: 4, Home: 3, Requests: []int{1}, Cancels: []int{1}, States: 805_102, Messages: [2]int{12, 16}, Long: true},
	})
}
