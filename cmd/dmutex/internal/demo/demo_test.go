package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/nats"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
	"github.com/dmutex/dmutex/internal/child"
)

// sabotage is the environment variable that tells process 2 how to misbehave.
const sabotage = "DMUTEX_TEST_SABOTAGE"

type grammar struct {
	Demo Cmd `cmd:""`
}

func TestMain(m *testing.M) {
	if how := os.Getenv(sabotage); how != "" && len(os.Args) > 2 && slices.Contains([]string{"teller", "philosopher"}, os.Args[2]) {
		os.Exit(sabotaged(how))
	}
	tooltest.Main(m, new(grammar))
}

// sabotaged runs a process of a demo. Process 2 misbehaves in the runs with a lock.
func sabotaged(how string) int {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return 99
	}
	var first order
	if err := json.Unmarshal(line, &first); err != nil {
		return 99
	}
	var out io.Writer = os.Stdout
	if first.Task.Self == 2 && first.Task.Algorithm != catalog.NoLock.Name {
		switch how {
		case "die at once":
			fmt.Fprintln(os.Stderr, "the vault is on fire")
			return 7
		case "die at work":
			out = workWriter{func() {
				fmt.Fprintln(os.Stderr, "the vault is on fire")
				os.Exit(7)
			}}
		case "stop at work":
			out = workWriter{func() { select {} }}
		case "leave early":
			return 0
		case "talk nonsense":
			fmt.Println("good morning")
			io.Copy(io.Discard, in)
			return 0
		}
	}
	tool.NATS = nats.Broker
	return tool.Main(new(grammar), os.Args[1:], &tool.Console{In: io.MultiReader(bytes.NewReader(line), in), Out: out, Err: os.Stderr})
}

// workWriter misbehaves at the first report of progress, in the middle of the
// deposits.
type workWriter struct{ act func() }

func (w workWriter) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(wordProgress)) {
		w.act()
	}
	return os.Stdout.Write(b)
}

// invoke runs a command line in this process.
func invoke(args ...string) (status int, stdout, stderr string) {
	return tooltest.Run(new(grammar), "", args...)
}

// demo runs the demo with --json, and requires that standard output is one
// JSON value and nothing else.
func demo(t *testing.T, args ...string) (status int, r result, stderr string) {
	t.Helper()
	return demoIn(t, 0, args...)
}

// demoIn is demo with a spell, the time between two events of a run with kills.
func demoIn(t *testing.T, spell time.Duration, args ...string) (status int, r result, stderr string) {
	t.Helper()
	var g grammar
	g.Demo.Tellers.spell = spell
	status, stdout, stderr := tooltest.Run(&g, "", append([]string{"demo", "--json"}, args...)...)
	tooltest.Decode(t, stdout, stderr, &r)
	return status, r, stderr
}

// Every algorithm runs in real processes over a real network. The messages per
// entry are those of the formula, and no money is lost.
func TestDemo(t *testing.T) {
	t.Parallel()
	for _, link := range []string{"tcp", "nats"} {
		t.Run(link, func(t *testing.T) {
			if link == "nats" && testing.Short() {
				t.Skip("TestDemoNATSURL is shorter")
			}
			t.Parallel()
			status, r, stderr := demo(t, "--link", link, "--nodes=3", "--deposits=25", "--kills=0")
			require.Equal(t, tool.StatusOK, status, stderr)
			require.True(t, r.OK)
			require.Len(t, r.Runs, 1+len(catalog.All))
			require.Empty(t, r.KillRuns)
			require.True(t, slices.ContainsFunc(r.Runs, func(o outcome) bool { return o.HandOff != nil }), "sometimes a teller waits")
			for i, o := range r.Runs {
				require.Equal(t, 75, o.Entries)
				require.EqualValues(t, 7500, o.Expected)
				if i == 0 {
					require.False(t, o.Locked)
					require.Less(t, o.Actual, o.Expected, "with no lock money is lost")
					require.Positive(t, o.Overlaps, "with no lock tellers overlap")
					continue
				}
				require.Equal(t, catalog.All[i-1].Name, o.Algorithm)
				requireRight(t, o)
			}
		})
	}
}

