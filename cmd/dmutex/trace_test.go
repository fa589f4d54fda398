package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// The traces of a demo of all algorithms replay, every machine of every process.
// Changed fences are noticed.
func TestTraceOfDemo(t *testing.T) {
	dir := t.TempDir()
	status, _, stderr := invoke("demo", "--nodes=3", "--deposits=10", "--trace", dir)
	require.Equal(t, tool.StatusOK, status, stderr)
	for _, a := range catalog.All {
		traces := filepath.Join(dir, a.Name)
		status, stdout, stderr := invoke("trace", "replay", traces)
		require.Equal(t, tool.StatusOK, status, stdout+stderr)
		require.Equal(t, 3, strings.Count(stdout, "the same: "), stdout)
		require.Contains(t, stdout, " under "+strings.TrimSuffix(a.Name, "-omit"))

		status, stdout, stderr = invoke("trace", "draw", traces)
		require.Equal(t, tool.StatusOK, status, stderr)
		require.Contains(t, stdout, "node 3 holds the lock with fence ")
	}

	file := filepath.Join(dir, "ricart", "2.trace")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	changed := regexp.MustCompile(`"fence":(\d+),("in":.*)?"phase":"held"`).ReplaceAllString(string(text), `"fence":1$1,$2"phase":"held"`)
	require.NotEqual(t, string(text), changed)
	require.NoError(t, os.WriteFile(file, []byte(changed), 0o600))
	status, stdout, _ := invoke("trace", "replay", filepath.Join(dir, "ricart"))
	require.Equal(t, tool.StatusFailed, status)
	require.Regexp(t, `2\.trace:\d+: dmutextest: replays differently: lock "account", .*: recorded held with fence 1\d+, now held with fence \d+\n`, stdout)
	require.Equal(t, 2, strings.Count(stdout, "the same: "), "the others are replayed too")

	// A process that is killed while it writes leaves an incomplete last line.
	require.NoError(t, os.WriteFile(file, text[:len(text)-9], 0o600))
	status, stdout, stderr = invoke("trace", "replay", file)
	require.Equal(t, tool.StatusOK, status)
	require.Contains(t, stdout, "the same: ")
	require.Contains(t, stderr, "2.trace: the last line is incomplete, and is left out")

	// Another algorithm does not replay it.
	status, stdout, _ = invoke("trace", "replay", filepath.Join(dir, "lamport", "2.trace"), "--algorithm=ricart")
	require.Equal(t, tool.StatusFailed, status)
	require.Contains(t, stdout, "replays differently")

	status, _, stderr = invoke("demo", "--nodes=2", "--deposits=1", "--algorithm=ricart", "--trace", dir)
	require.Equal(t, tool.StatusIncomplete, status)
	require.Contains(t, stderr, "is not empty")
	require.NotContains(t, stderr, "no lock", "it is refused before the first run")
	status, _, stderr = invoke("demo", "philosophers", "--philosophers=2", "--meals=1", "--trace", dir)
	require.Equal(t, tool.StatusIncomplete, status)
	require.Contains(t, stderr, "is not empty")
	require.NotContains(t, stderr, "watched", "it is refused before the first dinner")
}

// The traces of the lock that is wrong on purpose have its own name, and replay. Together they
// show that the lock is wrong.
func TestTraceOfBroken(t *testing.T) {
	dir := t.TempDir()
	status, _, _ := invoke("demo", "--broken", "--nodes=3", "--deposits=50", "--trace", dir)
	require.Equal(t, tool.StatusFailed, status)
	status, stdout, stderr := invoke("trace", "replay", filepath.Join(dir, catalog.Broken.Name))
	require.Equal(t, tool.StatusFailed, status, stdout+stderr)
	require.Equal(t, 3, strings.Count(stdout, " under broken, "), stdout)
	require.Regexp(t, `\.trace:\d+: lock "account": N\d was granted fence `, stdout)
	require.NotContains(t, stdout, "together")
}

