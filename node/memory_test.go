package node_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/memlink"
)

// heap returns how many bytes are in use when all garbage is gone.
func heap() float64 {
	runtime.GC()
	runtime.GC() // what the first one only found to be garbage: sync.Pool, finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// memoryGroup opens nodes 1 to n in memory.
func memoryGroup(tb testing.TB, a dmutex.Algorithm, n int) []*node.Node {
	net, err := memlink.New(memlink.Config{})
	require.NoError(tb, err)
	var (
		members []dmutex.NodeID
		nodes   []*node.Node
	)
	for id := range dmutex.NodeID(n) {
		members = append(members, id+1)
	}
	for _, id := range members {
		n, err := node.Open(tb.Context(), node.Config{Self: id, Members: members, Algorithm: a, Link: net.Link(id)})
		require.NoError(tb, err)
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		require.NoError(tb, n.Ready(tb.Context()))
	}
	return nodes
}

// names returns names of 16 bytes, which is what they take in memory.
func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("lock/%011d", i)
	}
	return list
}

// heldCost lets one node of a group hold many locks, and returns how many bytes
// a lock takes there, handle included, and at each of the others, beyond its
// name: by how much the heap shrinks when a node is gone.
func heldCost(tb testing.TB, a dmutex.Algorithm, n, holder, locks int) (here float64, elsewhere []float64) {
	nodes, list := memoryGroup(tb, a, n), names(locks)
	handles := make([]*node.Held, locks)
	for i, name := range list {
		h, err := nodes[holder].Mutex(name).Acquire(tb.Context())
		require.NoError(tb, err)
		handles[i] = h
	}
	hurry, cancel := context.WithCancel(tb.Context())
	cancel()
	drop := func(i int) float64 {
		before := heap()
		_ = nodes[i].Close(hurry) // in a hurry: nobody is waited for
		nodes[i] = nil
		return (before - heap()) / float64(locks)
	}
	for i := range nodes {
		if i != holder {
			elsewhere = append(elsewhere, drop(i)-float64(len(list[0])))
		}
	}
	before := heap()
	_ = nodes[holder].Close(hurry)
	clear(nodes)
	clear(handles)
	here = (before - heap()) / float64(locks)
	runtime.KeepAlive(handles)
	runtime.KeepAlive(list)
	return here, elsewhere
}

// BenchmarkHeldMemory reports what a held lock costs in memory, beyond its name:
// at the node that holds it, and at the worst of the others.
func BenchmarkHeldMemory(b *testing.B) {
	for _, a := range algorithms {
		for _, n := range []int{3, 5} {
			for holder := range 2 { // the first node is special in some
				b.Run(fmt.Sprintf("%s/%d/by%d", a.name, n, holder+1), func(b *testing.B) {
					for b.Loop() {
						here, elsewhere := heldCost(b, a.Algorithm, n, holder, 20_000)
						worst := elsewhere[0]
						for _, e := range elsewhere {
							worst = max(worst, e)
						}
						b.ReportMetric(here, "holder-B/lock")
						b.ReportMetric(worst, "others-B/lock")
					}
				})
			}
		}
	}
}
