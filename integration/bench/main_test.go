package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The processes that a test starts are this program.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == serveArg {
		main()
		return
	}
	// Under the race detector each of these processes would sleep for a second before it exits.
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// The program needs no server but its own. It reports every target, and names the
// absent systems.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"--servers=false", "--rounds", "1", "--time", "2ms"}, &out, io.Discard))
	for _, target := range targets {
		require.Contains(t, out.String(), "| "+target.figure+" | "+target.system+" | "+target.String()+" |")
	}
	for _, c := range cells() {
		require.Contains(t, out.String(), c.system)
	}
	require.Contains(t, out.String(), "Absent: Redis, redislock; Redis, redsync; etcd; PostgreSQL.")
}

func TestRunRefuses(t *testing.T) {
	require.NoError(t, run(t.Context(), []string{"--help"}, io.Discard, io.Discard))
	if !rivals {
		require.ErrorContains(t, run(t.Context(), []string{"--redis", "127.0.0.1:1"}, io.Discard, io.Discard), "-tags rivals")
	}
	for _, args := range [][]string{{"--rounds", "0"}, {"--time", "0"}, {"--what"}, {"more"}} {
		require.Error(t, run(t.Context(), args, io.Discard, io.Discard), args)
	}
	require.ErrorContains(t, run(t.Context(), []string{"--only", "nothing"}, io.Discard, io.Discard), "\n  dmutex central, many")
}

// A ratio compares values of the same round. A verdict says by how much a target is missed.
func TestTargets(t *testing.T) {
	r := results{
		figAcquire: {"a": {2, 20, 30}, "b": {1, 10, 10}},
		figGrants:  {"a": {50}, "b": {100}},
	}
	at := target{figAcquire, "a", figAcquire, "b", 1.6, false, nil}
	ratio, ok := at.ratio(r)
	require.True(t, ok)
	require.InDelta(t, 2, ratio, 1e-9)
	require.Equal(t, "missed by 25%", at.verdict(ratio))
	require.Equal(t, "met", target{factor: 2}.verdict(ratio))
	require.Equal(t, "missed by 1%", target{factor: 1.999}.verdict(ratio))

	rate := target{figGrants, "a", figGrants, "b", 0.8, true, nil}
	ratio, _ = rate.ratio(r)
	require.InDelta(t, 0.5, ratio, 1e-9)
	require.Equal(t, "missed by 38%", rate.verdict(ratio))

	hops := results{
		figCycle:   {"a": {95, 100}, "b": {10, 10}},
		figAcquire: {"relay": {90, 90}, "wire": {20, 10}},
	}
	for hop, want := range map[string]float64{"relay": 0.975, "relay - wire": (95.0/80 + 100.0/90) / 2} {
		at := target{figCycle, "a", figCycle, "b", 1, false, strings.Split(hop, " - ")}
		require.Equal(t, "at most 1 x (b + "+hop+")", at.String())
		ratio, ok := at.ratio(hops)
		require.True(t, ok)
		require.InDelta(t, want, ratio, 1e-9)
	}

	_, ok = target{figMany, "a", figMany, "b", 1, true, nil}.ratio(r)
	require.False(t, ok)
}
