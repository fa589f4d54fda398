package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A demo of all algorithms is recorded, and every machine of every process
// replays as it was. One line that is changed is noticed.
func TestTraceOfDemo(t *testing.T) {
	dir := t.TempDir()
	status, r, stderr := demo(t, "--nodes=3", "--deposits=10", "--trace", dir)
	require.Equal(t, statusOK, status, stderr)
	require.True(t, r.OK)
	for _, a := range algorithms {
		traces := filepath.Join(dir, a.name)
		status, stdout, stderr := tool("trace", "replay", traces)
		require.Equal(t, statusOK, status, stdout+stderr)
		require.Equal(t, 3, strings.Count(stdout, "the same: "), stdout)
		require.Contains(t, stdout, " under "+strings.TrimSuffix(a.name, "-omit"))

		status, stdout, stderr = tool("trace", "draw", traces, "--format=mermaid")
		require.Equal(t, statusOK, status, stderr)
		require.Equal(t, 30, strings.Count(stdout, "enters, fence "), a.name)
		status, stdout, stderr = tool("trace", "draw", traces)
		require.Equal(t, statusOK, status, stderr)
		require.Contains(t, stdout, "node 3 holds the lock with fence ")
	}

	file := filepath.Join(dir, "ricart", "2.trace")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	changed := strings.Replace(string(text), `"phase":"held","fence":`, `"phase":"held","fence":1`, 1)
	require.NotEqual(t, string(text), changed)
	require.NoError(t, os.WriteFile(file, []byte(changed), 0o600))
	status, stdout, _ := tool("trace", "replay", filepath.Join(dir, "ricart"))
	require.Equal(t, statusFailed, status)
	require.Regexp(t, `2\.trace:\d+: trace: replays differently: lock "account", .*: recorded held with fence 1\d+, now held with fence \d+\n`, stdout)
	require.Equal(t, 2, strings.Count(stdout, "the same: "), "the others are replayed too")

	// A process that was killed while it wrote.
	require.NoError(t, os.WriteFile(file, text[:len(text)-9], 0o600))
	status, stdout, stderr = tool("trace", "replay", file)
	require.Equal(t, statusOK, status)
	require.Contains(t, stdout, "the same: ")
	require.Contains(t, stderr, "2.trace: the last line is not whole, and is left out")

	// Another algorithm is no witness.
	status, stdout, _ = tool("trace", "replay", filepath.Join(dir, "lamport", "2.trace"), "--algorithm=ricart")
	require.Equal(t, statusFailed, status)
	require.Contains(t, stdout, "replays differently")

	status, _, stderr = tool("demo", "--nodes=2", "--deposits=1", "--algorithm=ricart", "--trace", dir)
	require.Equal(t, statusIncomplete, status)
	require.Contains(t, stderr, "is not empty")
	require.NotContains(t, stderr, "no lock", "it is refused before the first run")
	status, _, stderr = tool("demo", "philosophers", "--philosophers=2", "--meals=1", "--trace", dir)
	require.Equal(t, statusIncomplete, status)
	require.Contains(t, stderr, "is not empty")
	require.NotContains(t, stderr, "watched", "it is refused before the first dinner")
}

func TestTraceOfSim(t *testing.T) {
	dir := t.TempDir()
	sim := []string{"sim", "--nodes=5", "--load=saturated,2", "--requests=20", "--trace", dir}
	status, _, stderr := tool(sim...)
	require.Equal(t, statusOK, status, stderr)
	runs, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, runs, 2*len(algorithms))
	for _, run := range runs {
		traces := filepath.Join(dir, run.Name())
		status, stdout, stderr := tool("trace", "replay", traces)
		require.Equal(t, statusOK, status, stdout+stderr)
		require.Equal(t, 5, strings.Count(stdout, "the same: "), stdout)
		status, _, stderr = tool("trace", "draw", traces, "-o", filepath.Join(dir, "picture.html"))
		require.Equal(t, statusOK, status, stderr)
	}
	page, err := os.ReadFile(filepath.Join(dir, "picture.html"))
	require.NoError(t, err)
	require.Contains(t, string(page), "holds the lock with fence 20")

	status, _, stderr = tool(sim...)
	require.Equal(t, statusIncomplete, status)
	require.Contains(t, stderr, "is not empty")

	// The directory of the last run is looked at before the first run.
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "ricart-5-saturated")))
	status, _, _ = tool("sim", "--algorithm=ricart", "--nodes=5", "--load=saturated,2", "--requests=20", "--trace", dir)
	require.Equal(t, statusIncomplete, status)
	files, err := os.ReadDir(filepath.Join(dir, "ricart-5-saturated"))
	require.NoError(t, err)
	require.Empty(t, files)
}

func TestTraceUsage(t *testing.T) {
	refused(t, [][2]string{
		{"trace draw", "<files>"},
		{"trace draw x -o x.png", "must end in .svg, .html, .mmd or .log"},
		{"trace draw x --format=png", "choose svg, html, mermaid or shiviz"},
		{"trace draw x --width=399", "at least 400"},
		{"trace draw x --from=-1s", "choose 0s or more"},
		{"trace draw x --from=2s --to=1s", "choose more than --from=2s"},
		{"trace replay x --algorithm=peterson", "choose one of central, "},
		{"sim --nodes=65 --trace=x", "up to 64"},
	})
	dir := t.TempDir()
	other := filepath.Join(dir, "other.trace")
	require.NoError(t, os.WriteFile(other, []byte("no trace\n"), 0o600))
	foreign := filepath.Join(dir, "foreign")
	require.NoError(t, os.WriteFile(foreign, []byte(`{"dmutex":"trace","version":1,"self":1,"members":[1],"algorithm":"peterson"}`+"\n"), 0o600))
	silent := filepath.Join(dir, "silent")
	require.NoError(t, os.WriteFile(silent, []byte(`{"dmutex":"trace","version":1,"self":1,"members":[1]}`+"\n"), 0o600))
	above := t.TempDir()
	below := filepath.Join(above, "[1]")
	require.NoError(t, os.Mkdir(below, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(below, "1.trace"), []byte("no trace\n"), 0o600))
	for _, tt := range [][2]string{
		{"trace draw " + above, "choose a directory below, such as " + below},
		{"trace draw " + below, "1.trace:1: not a trace"},
		{"trace replay " + filepath.Join(dir, "none"), "no such file"},
		{"trace replay " + dir, "other.trace:1: not a trace: it has no header"},
		{"trace draw " + t.TempDir(), "there is no file that ends in .trace"},
		{"trace replay " + foreign, `no algorithm of this program describes itself as "peterson"; give one with --algorithm`},
		{"trace replay " + silent, "silent: it does not say which algorithm it is of; give one with --algorithm"},
		{"trace draw " + foreign, "dmutex: the traces are empty\n"},
	} {
		status, _, stderr := tool(strings.Fields(tt[0])...)
		require.Equal(t, statusIncomplete, status, tt[0])
		require.Contains(t, stderr, tt[1])
	}
}
