package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/nats"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// philosophers runs the demo with --json, and requires that standard output is
// exactly one JSON value.
func philosophers(t *testing.T, args ...string) (status int, r dinners, stderr string) {
	t.Helper()
	status, stdout, stderr := invoke(append([]string{"demo", "philosophers", "--json"}, args...)...)
	tooltest.Decode(t, stdout, stderr, &r)
	return status, r, stderr
}

// Without detection no philosopher eats. With detection all of them eat, and each meal
// has one victim. This holds over each link, and under every algorithm.
func TestPhilosophers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		n    int
	}{
		{"tcp", []string{"--meals=4", "--watch=500ms"}, 5},
		{"nats", []string{"--meals=4", "--watch=500ms", "--link=nats"}, 5},
		{"all", []string{"--meals=4", "--watch=100ms", "--algorithm=all", "--philosophers=3"}, 3},
		{"two", []string{"--meals=4", "--watch=100ms", "--algorithm=central", "--philosophers=2"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			status, r, stderr := philosophers(t, append(c.args, "--detect=20ms")...)
			require.Equal(t, tool.StatusOK, status, stderr)
			require.True(t, r.OK)
			if c.name == "all" {
				require.Len(t, r.Runs, len(catalog.All))
			}
			for _, run := range r.Runs {
				require.Equal(t, make([]int, c.n), run.Without.Meals)
				require.Equal(t, slices.Repeat([]int{4}, c.n), run.With.Meals)
				require.Zero(t, run.With.Overlaps)
				require.Zero(t, run.With.Busy)
				require.Len(t, run.With.Cycles, 4)
			}
		})
	}
}

// alone returns a worker with a node that is the only member of its group.
func alone(t *testing.T) *worker {
	t.Helper()
	network, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	n, err := node.OpenStrict(t.Context(), 1, []dmutex.NodeID{1}, network.Link(1), node.Config{Algorithm: ricart.New})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close(context.Background())) })
	return &worker{node: n, task: &task{Self: 1, Nodes: 2, Think: time.Millisecond, Dir: t.TempDir()}}
}

// A fork that is still held at the end is counted.
func TestWorkerCountsBusy(t *testing.T) {
	w := alone(t)
	require.Zero(t, w.counts().Busy)
	held, err := w.node.Mutex(fork(1)).Acquire(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, w.counts().Busy)
	require.NoError(t, held.Release())
	require.Zero(t, w.counts().Busy)
}

