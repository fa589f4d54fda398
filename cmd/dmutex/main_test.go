package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
)

func TestMain(m *testing.M) { tooltest.Main(m, new(commands)) }

// invoke runs a command line in this process.
func invoke(args ...string) (status int, stdout, stderr string) {
	return tooltest.Run(new(commands), "", args...)
}

// A wrong command line is refused. The message names the help of the most specific command
// that was recognized.
func TestUsage(t *testing.T) {
	for _, c := range []struct {
		line []string
		said string
	}{
		{nil, "dmutex: expected one of \"demo\", \"check\", \"sim\", \"step\", \"run\", ...\nTry: dmutex --help\n"},
		{[]string{"dmeo"}, "dmutex: unexpected argument dmeo, did you mean \"demo\"?\nTry: dmutex --help\n"},
		{[]string{"sim", "--fast"}, "dmutex: unknown flag --fast\nTry: dmutex sim --help\n"},
		{[]string{"demo", "--nodes=1"}, "dmutex: demo tellers: --nodes=1: choose 2 to 64 tellers\nTry: dmutex demo tellers --help\n"},
		{[]string{"trace", "draw"}, "dmutex: expected \"<files> ...\"\nTry: dmutex trace draw --help\n"},
		{[]string{"quorum"}, "dmutex: expected one of \"build\", \"check\", \"compare\"\nTry: dmutex quorum --help\n"},
	} {
		status, stdout, stderr := invoke(c.line...)
		require.Equal(t, tool.StatusUsage, status)
		require.Empty(t, stdout)
		require.Equal(t, c.said, stderr)
	}
	status, _, stderr := invoke("run", "--store=x")
	require.Equal(t, 125, status, "2 may be the status of its command")
	require.Contains(t, stderr, "\nTry: dmutex run --help\n")
}

func TestHelp(t *testing.T) {
	status, stdout, stderr := invoke("--help")
	require.Equal(t, tool.StatusOK, status)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "Exit status: 0 all is well;")
	require.NotContains(t, stdout, "teller ", "the hidden command")

	status, stdout, _ = invoke("demo", "--help")
	require.Equal(t, tool.StatusOK, status)
	require.Contains(t, stdout, "demo alone runs this.")
	require.Contains(t, stdout, "demo philosophers")

	status, stdout, _ = invoke("demo", "philosophers", "--help")
	require.Equal(t, tool.StatusOK, status)
	require.Contains(t, stdout, "fork before any of them reaches for the right one.")

	status, stdout, _ = invoke("demo", "tellers", "--help")
	require.Equal(t, tool.StatusOK, status)
	require.Contains(t, stdout, "Exit status: 0 if every locked run was right;")
	for _, a := range catalog.All {
		require.Contains(t, stdout, a.Name)
	}
}

// help and version are commands, too.
func TestHelpAndVersionAsCommands(t *testing.T) {
	for _, c := range [][2]string{
		{"help", "--help"}, {"help run", "run --help"}, {"help trace draw", "trace draw --help"}, {"help help", "help --help"},
		{"help demo", "demo --help"}, {"version", "--version"},
	} {
		status, stdout, stderr := invoke(strings.Fields(c[0])...)
		require.Equal(t, tool.StatusOK, status, stderr)
		require.Empty(t, stderr)
		_, want, _ := invoke(strings.Fields(c[1])...)
		require.Equal(t, want, stdout)
	}
	for _, line := range []string{"help dmeo", "help trace drew", "version --no"} {
		status, stdout, stderr := invoke(strings.Fields(line)...)
		require.Equal(t, tool.StatusUsage, status, stderr)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "\nTry: dmutex ")
	}
}

// The grammar of run alone is the same as the grammar of run among all commands.
func TestGrammarOfRun(t *testing.T) {
	line := []string{"run", "--help"}
	require.IsType(t, new(running), grammarOf(line))
	_, stdout, _ := tooltest.Run(grammarOf(line), "", line...)
	_, all, _ := invoke(line...)
	require.Equal(t, all, stdout)
	require.Contains(t, stdout, "This is flock(1) across processes and machines")
	require.IsType(t, new(commands), grammarOf(nil))
}

func TestVersion(t *testing.T) {
	status, stdout, stderr := invoke("--version")
	require.Equal(t, tool.StatusOK, status)
	require.Empty(t, stderr)
	require.Regexp(t, `^dmutex .*go1\.`, stdout)
}

// The environment can set every flag of run and serve, by the flag's name in capitals, but --lock: run sets
// DMUTEX_LOCK for its command, and a dmutex run in that command must not use the same lock. The
// command line wins.
func TestEnvironment(t *testing.T) {
	for _, command := range grammar(t).Model.Leaves(false) {
		if command.Name != "run" && command.Name != "serve" {
			continue
		}
		for _, f := range command.Flags {
			want := []string{"DMUTEX_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))}
			if f.Name == "lock" {
				want = nil
			}
			require.Equal(t, want, f.Envs, "%s --%s", command.Name, f.Name)
		}
	}
	t.Setenv("DMUTEX_LOCK", "")
	t.Setenv("DMUTEX_STORE", "consul://host")
	status, _, stderr := invoke("run", "--lock=l", "--", "true")
	require.Equal(t, 125, status)
	require.Contains(t, stderr, "no store for consul://")
	_, _, stderr = invoke("run", "--lock=l", "--store=zookeeper://host", "--", "true")
	require.Contains(t, stderr, "no store for zookeeper://")
}

// A flag on the command line also wins over the variable of a flag that excludes it, and over one of its own that
// cannot be read.
func TestCommandLineWins(t *testing.T) {
	dir := "--store=" + filepath.Join(t.TempDir(), "locks")
	for _, c := range []struct{ variable, value, line string }{
		{"DMUTEX_WAIT", "5", dir + " -n"},
		{"DMUTEX_NONBLOCK", "1", dir + " -w 60"},
		{"DMUTEX_AT", "127.0.0.1:1", dir},
		{"DMUTEX_PERMITS", "many", dir + " --permits=2"},
		{"DMUTEX_STORE", "locks", "--at=127.0.0.1:1 -w 0.01"},
		{"DMUTEX_CREDS", "/no/such", "--store=nats://127.0.0.1:1/b --nkey=/no/such"},
	} {
		t.Run(c.variable, func(t *testing.T) {
			t.Setenv(c.variable, c.value)
			_, _, stderr := invoke(slices.Concat([]string{"run", "--lock=l"}, strings.Fields(c.line), []string{"--", "true"})...)
			require.NotContains(t, stderr, "Try: ", "the line is right")
		})
	}
}

// A flag or a variable without a text, such as that of a script whose own variable is missing, is refused: serve
// --allow= would let every client take every lock.
func TestEmpty(t *testing.T) {
	serve := []string{"serve", "--group=g", "--listen=127.0.0.1:0", "--http=127.0.0.1:-1"}
	for _, name := range []string{"allow", "cert", "creds", "http", "listen", "name"} {
		status, _, stderr := invoke(append(serve, "--"+name+"=")...)
		require.Equal(t, tool.StatusUsage, status, stderr)
		require.Contains(t, stderr, "dmutex: serve: --"+name+" is empty: ")
	}
	t.Setenv("DMUTEX_ALLOW", "")
	status, _, stderr := invoke(serve...)
	require.Equal(t, tool.StatusUsage, status, stderr)
	require.Contains(t, stderr, "--allow is empty: give --allow=FILE, or set neither it nor DMUTEX_ALLOW")
}