// Processes are killed for good and others join: the traces replay, and together they show that
// no two held a lock at a time. Without the records of exclusions they show a fault.
func TestTraceOfCrashes(t *testing.T) {
	dir := t.TempDir()
	status, _, stderr := invoke("demo", "--crash", "--nodes=3", "--kills=1", "--think=10ms", "--lease=1s", "--store=remote", "--trace", dir)
	require.Equal(t, tool.StatusOK, status, stderr)
	traces := filepath.Join(dir, "witnessed")
	status, stdout, stderr := invoke("trace", "replay", traces)
	require.Equal(t, tool.StatusOK, status, stdout+stderr)
	require.Equal(t, 4, strings.Count(stdout, "the same: "), stdout)
	require.Regexp(t, `together: [0-9,]+ grants of 21 locks, one after the other\n$`, stdout)
	status, stdout, stderr = invoke("trace", "draw", traces, "--lock=account")
	require.Equal(t, tool.StatusOK, status, stderr)
	require.Regexp(t, `<title>view \d+ of .*N\d excluded; `, stdout)

	files, err := filepath.Glob(filepath.Join(traces, "*.trace"))
	require.NoError(t, err)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		text = regexp.MustCompile(`(?m)^.*"do":"excluded".*\n`).ReplaceAll(text, nil)
		require.NoError(t, os.WriteFile(name, text, 0o600))
	}
	status, stdout, _ = invoke("trace", "replay", traces)
	require.Equal(t, tool.StatusFailed, status)
	require.Equal(t, 4, strings.Count(stdout, "the same: "), "each alone")
	require.Regexp(t, `\.trace:\d+: lock "account": N\d was granted fence \d+:\d+ in a view without N\d, which has fence \d+:\d+, and was not excluded`, stdout)
}

// The traces of a dinner replay.
func TestTraceOfPhilosophers(t *testing.T) {
	dir := t.TempDir()
	status, _, stderr := invoke("demo", "philosophers", "--meals=1", "--watch=100ms", "--detect=20ms", "--philosophers=3", "--trace", dir)
	require.Equal(t, tool.StatusOK, status, stderr)
	status, stdout, stderr := invoke("trace", "replay", dir+"/ricart")
	require.Equal(t, tool.StatusOK, status, stdout+stderr)
	require.Contains(t, stdout, "\ntogether: ")
}

func TestTraceOfSim(t *testing.T) {
	dir := t.TempDir()
	sim := []string{"sim", "--nodes=5", "--load=saturated,2", "--requests=20", "--trace", dir}
	status, _, stderr := invoke(sim...)
	require.Equal(t, tool.StatusOK, status, stderr)
	runs, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, runs, 2*len(catalog.All))
	for _, run := range runs {
		traces := filepath.Join(dir, run.Name())
		status, stdout, stderr := invoke("trace", "replay", traces)
		require.Equal(t, tool.StatusOK, status, stdout+stderr)
		require.Equal(t, 5, strings.Count(stdout, "the same: "), stdout)
		file := filepath.Join(dir, "picture.html")
		status, _, stderr = invoke("trace", "draw", traces, "-o", file)
		require.Equal(t, tool.StatusOK, status, stderr)
		require.Regexp(t, "^wrote "+regexp.QuoteMeta(file)+": [0-9,]+ events of 5 traces\n$", stderr)
	}
	page, err := os.ReadFile(filepath.Join(dir, "picture.html"))
	require.NoError(t, err)
	require.Contains(t, string(page), "holds the lock with fence 20")

	status, _, stderr = invoke(sim...)
	require.Equal(t, tool.StatusIncomplete, status)
	require.Contains(t, stderr, "is not empty")

	// The directory of the last run is checked before the first run.
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "ricart-5-saturated")))
	status, _, _ = invoke("sim", "--algorithm=ricart", "--nodes=5", "--load=saturated,2", "--requests=20", "--trace", dir)
	require.Equal(t, tool.StatusIncomplete, status)
	files, err := os.ReadDir(filepath.Join(dir, "ricart-5-saturated"))
	require.NoError(t, err)
	require.Empty(t, files)
}