func requireRight(t *testing.T, o outcome) {
	t.Helper()
	require.True(t, o.OK, o.Faults)
	require.True(t, o.Locked)
	require.Equal(t, o.Expected, o.Actual, o.Algorithm)
	require.Zero(t, o.Overlaps, o.Algorithm)
	require.Zero(t, o.FenceErrors, o.Algorithm)
	require.Equal(t, o.Entries, o.Acquire.Count)
	switch o.Algorithm {
	case "central": // 3 for each entry, and none for the coordinator's own
		for _, client := range o.Messages.Tellers {
			n := uint64(client.Entries)
			if client.Sent["GRANT"] > 0 {
				continue
			}
			require.Equal(t, map[string]uint64{"REQUEST": n, "GRANT": 0, "RELEASE": n}, client.Sent)
			require.Equal(t, map[string]uint64{"REQUEST": 0, "GRANT": n, "RELEASE": 0}, client.Received)
		}
	case "lamport":
		require.EqualValues(t, 3*(len(o.Messages.Tellers)-1)*o.Entries, o.Messages.Sent)
	case "ricart":
		require.EqualValues(t, 2*(len(o.Messages.Tellers)-1)*o.Entries, o.Messages.Sent)
	}
}

// Tellers that are killed, closed and started again lose no money. Without --kill, the run
// with kills comes after the other runs.
func TestDemoKills(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		link            string
		args            []string
		runs            int
		killed, servers int
	}{
		{"tcp", []string{"--deposits=5", "--algorithm=suzukikasami", "--kills=3"}, 2, 4, 0},
		{"nats", []string{"--kill", "--algorithm=central", "--kills=4"}, 0, 4, 1},
	} {
		t.Run(c.link, func(t *testing.T) {
			if testing.Short() {
				t.Skip("takes some seconds")
			}
			t.Parallel()
			status, r, stderr := demoIn(t, time.Second, append(c.args, "--nodes=3", "--link", c.link)...)
			require.Equal(t, tool.StatusOK, status, stderr)
			require.True(t, r.OK)
			require.Len(t, r.Runs, c.runs)
			require.Len(t, r.KillRuns, 1)
			o := r.KillRuns[0]
			require.True(t, o.OK, o.Faults)
			require.Equal(t, []int{c.killed, 1, c.servers}, []int{o.Killed, o.Closed, o.Servers})
			require.Equal(t, o.Expected, o.Actual)
			require.EqualValues(t, o.Entries*deposit, o.Expected)
			require.Greater(t, o.Entries, 3*c.killed)
			require.GreaterOrEqual(t, o.Views, 4, "a kill, a close (two views), and a kill of all")
		})
	}
}

// Tellers that are killed for good are excluded, and new ones that know only a file take
// their place.
func TestDemoCrash(t *testing.T) {
	t.Parallel()
	for _, link := range []string{"tcp", "nats"} {
		t.Run(link, func(t *testing.T) {
			if testing.Short() {
				t.Skip("waits for leases")
			}
			t.Parallel()
			const lease = time.Second
			status, r, stderr := demoIn(t, 300*time.Millisecond, "--crash", "--store=remote", "--algorithm=central", "--nodes=3", "--kills=2", "--think=10ms", "--lease=1s", "--link", link)
			require.Equal(t, tool.StatusOK, status, stderr)
			require.True(t, r.OK)
			require.Equal(t, lease, r.Lease)
			require.Empty(t, r.Runs)
			require.Len(t, r.KillRuns, 1)
			o := r.KillRuns[0]
			require.True(t, o.OK, o.Faults)
			require.Equal(t, []int{2, 1, 2}, []int{o.Killed, o.Inside, o.Joined})
			require.Equal(t, o.Expected, o.Actual)
			require.GreaterOrEqual(t, o.Views, 2)
			require.Len(t, o.Crashes, 2)
			require.Greater(t, o.Crashes[0].Holder, lease, "before that, the lease of the killed teller may still run")
			require.Zero(t, o.Crashes[1].Holder, "it held no lock")
			require.Contains(t, stderr, " was killed while it held a lock, which waited for ")
			require.Contains(t, stderr, " was killed while it held no lock")
		})
	}
}

