package check

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
)

type grammar struct {
	Check Cmd `cmd:""`
}

func TestMain(m *testing.M) { tooltest.Main(m, new(grammar)) }

func invoke(args ...string) (status int, stdout, stderr string) {
	return tooltest.Run(new(grammar), "", args...)
}

// Every algorithm is clean in the smallest group, and the verdict says what was
// proved.
func TestCheckAll(t *testing.T) {
	status, stdout, stderr := invoke("check", "--cancel", "--network=fifo", "--requests=1")
	require.Equal(t, tool.StatusOK, status, stderr)
	require.Empty(t, stderr)
	for _, a := range catalog.All {
		require.Regexp(t, `(?m)^`+a.Name+` +2 nodes x 1 request with cancel, fifo: clean\. [0-9,]+ states, depth \d+`, stdout)
	}
	require.Contains(t, stdout, "In every run of these groups no two nodes met in the critical section")
}

// If the network breaks an algorithm's assumptions, the check fails and prints a shortest run.
func TestCheckViolation(t *testing.T) {
	for _, c := range []struct{ line, verdict, script string }{
		{
			"check --algorithm=lamport --network=unordered", "2 nodes x 2 requests, unordered: violation.",
			"# mutual exclusion: 1 and 2 both hold the lock\ngroup 1 2\nnetwork unordered\n\nrequest 1\n",
		},
		{
			"check --algorithm=ricart --requests=1 --network=lossy", "2 nodes x 1 request, fifo, 1 loss: violation.",
			"violation: deadlock: 1 waits, no node holds the lock and no message is in flight\n",
		},
	} {
		t.Run(c.line, func(t *testing.T) {
			status, stdout, stderr := invoke(strings.Fields(c.line)...)
			require.Equal(t, tool.StatusFailed, status)
			require.Empty(t, stderr)
			require.Contains(t, stdout, c.verdict)
			require.Contains(t, stdout, c.script)
			require.NotContains(t, stdout, "In every run")
		})
	}
}

// What the library's algorithms assume excuses no algorithm of the author's.
func TestCheckMine(t *testing.T) {
	library := catalog.All
	defer func() { catalog.All = library }()
	catalog.Add(lamport.New)
	const excuse = "the stream below them provides that"
	for _, tt := range []struct{ line, says string }{
		{"--network=unordered", "1 of 1 failed: mine. Unless the paper of mine excludes such a network, a rule of it is missing or wrong."},
		{"--network=unordered --algorithm=all", "4 of 10 failed: mine, lamport, lamport-omit, ring. lamport, lamport-omit, ring need messages in order; " + excuse},
		{"--network=lossy", "assume that no message is lost"},
	} {
		status, stdout, stderr := invoke(strings.Fields("check --requests=1 --algorithm=mine " + tt.line)...)
		require.Equal(t, tool.StatusFailed, status, stderr)
		require.Contains(t, strings.Join(strings.Fields(stdout), " "), tt.says)
	}
	for _, network := range []string{"unordered", "duplicating", "unordered, 1 duplicate", "fifo"} {
		catalog.All[0].New = ring.New // which fails on all of them but fifo
		_, stdout, _ := invoke("check", "--algorithm=mine", "--requests=1", "--network", network)
		require.NotContains(t, strings.Join(strings.Fields(stdout), " "), excuse)
		require.Equal(t, network != "fifo", strings.Contains(stdout, "Unless the paper of mine"))
	}
}

// A machine that does not share is told which methods it lacks.
func TestCheckLacks(t *testing.T) {
	library := catalog.All
	defer func() { catalog.All = library }()
	type half struct {
		dmutex.Machine
		shares
	}
	catalog.Add(func(s dmutex.Start) (dmutex.Machine, error) {
		m, err := ricart.New(s)
		return half{Machine: m}, err
	})
	status, _, stderr := invoke("check", "--algorithm=mine", "--shares=1")
	require.Equal(t, tool.StatusUsage, status)
	require.Contains(t, stderr, "--shares: mine lets one node in at a time: for a dmutex.Sharer it lacks ExcludesAlone(dmutex.NodeID) bool, Sharers([]dmutex.NodeID) []dmutex.NodeID and Wanted() bool\n")
	status, _, stderr = invoke("check", "--algorithm=maekawa", "--shares=1")
	require.Equal(t, tool.StatusUsage, status)
	require.Contains(t, stderr, "--shares: maekawa lets one node in at a time (it is no dmutex.Sharer): use central, lamport or ricart\n")
}

