package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
)

// demo runs the demo with --json, and requires that standard output is one
// JSON value and nothing else.
func demo(t *testing.T, args ...string) (status int, r result, stderr string) {
	t.Helper()
	status, stdout, stderr := tool(append([]string{"demo", "--json"}, args...)...)
	dec := json.NewDecoder(strings.NewReader(stdout))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&r), "%s\n%s", stdout, stderr)
	_, err := dec.Token()
	require.ErrorIs(t, err, io.EOF)
	return status, r, stderr
}

// Every algorithm on real processes over a real network: "the messages per
// entry are those of the formula, and not a cent is lost".
func TestDemo(t *testing.T) {
	for _, link := range []string{"tcp", "nats"} {
		t.Run(link, func(t *testing.T) {
			status, r, stderr := demo(t, "--link", link, "--nodes=3", "--deposits=25")
			require.Equal(t, statusOK, status, stderr)
			require.True(t, r.OK)
			require.Len(t, r.Runs, 1+len(algorithms))
			for i, o := range r.Runs {
				require.Equal(t, 75, o.Entries)
				require.EqualValues(t, 7500, o.Expected)
				if i == 0 {
					require.False(t, o.Locked)
					require.Less(t, o.Actual, o.Expected, "with no lock money is lost")
					require.Positive(t, o.Overlaps, "and tellers meet")
					continue
				}
				require.Equal(t, algorithms[i-1].name, o.Algorithm)
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
	require.Positive(t, o.HandOff.Count)
	switch o.Algorithm {
	case "central": // "3, and none for the coordinator's own"
		for _, client := range o.Messages.Tellers[1:] {
			n := uint64(client.Entries)
			require.Equal(t, map[string]uint64{"REQUEST": n, "GRANT": 0, "RELEASE": n}, client.Sent)
			require.Equal(t, map[string]uint64{"REQUEST": 0, "GRANT": n, "RELEASE": 0}, client.Received)
		}
	case "lamport":
		require.EqualValues(t, 3*(len(o.Messages.Tellers)-1)*o.Entries, o.Messages.Sent)
	case "ricart":
		require.EqualValues(t, 2*(len(o.Messages.Tellers)-1)*o.Entries, o.Messages.Sent)
	}
}

// A server that runs already is used and not stopped.
func TestDemoNATSURL(t *testing.T) {
	url, stop, err := startNATS()
	require.NoError(t, err)
	defer stop()
	for range 2 {
		status, r, stderr := demo(t, "--link=nats", "--nats-url", url, "--nodes=2", "--deposits=5", "--algorithm=ricart")
		require.Equal(t, statusOK, status, stderr)
		requireRight(t, r.Runs[1])
	}
}

func TestDemoNoServer(t *testing.T) {
	url, stop, err := startNATS()
	require.NoError(t, err)
	stop()
	status, r, stderr := demo(t, "--link=nats", "--nats-url", url, "--nodes=2", "--deposits=1", "--algorithm=central")
	require.Equal(t, statusIncomplete, status)
	require.Contains(t, stderr, "nats server at "+url)
	require.Contains(t, r.Error, "nats server at "+url)
	require.Empty(t, r.Runs, "told before any run")
}

// What stands before the servers in their URLs is for them alone.
func TestServersAreToldWithoutSecrets(t *testing.T) {
	for servers, told := range map[string]string{
		"nats://me:secret@127.0.0.1:1":                      "nats server at nats://127.0.0.1:1: nats: no servers",
		"secret@127.0.0.1:1":                                "nats server at 127.0.0.1:1: nats: no servers",
		"tls://127.0.0.1:1,nats://me:secret@secret@[::1]:1": "nats server at tls://127.0.0.1:1,nats://[::1]:1: nats: no servers",
		"nats://me:secret@[::1":                             "nats server at nats://[::1: ",
	} {
		_, err := dialNATS(servers)
		require.ErrorContains(t, err, told)
		require.NotContains(t, err.Error(), "secret")
	}
}

// A lock that is wrong on purpose is caught, by checks that do not ask it.
func TestDemoBroken(t *testing.T) {
	traces := t.TempDir()
	status, r, _ := demo(t, "--broken", "--nodes=3", "--deposits=50", "--trace", traces)
	require.Equal(t, statusFailed, status)
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

	// Its traces are told from Ricart's and Agrawala's, and replay.
	status, stdout, stderr := tool("trace", "replay", filepath.Join(traces, broken.name))
	require.Equal(t, statusOK, status, stdout+stderr)
	require.Equal(t, 3, strings.Count(stdout, " under broken, "), stdout)
}

// The broken machine enters on N-2 replies.
func TestBrokenMachine(t *testing.T) {
	m, err := newHasty(dmutex.Start{Self: 1, Members: members(3)})
	require.NoError(t, err)
	out, err := m.Request()
	require.NoError(t, err)
	require.Len(t, out, 2)
	require.Equal(t, dmutex.Waiting, m.Phase())
	_, err = m.Handle(dmutex.Message{Kind: dmutex.Reply, From: 3, To: 1, Attempt: out[1].Attempt})
	require.NoError(t, err)
	require.Equal(t, dmutex.Held, m.Phase())
}

// A teller that fails ends the demo, with words that say which and how; the
// others, who wait for it, are ended too.
func TestDemoSabotage(t *testing.T) {
	for _, c := range []struct{ how, words string }{
		{"die at once", `ricart: teller 2 died \(process \d+, exit status 7\): the vault is on fire`},
		{"die at work", `ricart: teller 2 died \(process \d+, exit status 7\): the vault is on fire`},
		{"stop at work", `ricart: nothing has happened for 10s: tellers \[2\] have not said "done"; deposits made by each: \[200 0 200\]`},
		{"leave early", `ricart: teller 2 left in the middle of the day`},
		{"talk nonsense", `ricart: teller 2 says what is no report: `},
	} {
		t.Run(c.how, func(t *testing.T) {
			t.Setenv(sabotage, c.how)
			status, r, stderr := demo(t, "--nodes=3", "--deposits=200", "--timeout=10s", "--algorithm=ricart")
			require.Equal(t, statusIncomplete, status)
			require.False(t, r.OK)
			require.Len(t, r.Runs, 1, "the one without a lock")
			require.Regexp(t, c.words, r.Error)
			require.Contains(t, stderr, r.Error)
		})
	}
}

// A crew is given up when nothing at all has happened for the timeout, and not
// while somebody says something.
func TestCrewStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crew{
			task:    task{Trade: "teller"},
			timeout: 2 * time.Second,
			passing: func(_ int, r report) bool { return r.Word == wordProgress },
			sofar:   func() string { return "so far nothing" },
			workers: []*process{{id: 1}, {id: 2}, {id: 3}},
			news:    make(chan news),
		}
		began := time.Now()
		go func() {
			for i, word := range []string{wordDone, wordProgress, wordDone} {
				time.Sleep(1500 * time.Millisecond)
				c.news <- news{from: c.workers[i], report: report{Word: word}}
			}
		}()
		err := c.await(t.Context(), wordDone, func(int, report) {})
		require.EqualError(t, err, `nothing has happened for 2s: tellers [2] have not said "done"; so far nothing`)
		require.Equal(t, 3*1500*time.Millisecond+c.timeout, time.Since(began))
	})
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
	require.NoError(t, err, "it says what it is about to do")
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	said, err := io.ReadAll(out)
	require.NoError(t, err)
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, statusIncomplete, exit.ExitCode())
	require.Contains(t, string(said), "interrupt")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// A teller whose demo has died ends, even while it waits for others whom it
// will never meet.
func TestTellerOrphaned(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, createAccount(dir))
	cmd := exec.Command(self, "teller")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var said strings.Builder
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill()

	orders := json.NewEncoder(in)
	require.NoError(t, orders.Encode(order{Word: wordHire, Task: &task{Self: 1, Nodes: 2, Algorithm: "ricart", Link: "tcp", Dir: dir, Deposits: 1}}))
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, wordAddress)
	require.NoError(t, orders.Encode(order{Word: wordOpen, Peers: map[dmutex.NodeID]string{2: "127.0.0.1:1"}}))
	require.NoError(t, in.Close())

	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, statusIncomplete, exit.ExitCode())
	require.Contains(t, said.String(), errOrphaned.Error())
}