// A philosopher notices that another one has a fork, no matter what the lock says. It puts
// back the forks that it took, and leaves the other's fork alone.
func TestPhilosopherOverlap(t *testing.T) {
	p := &philosopher{worker: alone(t), badge: filepath.Join(t.TempDir(), "badge")}
	require.NoError(t, os.WriteFile(p.badge, nil, 0o600))
	another := filepath.Join(p.task.Dir, "2")
	require.NoError(t, os.WriteFile(another, nil, 0o600))
	require.NoError(t, p.try(t.Context(), p.node.Txn(), p.think))
	require.Equal(t, [2]int{1, 1}, [2]int{p.meals, p.overlaps})
	require.FileExists(t, another)
	require.NoError(t, os.Remove(another))
	require.NoError(t, p.try(t.Context(), p.node.Txn(), p.think))
	require.Equal(t, [2]int{2, 1}, [2]int{p.meals, p.overlaps})
	left, err := os.ReadDir(p.task.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Zero(t, p.counts().Busy)
}

// onWrite is a writer that calls a function.
type onWrite func()

func (act onWrite) Write(b []byte) (int, error) {
	act()
	return len(b), nil
}

// A lock that is wrong on purpose is caught, by evidence from outside the lock.
func TestPhilosophersBroken(t *testing.T) {
	c := Philosophers{Philosophers: 3, Meals: 1, Think: time.Millisecond, Watch: time.Minute}
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	tool.TellEvery = 0
	defer func() { tool.TellEvery = time.Hour }()
	s := &stage{
		flags:    &flags{Link: "tcp", Timeout: 30 * time.Second},
		dir:      t.TempDir(),
		progress: tool.NewProgress(onWrite(enough), 3, "meals"),
	}
	e, err := c.dine(ctx, catalog.Broken, s, 0)
	require.ErrorIs(t, err, context.Canceled) // canceled at the first meal
	r := dinners{Philosophers: 3, Runs: []tables{{Algorithm: catalog.Broken.Name, Without: e}}}
	r.judge(nil)
	require.False(t, r.OK)
	require.Regexp(t, "without detection [1-3] meals? were eaten", r.Runs[0].Faults)
}

// around is the cycle around a table.
func around(n, victim dmutex.NodeID) (c cycle) {
	for i := range n {
		waiter := (victim-1+i)%n + 1
		c = append(c, edge{waiter, fork(waiter%n + 1), waiter%n + 1})
	}
	return c
}

// Faults are reported, and fail the demo.
func TestPhilosophersFaults(t *testing.T) {
	two := around(2, 1)
	right := dinner{Meals: []int{2, 2}, Cycles: []cycle{two, around(2, 2)}}
	require.Empty(t, right.faults(2))
	for _, c := range []struct {
		spoil func(e *dinner)
		words string
	}{
		{func(e *dinner) { e.Meals = []int{2, 1} }, "philosopher 2 ate 1 times instead of 2"},
		{func(e *dinner) { e.Cycles = []cycle{two, two, two} }, "3 cycles were found, each with a victim, instead of one at each of 2 meals"},
		{func(e *dinner) { e.Cycles = []cycle{two, two[:1]} }, "cycle 2 does not go around the table: 1 -fork/2-> 2"},
		{func(e *dinner) { e.Cycles = []cycle{two, {two[0], two[0]}} }, "cycle 2 does not go around the table: 1 -fork/2-> 2 -fork/2-> 2"},
		{func(e *dinner) { e.Cycles = []cycle{two, nil} }, "cycle 2 does not go around the table"},
		{func(e *dinner) { e.Overlaps = 1 }, "1 forks were in two hands"},
		{func(e *dinner) { e.Busy = 1 }, "1 forks were not given back"},
	} {
		e := right
		c.spoil(&e)
		require.Len(t, e.faults(2), 1)
		require.Contains(t, e.faults(2)[0], c.words)
		r := dinners{Meals: 2, Runs: []tables{{With: e}}}
		r.judge(nil)
		require.False(t, r.OK)
		require.Contains(t, strings.ReplaceAll(r.closing(), "\n", " "), "FAILED under : "+c.words)
	}
}

// The report as people see it.
func TestPhilosophersReport(t *testing.T) {
	r := dinners{Link: "nats", Philosophers: 5, Meals: 2, Watched: 2 * time.Second}
	for _, name := range []string{"central", "suzukikasami"} {
		e := dinner{Meals: []int{2, 2, 2, 2, 2}, Took: 1234 * time.Millisecond}
		e.Cycles = []cycle{around(5, 5), around(5, 4)}
		r.Runs = append(r.Runs, tables{Algorithm: name, Without: dinner{Meals: make([]int, 5)}, With: e})
	}
	r.judge(nil)
	require.True(t, r.OK)
	var b strings.Builder
	r.writeText(&b)
	goldentest.Compare(t, "testdata/philosophers.txt", b.String())

	r.judge(errors.New("philosopher 3 died"))
	require.False(t, r.OK)
	require.Equal(t, "philosopher 3 died", r.Error)
}

// A dinner that cannot be completed is reported as such.
func TestPhilosophersIncomplete(t *testing.T) {
	url, stop, err := nats.Broker.Serve("")
	require.NoError(t, err)
	stop()
	status, r, stderr := philosophers(t, "--link=nats", "--nats-url", url, "--meals=1")
	require.Equal(t, tool.StatusIncomplete, status)
	require.Contains(t, stderr, "nats server at "+url)
	require.False(t, r.OK)
	require.Empty(t, r.Runs)

	t.Setenv(sabotage, "leave early")
	status, r, stderr = philosophers(t, "--philosophers=3", "--meals=1")
	require.Equal(t, tool.StatusIncomplete, status)
	require.Contains(t, stderr, "ricart: without detection: philosopher 2 left before the end")
	require.False(t, r.OK)
}

func TestPhilosophersUsage(t *testing.T) {
	var lines [][2]string
	for _, c := range [][2]string{
		{"--philosophers=1", "choose 2 to 64"},
		{"--philosophers=65", "choose 2 to 64"},
		{"--meals=0", "choose 1 or more"},
		{"--algorithm=peterson", "choose all or one of central, "},
		{"--think=0s", "choose 100µs or more"},
		{"--detect=0s", "choose 1ms or more"},
		{"--watch=1ms", "choose 100ms or more"},
		{"--timeout=50ms", "--timeout=50ms is not longer than"},
		{"--link=udp", `must be one of "tcp","nats"`},
		{"--nats-url=nats://127.0.0.1:4222", "--nats-url needs --link=nats"},
		{"--deposits=3", "unknown flag --deposits"},
	} {
		lines = append(lines, [2]string{fmt.Sprint("demo philosophers ", c[0]), c[1]})
	}
	tooltest.Refused(t, invoke, lines)
}
