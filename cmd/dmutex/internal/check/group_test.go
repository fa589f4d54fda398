package check

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
	"github.com/dmutex/dmutex/internal/goldentest"
)

var seconds = regexp.MustCompile(`in [0-9.]+ s`)

// The default group of each check is clean, and so are groups within a machine's assumptions.
// The numbers of states are those of the machines' own tests.
func TestCheckSubject(t *testing.T) {
	for _, c := range []struct{ line, words string }{
		{"--election=bully", "bully          3 nodes, 1 crash, 1 recovery: clean. 2,244 states, 24 of them at rest"},
		{"--election=ring", "ring           3 nodes, 1 crash, 1 recovery: clean. 1,233 states, 8 of them at rest"},
		{"--election=chang-roberts", "chang-roberts  3 nodes, 1 crash, 1 recovery: clean. 1,227 states, 11 of them at rest"},
		{"--election=bully --forgetful", "3 nodes, 1 crash, 1 recovery, forgetful: clean. 4,119 states"},
		{"--election=bully --wrong=1 --majority", "3 nodes, 1 wrong suspicion, majority rule: clean. 495 states"},
		{"--election=bully --starts=2", "3 nodes, 2 starts: clean. 927 states"},
		{"--election=chang-roberts --cuts=1 --majority", "1 cut, majority rule: clean. 17,476 states"},
		{"--election=ring --nodes=4 --cuts=1 --majority --prompt", "4 nodes, 1 cut, prompt, majority rule: clean. 4,089 states"},
		{"--election=ring --crashes=1 --recoveries=1 --early=1", "1 crash, 1 recovery, 1 early timeout: clean. 12,334 states"},
		{"--election=ring --crashes=0", "3 nodes: clean. 1 state, 1 of them at rest"},
		{"--deadlock=and", "AND model      3 nodes x 1 wait: clean. 16,558 states, 1,061 of them with a deadlock declared"},
		{"--deadlock=and --nodes=2 --waits=2", "2 nodes x 2 waits: clean. 1,182 states"},
		{"--deadlock=chase --nodes=2 --withdraw=1", "chase          2 nodes, each takes 2 locks, 1 withdrawn: clean. "},
		{"--deadlock=or --at-once", "OR model       3 nodes x 1 wait, looking at once: clean. 18,954 states"},
	} {
		t.Run(c.line, func(t *testing.T) {
			status, stdout, stderr := invoke(append([]string{"check"}, strings.Fields(c.line)...)...)
			require.Equal(t, tool.StatusOK, status, stdout)
			require.Empty(t, stderr)
			require.Contains(t, stdout, c.words)
			require.Contains(t, stdout, "\n\nIn every run of this group ")
		})
	}
}

// If an assumption is broken, the check prints the shortest run to a violation.
func TestCheckSubjectViolation(t *testing.T) {
	for name, line := range map[string]string{
		"bully-cuts":            "--election=bully --cuts=1",
		"ring-cuts":             "--election=ring --cuts=1",
		"chang-roberts-cuts":    "--election=chang-roberts --cuts=1",
		"bully-prompt-recovery": "--election=bully --prompt",
		"and-withdraw":          "--deadlock=and --withdraw=1",
		"or-withdraw":           "--deadlock=or --withdraw=1",
		"and-unordered":         "--deadlock=and --unordered",
	} {
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := invoke(append([]string{"check"}, strings.Fields(line)...)...)
			require.Equal(t, tool.StatusFailed, status, stdout)
			require.Empty(t, stderr)
			goldentest.Compare(t, "testdata/check-"+name+".txt", seconds.ReplaceAllString(stdout, "in T s"))
		})
	}
}

