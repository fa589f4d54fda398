package node

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A table does what a map does, and shrinks.
func TestTable(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 0))
	table, model := table{seed: maphash.MakeSeed()}, make(map[string]*lock)
	step := func(add float64) {
		name := fmt.Sprint(r.IntN(5000))
		hash := maphash.String(table.seed, name)
		l := table.find(hash, name)
		require.Same(t, model[name], l, "seed %d", seed)
		require.Same(t, l, table.findBytes(hash, []byte(name)))
		switch {
		case l != nil && r.Float64() >= add:
			table.remove(l)
			delete(model, name)
		case l == nil && r.Float64() < add:
			l = &lock{name: name}
			table.add(hash, l)
			model[name] = l
		}
		require.Equal(t, len(model), table.count)
	}
	for _, add := range []float64{1, 0.5, 0.01, 1, 0.3} {
		for range 20_000 {
			step(add)
		}
		seen := make(map[string]*lock)
		for l := range table.all() {
			seen[l.name] = l
		}
		require.Equal(t, model, seen)
	}
	for _, l := range model {
		table.remove(l)
	}
	require.Zero(t, table.count)
	require.LessOrEqual(t, len(table.chains), 4)
	for range table.all() {
		t.Fatal("a lock in an empty table")
	}
}
