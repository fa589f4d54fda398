package dmutextest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/suzukikasami"
)

// Explore finds a WaitsFor or Lends that leaves out a node, or names a wrong one.
func TestWaiterLaw(t *testing.T) {
	without := func(id dmutex.NodeID) broken {
		return broken{waits: func(good []dmutex.NodeID, _ dmutex.Phase) []dmutex.NodeID {
			return slices.DeleteFunc(good, func(node dmutex.NodeID) bool { return node == id })
		}}
	}
	strange := func(waits func(dmutex.Phase) []dmutex.NodeID) broken {
		return broken{waits: func(_ []dmutex.NodeID, phase dmutex.Phase) []dmutex.NodeID { return waits(phase) }}
	}
	selfish := broken{lends: func(dmutex.NodeID) dmutex.NodeID { return dmutex.None }}
	var rows []string
	for _, tt := range []struct {
		name      string
		algorithm dmutex.Algorithm
		kind      error
		why       string
	}{
		{"central without the coordinator", without(1).of(central.New), ErrUnfound, "WaitsFor of 2 returns [], but none of these is the holder 1 or lends to it"},
		{"central that lends nothing", selfish.of(central.New), ErrUnfound, "WaitsFor of 3 returns [1], but none of these is"},
		{"central.Witnessed without the coordinator", without(1).of(central.Witnessed), ErrUnfound, "WaitsFor of 3 returns [], but none of these is the holder 1 or lends to it"},
		{"central.Witnessed that lends nothing", selfish.of(central.Witnessed), ErrUnfound, "WaitsFor of 3 returns [1], but none of these is"},
		{"ricart", without(2).of(ricart.New), ErrUnfound, "but none of these is the holder 2"},
		{"ricart.Carvalho", without(2).of(ricart.Carvalho), ErrUnfound, "but none of these is the holder 2"},
		{"lamport", without(2).of(lamport.New), ErrUnfound, "but none of these is the holder 2"},
		{"lamport.OmitReplies", without(2).of(lamport.OmitReplies), ErrUnfound, "but none of these is the holder 2"},
		{"maekawa without an arbiter", without(1).of(maekawa.New), ErrUnfound, "but none of these is"},
		{"maekawa that votes for nobody", selfish.of(maekawa.New), ErrUnfound, "but none of these is"},
		{"ring", without(2).of(ring.New), ErrUnfound, "but none of these is the holder 2"},
		{"suzukikasami", without(2).of(suzukikasami.New), ErrUnfound, "but none of these is the holder 2"},
		{"while idle", strange(func(dmutex.Phase) []dmutex.NodeID { return []dmutex.NodeID{2} }).of(ring.New), ErrContract, "WaitsFor of 1 returns [2]"},
		{"oneself", strange(func(p dmutex.Phase) []dmutex.NodeID { return Nodes(3 * int(p&dmutex.Waiting)) }).of(ricart.New), ErrContract, "WaitsFor of 1 returns [1 2 3], which are not distinct peers"},
	} {
		rows = append(rows, tt.name)
		t.Run(tt.name, func(t *testing.T) {
			_, err := Explore(Config{Algorithm: tt.algorithm, Members: Nodes(3), Requests: []int{1}})
			require.ErrorIs(t, err, tt.kind)
			require.ErrorContains(t, err, tt.why)
			var v *Violation
			require.ErrorAs(t, err, &v)
			require.Contains(t, v.Script, "\nviolation: "+name(tt.kind))
		})
	}
	require.Empty(t, algorithms.Without(rows), "these need a row")
}