// The waits after a crash are counted by what the killed teller was to the lock: its holder,
// its home, or neither.
func TestKillRunTook(t *testing.T) {
	fell := time.Now()
	at := func(after, wait time.Duration, home dmutex.NodeID) turn {
		return turn{fell.Add(after).UnixNano(), wait, home}
	}
	k := killRun{
		homes: make(map[string]dmutex.NodeID), fell: fell,
		lost: map[string]bool{accountLock: true, "box/1": true}, due: map[string]bool{accountLock: true, "box/1": true, "box/2": true},
	}
	hear := func(turns map[string]turn) { require.True(t, k.hear(nil, report{Word: wordProgress, Turns: turns})) }
	hear(map[string]turn{"box/3": at(time.Second, time.Second, 4)})
	require.Empty(t, k.Crashes, "nobody was killed")
	require.Equal(t, map[string]dmutex.NodeID{"box/3": 4}, k.homes)
	k.Crashes = []crash{{Held: true}}
	hear(map[string]turn{"box/2": at(-1, time.Second, 2)})
	require.Len(t, k.due, 3, "granted before the kill")
	hear(map[string]turn{
		accountLock: at(3*time.Second, 5*time.Second, 2), // this wait began before the kill
		"box/1":     at(2*time.Second, 2*time.Second, 2),
		"box/2":     at(time.Second, 9*time.Millisecond, 2),
	})
	require.Empty(t, k.due)
	require.Equal(t, []crash{{Held: true, Free: 9 * time.Millisecond, Holder: 3 * time.Second, Home: 2 * time.Second}}, k.Crashes)
}

// A run with kills also finds evidence against a lock that is wrong on purpose.
func TestDemoKillsBroken(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	status, r, stderr := demo(t, "--kill", "--broken", "--nodes=3", "--kills=1")
	require.Equal(t, tool.StatusFailed, status, stderr)
	require.False(t, r.OK)
	o := r.KillRuns[0]
	require.Less(t, o.Actual, o.Expected)
	require.Positive(t, o.Overlaps)
	require.Positive(t, o.FenceErrors)
	require.Len(t, o.Faults, 3)
}

// A run counts the views after the first, and keeps the longest time of a view change.
func TestKillRunHears(t *testing.T) {
	o := killRun{epochs: make(map[uint64]bool)}
	for _, v := range []view{{7, 9}, {7, 8}, {8, 3}, {8, 5}, {10, 4}} {
		require.True(t, o.hear(nil, report{Word: wordView, View: &v}))
	}
	require.True(t, o.hear(nil, report{Word: wordProgress}))
	require.False(t, o.hear(nil, report{Word: wordDone}))
	require.Equal(t, 2, o.Views)
	require.EqualValues(t, 5, o.Longest)
}

// Each fault of the evidence is named.
func TestEvidenceFaults(t *testing.T) {
	for fault, e := range map[string]evidence{
		"":                                     {Entries: 3, Expected: 300, Actual: 300},
		"the account has 2.00 instead of 3.00": {Entries: 3, Expected: 300, Actual: 200},
		"1 of 3 deposits found another teller inside": {Entries: 3, Expected: 300, Actual: 300, Overlaps: 1},
		"2 fences had not risen":                      {Entries: 3, Expected: 300, Actual: 300, FenceErrors: 2},
	} {
		require.Equal(t, fault, strings.Join(e.faults(), "; "))
	}
}

// The demo uses a server that already runs, and does not stop it.
func TestDemoNATSURL(t *testing.T) {
	url, stop, err := nats.Broker.Serve("")
	require.NoError(t, err)
	defer stop()
	for range 2 {
		status, r, stderr := demo(t, "--link=nats", "--nats-url", url, "--nodes=2", "--deposits=5", "--algorithm=ricart", "--kills=0")
		require.Equal(t, tool.StatusOK, status, stderr)
		requireRight(t, r.Runs[1])
	}
}

// A server that does not start again after an outage ends the demo with an error.
func TestDemoServerGone(t *testing.T) {
	broker := *nats.Broker
	broker.Serve = func(at string) (string, func(), error) {
		if at != "" {
			return "", nil, errors.New("the port is taken")
		}
		return nats.Broker.Serve(at)
	}
	tool.NATS = &broker
	defer func() { tool.NATS = nats.Broker }()
	f := flags{Link: "nats"}
	err := f.runAll(t.Context(), tool.NewProgress(io.Discard, 1, ""), catalog.All[:1], func(_ context.Context, _ catalog.Algorithm, s *stage) error {
		s.stopServer()
		return s.serve()
	})
	require.EqualError(t, err, "central: the port is taken")
}

