package trace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
)

type grammar struct {
	Trace Cmd `cmd:""`
}

func TestMain(m *testing.M) { tooltest.Main(m, new(grammar)) }

func invoke(args ...string) (status int, stdout, stderr string) {
	return tooltest.Run(new(grammar), "", args...)
}

// A file without a group is no script.
func TestDrawEmptyScript(t *testing.T) {
	for _, text := range []string{"", "\n", "# nothing\n", "network fifo\n"} {
		file := filepath.Join(t.TempDir(), "run.txt")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		status, _, stderr := invoke("trace", "draw", "--algorithm=ricart", file)
		require.Equal(t, tool.StatusIncomplete, status, "%q", text)
		require.Equal(t, "dmutex: "+file+": it has no group: a script begins with a line such as \"group 1 2\"\n", stderr)
	}
}

func TestTraceUsage(t *testing.T) {
	tooltest.Refused(t, invoke, [][2]string{
		{"trace draw", "<files>"},
		{"trace draw x -o x.png", "must end in .svg or .html"},
		{"trace draw x --format=png", "choose svg or html"},
		{"trace draw x --algorithm=peterson", "choose one of central, "},
		{"trace draw x y --algorithm=ricart", "it runs one script"},
		{"trace draw x --width=399", "choose 400 or more"},
		{"trace draw x --from=-1s", "choose 0s or more"},
		{"trace draw x --from=2s --to=1s", "choose more than --from=2s"},
		{"trace replay x --algorithm=peterson", "choose one of central, "},
	})
	dir := t.TempDir()
	other := filepath.Join(dir, "other.trace")
	require.NoError(t, os.WriteFile(other, []byte("no trace\n"), 0o600))
	foreign := filepath.Join(dir, "foreign")
	require.NoError(t, os.WriteFile(foreign, []byte(`{"dmutex":"trace","version":5,"self":1,"members":[1],"algorithm":"peterson"}`+"\n"), 0o600))
	silent := filepath.Join(dir, "silent")
	require.NoError(t, os.WriteFile(silent, []byte(`{"dmutex":"trace","version":5,"self":1,"members":[1]}`+"\n"), 0o600))
	above := t.TempDir()
	below := filepath.Join(above, "[1]")
	require.NoError(t, os.Mkdir(below, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(below, "1.trace"), []byte("no trace\n"), 0o600))
	for _, tt := range [][2]string{
		{"trace draw " + above, "choose a directory below, such as " + below},
		{"trace draw " + below, "1.trace:1: trace: not a trace"},
		{"trace draw " + other, "(a script needs --algorithm)"},
		{"trace replay " + filepath.Join(dir, "none"), "no such file"},
		{"trace replay " + dir, "other.trace:1: trace: not a trace: it has no header"},
		{"trace draw " + t.TempDir(), "no file in it ends in .trace"},
		{"trace replay " + foreign, `no algorithm of this program describes itself as "peterson"; give one with --algorithm`},
		{"trace replay " + silent, "silent: it does not say which algorithm it is of; give one with --algorithm"},
		{"trace draw " + foreign, "dmutex: the traces are empty\n"},
		{"trace draw --algorithm=ricart " + silent, "a script begins with a group"},
		{"trace draw --algorithm=ricart " + dir, "is a directory"},
	} {
		status, _, stderr := invoke(strings.Fields(tt[0])...)
		require.Equal(t, tool.StatusIncomplete, status, tt[0])
		require.Contains(t, stderr, tt[1])
	}
}

// A golden script becomes a picture, and so does the script of a counterexample, with what went wrong as the title.
func TestDrawScript(t *testing.T) {
	for _, tt := range []struct{ algorithm, script, title, stderr string }{
		{"ricart", "group 1 2 3\n\nrequest 1\ndeliver all\nrelease 1\n", "", ""},
		{
			"lamport", "group 1 2\nnetwork unordered\n\nrequest 1\nrequest 2\ndeliver 2->1\ndeliver 1->2 REPLY\n",
			"mutual exclusion: 1 and 2 both hold the lock", "run.txt: dmutextest: mutual exclusion: 1 and 2 both hold the lock\n",
		},
	} {
		file, out := filepath.Join(t.TempDir(), "run.txt"), filepath.Join(t.TempDir(), "run.svg")
		require.NoError(t, os.WriteFile(file, []byte(tt.script), 0o600))
		status, stdout, stderr := invoke("trace", "draw", "--algorithm", tt.algorithm, file, "-o", out)
		require.Equal(t, tool.StatusOK, status, stderr)
		require.Empty(t, stdout)
		require.Contains(t, stderr, tt.stderr)
		picture, err := os.ReadFile(out)
		require.NoError(t, err)
		require.Contains(t, string(picture), "fence 1")
		require.Contains(t, string(picture), tt.title)
		require.Equal(t, tt.stderr != "", strings.Contains(string(picture), "mutual exclusion"))
	}
}
