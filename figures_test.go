package dmutex_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/trace/draw"
)

// The figures of docs/figures.md are drawn from golden scripts; -update draws
// them again.
func TestFigures(t *testing.T) {
	arbiters := [][]dmutex.NodeID{{4, 5}, {5, 6}, {6, 4}}
	for _, f := range []struct {
		name      string
		algorithm dmutex.Algorithm
		script    string
		title     string
	}{
		{"lamport", lamport.New, "docs/figures/lamport.txt", "Lamport: two sites ask at the same time"},
		{"ricart", ricart.New, "ricart/testdata/textbook.txt", "Ricart and Agrawala: N32 is inside when N12 and N80 ask"},
		{
			"maekawa", maekawa.With(func(site dmutex.NodeID) []dmutex.NodeID { return arbiters[(site-1)%3] }), "docs/figures/maekawa.txt",
			"Maekawa: a deadlock of three, and how it is resolved",
		},
	} {
		t.Run(f.name, func(t *testing.T) {
			dmutextest.TestScript(t, f.algorithm, f.script)
			script, err := os.ReadFile(f.script)
			require.NoError(t, err)
			traces, err := dmutextest.TraceScript(f.algorithm, string(script))
			require.NoError(t, err)
			d, err := draw.New(traces, draw.Options{Title: f.title})
			require.NoError(t, err)
			dmutextest.Golden(t, "docs/figures/"+f.name+".svg", string(d.SVG()))
		})
	}
}