func TestDemoNoServer(t *testing.T) {
	url, stop, err := nats.Broker.Serve("")
	require.NoError(t, err)
	stop()
	status, r, stderr := demo(t, "--link=nats", "--nats-url", url, "--nodes=2", "--deposits=1", "--algorithm=central")
	require.Equal(t, tool.StatusIncomplete, status)
	require.Contains(t, stderr, "nats server at "+url)
	require.Contains(t, r.Error, "nats server at "+url)
	require.Empty(t, r.Runs, "reported before any run")
}

// A lock that is wrong on purpose is caught, by evidence from outside the lock.
func TestDemoBroken(t *testing.T) {
	status, r, _ := demo(t, "--broken", "--nodes=3", "--deposits=50")
	require.Equal(t, tool.StatusFailed, status)
	require.False(t, r.OK)
	require.Empty(t, r.Error)
	require.Len(t, r.Runs, 2)
	o := r.Runs[1]
	require.Equal(t, "broken", o.Algorithm)
	require.False(t, o.OK)
	require.Less(t, o.Actual, o.Expected)
	require.Positive(t, o.Overlaps)
	require.Positive(t, o.FenceErrors)
	require.GreaterOrEqual(t, len(o.Faults), 3)
}

// A teller that fails ends the demo. The error names the teller, and says how it failed.
// The other tellers, which wait for it, end too.
func TestDemoSabotage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ how, words string }{
		{"die at once", `ricart: teller 2: process \d+ died \(exit status 7\): the vault is on fire`},
		{"die at work", `ricart: teller 2: process \d+ died \(exit status 7\): the vault is on fire`},
		{"stop at work", `ricart: nothing has happened for 15s: tellers \[2\] have not said "done"; deposits made by each: \[200 0 200\]`},
		{"leave early", `ricart: teller 2 left before the end`},
		{"talk nonsense", `ricart: teller 2: process \d+ sent a malformed report: `},
	} {
		t.Run(c.how, func(t *testing.T) {
			if c.how == "stop at work" && testing.Short() {
				t.Skip("waits for 15 s")
			}
			t.Parallel()
			cmd := exec.Command(os.Args[0], "demo", "--json", "--nodes=3", "--deposits=200", "--timeout=15s", "--algorithm=ricart")
			cmd.Env = append(os.Environ(), sabotage+"="+c.how)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			stdout, err := cmd.Output()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, tool.StatusIncomplete, exit.ExitCode())
			var r result
			require.NoError(t, json.Unmarshal(stdout, &r))
			require.False(t, r.OK)
			require.Len(t, r.Runs, 1, "the run without a lock")
			require.Regexp(t, c.words, r.Error)
			require.Contains(t, stderr.String(), r.Error)
		})
	}
}

// A group fails when no process has reported anything for the timeout.
func TestGroupStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := group{
			task:      task{Trade: "teller"},
			timeout:   2 * time.Second,
			heard:     func(_ *process, r report) bool { return r.Word == wordProgress },
			sofar:     func() string { return "so far nothing" },
			processes: []*process{{id: 1}, {id: 2}, {id: 3}},
			news:      make(chan news),
		}
		began := time.Now()
		go func() {
			for i, word := range []string{wordDone, wordProgress, wordDone} {
				time.Sleep(1500 * time.Millisecond)
				g.news <- news{from: g.processes[i], report: report{Word: word}}
			}
		}()
		err := g.await(t.Context(), wordDone, func(*process, report) {})
		require.EqualError(t, err, `nothing has happened for 2s: tellers [2] have not said "done"; so far nothing`)
		require.Equal(t, 3*1500*time.Millisecond+g.timeout, time.Since(began))
	})
}