// The counterexample is written as a script if the output's name ends in .txt.
func TestCheckWritesScript(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.txt")
	status, stdout, stderr := invoke("check", "--algorithm=lamport", "--network=unordered", "--requests=1", "-o", file)
	require.Equal(t, tool.StatusFailed, status)
	require.Contains(t, stderr, "wrote "+file+": lamport, unordered: mutual exclusion: 1 and 2 both hold the lock\n")
	script, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, stdout, "\nlamport:\n\n"+string(script))
	again, err := dmutextest.RunScript(lamport.New, string(script))
	require.NoError(t, err)
	require.Equal(t, string(script), again)
}

// Some methods of a dmutex.Sharer, and one of another signature.
type shares struct{}

func (shares) Share() ([]dmutex.Message, error) { return nil, nil }
func (shares) Shared() bool                     { return false }
func (shares) Wanted() int                      { return 0 }

// results is what --json prints of locks.
type results struct {
	OK     bool   `json:"ok"`
	Checks []lock `json:"checks"`
}

func TestCheckJSON(t *testing.T) {
	status, stdout, stderr := invoke("check", "--json", "--algorithm=ricart", "--nodes=3", "--requests=1", "--network=unordered, 1 duplicate")
	require.Equal(t, tool.StatusOK, status, stderr)
	var got results
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.True(t, got.OK)
	require.Len(t, got.Checks, 1)
	r := got.Checks[0]
	require.Positive(t, r.Seconds)
	require.Positive(t, r.States)
	r.Seconds, r.States, r.Steps, r.Depth = 0, 0, 0, 0
	require.Equal(t, lock{
		Algorithm: "ricart", Nodes: 3, Requests: 1, Network: "unordered, 1 duplicate", finding: finding{Verdict: clean},
		Channel: r.Channel, Least: 12, Greatest: r.Greatest, Dense: true,
	}, r)

	status, stdout, _ = invoke("check", "--json", "--algorithm=lamport", "--network=unordered")
	require.Equal(t, tool.StatusFailed, status)
	got = results{}
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.False(t, got.OK)
	require.Equal(t, wrong, got.Checks[0].Verdict)
	v := got.Checks[0].Violation
	require.Equal(t, "mutual exclusion", v.Kind)
	require.Equal(t, "1 and 2 both hold the lock", v.Why)
	a, _ := catalog.Find("lamport")
	again, err := dmutextest.RunScript(a.New, v.Script)
	require.NoError(t, err)
	require.Equal(t, v.Script, again)
	require.Contains(t, stdout, "1->2 REQUEST", "the sign > is not escaped")
}

// A summary below the scripts names the algorithms that failed, and the assumptions that the
// network breaks.
func TestCheckClosing(t *testing.T) {
	for _, c := range []struct{ network, closing string }{
		{"unordered", "3 of 9 failed: lamport, lamport-omit, ring. They need messages in order; the stream below them provides that."},
		{"duplicating", "1 of 9 failed: ring. They need each message only once; the stream below them provides that."},
		{"unordered, 1 duplicate", "They need messages in order, and each only once;"},
		{"lossy", "The machines assume that no message is lost; the stream below them (package internal/stream) repairs losses."},
		{"fifo, channel 1", "suzukikasami, ring."},
	} {
		status, stdout, stderr := invoke("check", "--requests=1", "--network", c.network)
		require.Equal(t, tool.StatusFailed, status, c.network)
		require.Empty(t, stderr)
		require.Contains(t, strings.Join(strings.Fields(stdout), " "), c.closing, "but for the line breaks")
		require.NotRegexp(t, `(?s)\ngroup.*: clean\.`, stdout, "scripts come after all verdicts")
	}
}

// Ctrl-C ends an exploration, which reports what it has seen so far.
func TestCheckInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := Cmd{Nodes: 4, Locks: lockOptions{Requests: 9, Algorithm: catalog.All}}
	all := c.Locks.subjects(&c)
	err := c.explore(ctx, &tool.Console{Out: io.Discard, Err: io.Discard}, all, c.Locks.closing)
	require.ErrorContains(t, err, "interrupted: central stopped after ")
	require.Equal(t, stopped, all[0].found().Verdict)
	require.Positive(t, all[0].found().States)
	require.Less(t, all[0].found().States, 100)
	require.Empty(t, all[1].found().Verdict)
}

// A check that is stopped early proves nothing, and says so.
func TestCheckStopped(t *testing.T) {
	status, stdout, stderr := invoke("check", "--algorithm=ricart", "--nodes=3", "--max-states=100")
	require.Equal(t, tool.StatusIncomplete, status)
	require.Contains(t, stdout, "fifo: stopped. ")
	require.NotContains(t, stdout, "In every run")
	require.Equal(t, "dmutex: ricart: stopped after 100 states with nothing wrong; --max-states=0 goes to the end\n", stderr)

	status, stdout, stderr = invoke("check", "--nodes=3", "--requests=1", "--max-states=90")
	require.Equal(t, tool.StatusIncomplete, status, stdout)
	require.Contains(t, stderr, "dmutex: "+catalog.Names()+": stopped after 90 states", stdout)

	status, stdout, _ = invoke("check", "--algorithm=ricart", "--nodes=3", "--max-states=100", "--json")
	require.Equal(t, tool.StatusIncomplete, status)
	require.Contains(t, stdout, `"ok": false`)
	require.Contains(t, stdout, `"verdict": "stopped"`)
}