func TestCheckSubjectJSON(t *testing.T) {
	type result struct {
		OK     bool    `json:"ok"`
		Checks []group `json:"checks"`
	}
	ask := func(status int, args ...string) group {
		got, stdout, stderr := invoke(append([]string{"check", "--json"}, args...)...)
		require.Equal(t, status, got, stderr)
		var r result
		tooltest.Decode(t, stdout, stderr, &r)
		require.Equal(t, status == tool.StatusOK, r.OK)
		require.Len(t, r.Checks, 1)
		r.Checks[0].Seconds = 0
		return r.Checks[0]
	}
	x := ask(tool.StatusOK, "--election=ring", "--majority", "--crashes=1")
	require.Equal(t, true, x.Options.(map[string]any)["majority"])
	require.EqualValues(t, 1, x.Options.(map[string]any)["crashes"])
	x.Options = nil
	require.Equal(t, group{Election: "ring", Nodes: 3, finding: finding{Verdict: clean, States: x.States}, Rests: x.Rests}, x)
	require.Positive(t, x.Rests)

	x = ask(tool.StatusFailed, "--election=ring", "--cuts=1")
	require.Equal(t, wrong, x.Verdict)
	require.Equal(t, "two leaders", x.Violation.Kind)
	require.Equal(t, "two leaders: 2 in epoch 7 and 3 in epoch 5", x.Violation.Why)
	require.Contains(t, x.Violation.Script, "cut off: 2\n")

	x = ask(tool.StatusFailed, "--deadlock=and", "--withdraw=1")
	require.Equal(t, "phantom", x.Violation.Kind)
	require.Equal(t, "and", x.Deadlock)
}

// An exploration that is stopped early proves nothing, and says so.
func TestCheckSubjectStopped(t *testing.T) {
	for line, name := range map[string]string{"--election=bully": "bully", "--deadlock=or": "OR model"} {
		status, stdout, stderr := invoke("check", "--max-states=500", line)
		require.Equal(t, tool.StatusIncomplete, status)
		require.Contains(t, stdout, ": stopped. ")
		require.NotContains(t, stdout, "In every run")
		require.Regexp(t, "^dmutex: "+name+`: stopped after 500 states with nothing wrong; --max-states=0 goes to the end\n$`, stderr)
	}
}

// Ctrl-C ends an exploration.
func TestCheckSubjectInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []Cmd{
		{Election: "bully", Nodes: 5, Elections: electionOptions{Crashes: 4}},
		{Deadlock: "or", Nodes: 5, Deadlocks: deadlockOptions{Waits: 9, Width: 1}},
	} {
		s := c.Elections.subject(&c)
		if c.Deadlock != "" {
			s = c.Deadlocks.subject(&c)
		}
		var out bytes.Buffer
		err := c.explore(ctx, &tool.Console{Out: &out, Err: io.Discard}, []subject{s}, closingOne)
		require.ErrorContains(t, err, "interrupted: "+s.title()+" stopped after ")
		require.Contains(t, out.String(), ": stopped. ")
	}
}

func TestCheckSubjectUsage(t *testing.T) {
	tooltest.Refused(t, invoke, [][2]string{
		{"check --election=paxos", "choose bully, ring or chang-roberts"},
		{"check --election=", "--election is empty: give --election=ALGORITHM, or leave it out"},
		{"check --deadlock=xor", `choose "and", "or" or "chase"`},
		{"check --deadlock=chase --width=2", "--width is about the papers' models"},
		{"check --election=bully --deadlock=and", "--election and --deadlock can't be used together"},
		{"check --cuts=1", "--cuts needs --election"},
		{"check --waits=1", "--waits needs --deadlock"},
		{"check --election=bully --requests=2", "--requests is about locks: leave out either it or --election"},
		{"check --election=bully --withdraw=1", "--withdraw needs --deadlock"},
		{"check --deadlock=or --majority", "--majority needs --election"},
		{"check --deadlock=or --network=fifo", "--network is about locks: leave out either it or --deadlock"},
		{"check --election=bully --nodes=10", "choose 1 to 9 nodes"},
		{"check --election=bully --max-states=-1", "choose 0 or more"},
		{"check --election=bully --crashes=10", "--crashes=10: choose 0 to 9"},
		{"check --election=bully --cuts=-1", "--cuts=-1: choose 0 to 9"},
		{"check --election=bully --crashes=1 --recoveries=2", "choose --crashes=2 or more"},
		{"check --election=bully --cuts=1 --forgetful", "choose --crashes=1 --recoveries=1 or more"},
		{"check --election=bully --prompt --wrong=1", "leave --wrong and --early out"},
		{"check --deadlock=and --nodes=1", "choose 2 to 9 nodes"},
		{"check --deadlock=and --waits=0", "--waits=0: choose 1 to 9"},
		{"check --deadlock=and --width=3", "each of 3 nodes can wait for 1 to 2 others"},
		{"check --deadlock=and --withdraw=10", "--withdraw=10: choose 0 to 9"},
	})
}