// A killed process can be started again with the same number and address, and the
// group goes on.
func TestProcessAgain(t *testing.T) {
	g := group{
		task:    task{Trade: "teller", Nodes: 1, Algorithm: "ricart", Link: "tcp", Dir: t.TempDir(), Deposits: 3, Think: time.Millisecond},
		timeout: time.Minute, sofar: func() string { return "" }, news: make(chan news), over: make(chan struct{}),
		heard: func(_ *process, r report) bool { return r.Word == wordProgress },
	}
	defer g.end()
	p := g.newcomer(1)
	require.NoError(t, g.meet(t.Context(), p))
	first, at := p.child.Pid(), p.at

	require.NoError(t, g.kill(t.Context(), p))
	require.NoError(t, g.join(t.Context(), p))
	require.Equal(t, at, p.at)
	require.NotEqual(t, first, p.child.Pid())
	require.NoError(t, g.await(t.Context(), wordDone, func(_ *process, r report) { require.Len(t, r.Records, 3) }))
	g.tell(order{Word: wordLeave})
	require.NoError(t, g.await(t.Context(), wordLeave, nil, p))
}

// Ctrl-C ends the tellers, leaves nothing behind, and is reported.
func TestDemoInterrupted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be sent an interrupt")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	cmd := exec.Command(self, "demo", "--nodes=3", "--deposits=100000")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill()
	out := bufio.NewReader(stderr)
	_, err = out.ReadString('\n')
	require.NoError(t, err, "the demo says what it is about to do")
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	said, err := io.ReadAll(out)
	require.NoError(t, err)
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, tool.StatusIncomplete, exit.ExitCode())
	require.Contains(t, string(said), "interrupt")
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files)
}

// A teller ends when its demo has died, even while it waits for others that it will
// never meet.
func TestTellerOrphaned(t *testing.T) {
	dir := t.TempDir()
	p, err := child.Start("demo", "teller")
	require.NoError(t, err)
	defer p.Signal(os.Kill)
	require.NoError(t, p.Tell(order{Word: wordTask, Task: &task{Self: 1, Listen: "127.0.0.1:0", Nodes: 2, Algorithm: "ricart", Link: "tcp", Dir: dir, Deposits: 1}}))
	var r report
	require.NoError(t, p.Hear(&r))
	require.Equal(t, wordAddress, r.Word)
	require.NoError(t, p.Tell(order{Word: wordOpen, Peers: map[dmutex.NodeID]string{2: "127.0.0.1:1"}}))
	err = p.Close()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, tool.StatusIncomplete, exit.ExitCode())
	require.ErrorContains(t, err, errOrphaned.Error())
}

func TestDemoUsage(t *testing.T) {
	tooltest.Refused(t, invoke, [][2]string{
		{"demo --nodes=1", "choose 2 to 64 tellers"},
		{"demo --nodes=65", "choose 2 to 64 tellers"},
		{"demo --nodes=many", "expected a valid 64 bit int"},
		{"demo --deposits=0", "choose 1 or more"},
		{"demo --think=0s", "choose 100µs or more"},
		{"demo --kills=-1", "--kills=-1: choose 1 or more"},
		{"demo --kill --kills=0", "--kills=0: choose 1 or more"},
		{"demo --crash --kill", "can't be used together"},
		{"demo --crash --kills=0", "--kills=0: choose 1 or more"},
		{"demo --crash --nodes=21", "choose at most 20 of each with --crash"},
		{"demo --crash --lease=1ms", "--lease=1ms: choose 100ms to a third of --timeout=30s"},
		{"demo --lease=1s", "--lease and --store are for --crash"},
		{"demo --store=remote", "--lease and --store are for --crash"},
		{"demo --timeout=1s --think=2s", "--timeout=1s is not longer than --think=2s"},
		{"demo --link=udp", `must be one of "tcp","nats"`},
		{"demo --nats-url=nats://127.0.0.1:4222", "--nats-url needs --link=nats"},
		{"demo --algorithm=peterson", "choose all or one of central, "},
		{"demo --algorithm=ricart --broken", "can't be used together"},
		{"demo --fast", "unknown flag --fast"},
	})
}

// A build without NATS says how to build with NATS.
func TestDemoWithoutNATS(t *testing.T) {
	tool.NATS = nil
	defer func() { tool.NATS = nats.Broker }()
	tooltest.Refused(t, invoke, [][2]string{
		{"demo --link=nats", "--link=nats: this dmutex was built without NATS: add -tags nats, as in go run -tags nats ./cmd/dmutex"},
		{"demo philosophers --link=nats", "--link=nats: this dmutex was built without NATS"},
	})
}
