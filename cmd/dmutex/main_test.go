package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sabotage is the environment variable that tells process 2 how to misbehave.
const sabotage = "DMUTEX_TEST_SABOTAGE"

// The race detector makes a process wait a second before it exits, and a demo
// is dozens of processes.
const race = "GORACE"

// TestMain makes the test binary a tool as well: the demo starts its own
// executable, and in a test that is this one.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-"):
		if os.Getenv(race) == "" {
			os.Setenv(race, "atexit_sleep_ms=0")
		}
		tellEvery = time.Hour // else a slow machine says more than is expected
		os.Exit(m.Run())
	case os.Args[1] == "child" && child != nil:
		os.Exit(child(os.Args[2:]))
	case slices.Contains([]string{"teller", "philosopher"}, os.Args[1]) && os.Getenv(sabotage) != "":
		os.Exit(sabotaged(os.Getenv(sabotage)))
	default:
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
}

// child is a command for run, where there is run.
var child func(steps []string) (status int)

// sabotaged is an ordinary process of a demo unless its number is 2 and it has a
// lock.
func sabotaged(how string) int {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return 99
	}
	var hired order
	if err := json.Unmarshal(line, &hired); err != nil {
		return 99
	}
	var out io.Writer = os.Stdout
	if hired.Task.Self == 2 && hired.Task.Algorithm != noLock.name {
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
	return run(os.Args[1:], io.MultiReader(bytes.NewReader(line), in), out, os.Stderr)
}

// workWriter does something unheard of at the first report of progress: in the
// middle of the deposits.
type workWriter struct{ act func() }

func (w workWriter) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(wordProgress)) {
		w.act()
	}
	return os.Stdout.Write(b)
}

// tool runs a command line in this process.
func tool(args ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = run(args, strings.NewReader(""), &out, &err)
	return status, out.String(), err.String()
}

func TestUsage(t *testing.T) {
	for _, c := range []struct{ line, words string }{
		{"", "expected one of"},
		{"dmeo", "unexpected argument dmeo"},
		{"demo --nodes=1", "choose 2 to 64 tellers"},
		{"demo --nodes=65", "choose 2 to 64 tellers"},
		{"demo --nodes=many", "expected a valid 64 bit int"},
		{"demo --deposits=0", "choose at least 1"},
		{"demo --think=0s", "choose at least 100µs"},
		{"demo --timeout=1s --think=2s", "--timeout=1s is not longer than --think=2s"},
		{"demo --link=udp", `must be one of "tcp","nats"`},
		{"demo --nats-url=nats://127.0.0.1:4222", "--nats-url needs --link=nats"},
		{"demo --algorithm=peterson", "choose all or one of central, "},
		{"demo --algorithm=ricart --broken", "can't be used together"},
		{"demo --fast", "unknown flag --fast"},
	} {
		t.Run(c.line, func(t *testing.T) {
			status, stdout, stderr := tool(strings.Fields(c.line)...)
			require.Equal(t, statusUsage, status)
			require.Empty(t, stdout)
			require.Contains(t, stderr, c.words)
			require.Contains(t, stderr, "Try: dmutex --help")
		})
	}
}

func TestHelp(t *testing.T) {
	status, stdout, stderr := tool("--help")
	require.Equal(t, statusOK, status)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "Exit status: 0 all is well;")
	require.NotContains(t, stdout, "teller ", "the hidden command")

	status, stdout, _ = tool("demo", "--help")
	require.Equal(t, statusOK, status)
	require.Contains(t, stdout, "This is what demo does alone.")
	require.Contains(t, stdout, "demo philosophers")

	status, stdout, _ = tool("demo", "philosophers", "--help")
	require.Equal(t, statusOK, status)
	require.Contains(t, stdout, "the left fork before anybody reaches for the right one.")

	status, stdout, _ = tool("demo", "tellers", "--help")
	require.Equal(t, statusOK, status)
	require.Contains(t, stdout, "Exit status: 0 if every locked run was right;")
	for _, a := range algorithms {
		require.Contains(t, stdout, a.name)
	}
}

func TestVersion(t *testing.T) {
	status, stdout, stderr := tool("version")
	require.Equal(t, statusOK, status)
	require.Empty(t, stderr)
	require.Regexp(t, `^dmutex .*go1\.`, stdout)
}