func TestCheckQuorums(t *testing.T) {
	for _, quorums := range []string{"majority", "{1,2},{1,3},{2,3}"} {
		status, stdout, stderr := invoke("check", "--algorithm=maekawa", "--nodes=3", "--requests=1", "--quorums="+quorums)
		require.Equal(t, tool.StatusOK, status, stderr)
		require.Contains(t, stdout, "clean")
		require.Contains(t, stdout, "  node 1 asks {1,2}\n  node 2 asks {2,3}\n  node 3 asks {1,3}\n")
	}
	status, stdout, stderr := invoke("check", "--algorithm=maekawa", "--nodes=3", "--requests=1", "--quorums={2}", "--json")
	require.Equal(t, tool.StatusOK, status, stderr)
	require.Contains(t, stdout, `"1": "{2}"`, "a node that is in no quorum asks one all the same")
}

func TestCheckUsage(t *testing.T) {
	tooltest.Refused(t, invoke, [][2]string{
		{"check --algorithm=peterson", "choose all or one of central, "},
		{"check --nodes=0", "choose 1 to 9 nodes"},
		{"check --nodes=10", "choose 1 to 9 nodes"},
		{"check --requests=0", "choose 1 to 255"},
		{"check --requests=256", "choose 1 to 255"},
		{"check --max-states=-1", "choose 0 or more"},
		{"check --network=carrier-pigeon", "choose fifo, unordered, duplicating or lossy"},
		{"check --quorums=majority", "--quorums needs --algorithm=maekawa"},
		{"check --algorithm=maekawa --quorums={1},{2}", "--quorums={1},{2}: "},
		{"check --algorithm=maekawa --quorums={1,x}", "the nodes are numbers; write {1,2},{1,3},{2,3}"},
		{"check --algorithm=maekawa --quorums={1,3}", "there is no node 3 among 2"},
		{"check --algorithm=maekawa --nodes=4 --quorums=fpp", "--quorums=fpp: "},
	})
}

func TestCheckSoFar(t *testing.T) {
	text := soFar(dmutextest.Report{States: 1234567, Depth: 9}, 2*time.Second)
	require.Equal(t, "1,234,567 states, depth 9, 617,283 states/s", text)

}

// With --shares the algorithms that share are checked, and a single one must share.
func TestCheckShares(t *testing.T) {
	status, stdout, stderr := invoke("check", "--requests=1", "--shares=1")
	require.Equal(t, tool.StatusOK, status, stderr)
	require.Regexp(t, `(?m)^central +2 nodes x 1 request and 1 to share, fifo: clean\. `, stdout)
	require.NotContains(t, stdout, "maekawa")
	require.Contains(t, stdout, "unless both shared it")
	status, _, stderr = invoke("check", "--algorithm=maekawa", "--shares=1")
	require.Equal(t, tool.StatusUsage, status)
	require.Contains(t, stderr, "maekawa lets one node in at a time")
}

// The counterexample can be seen.
func TestCheckDraws(t *testing.T) {
	for _, name := range []string{"run.svg", "run.html"} {
		file := filepath.Join(t.TempDir(), name)
		status, stdout, stderr := invoke("check", "--requests=1", "--network=unordered", "-o", file)
		require.Equal(t, tool.StatusFailed, status)
		require.Contains(t, stdout, "3 of 9 failed")
		require.Equal(t, "wrote "+file+": lamport, unordered: mutual exclusion: 1 and 2 both hold the lock\n", stderr)
		picture, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(picture), "lamport, unordered: mutual exclusion: 1 and 2 both hold the lock")
		require.Equal(t, 2, strings.Count(string(picture), "holds the lock with fence 1, from"))
	}
	file := filepath.Join(t.TempDir(), "run.svg")
	status, _, stderr := invoke("check", "--algorithm=ricart", "--requests=1", "-o", file)
	require.Equal(t, tool.StatusOK, status)
	require.Empty(t, stderr)
	require.NoFileExists(t, file)
	status, _, stderr = invoke("check", "--algorithm=ricart", "--requests=1", "--network=lossy", "-o", filepath.Join(file, "none.svg"))
	require.Equal(t, tool.StatusIncomplete, status)
	require.Contains(t, stderr, "none.svg: no such file")
	tooltest.Refused(t, invoke, [][2]string{
		{"check -o run.png", "must end in .svg, .html or .txt"},
		{"check --election=bully -o run.svg", "--output is about locks"},
	})
}
