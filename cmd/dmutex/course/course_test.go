package course_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"go/format"
	"html"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/sim"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
	"github.com/dmutex/dmutex/internal/kit/quicktest"
)

const root = "../../.."

// page returns docs/course.md.
func page(t *testing.T) string {
	text, err := os.ReadFile(filepath.Join(root, "docs", "course.md"))
	require.NoError(t, err)
	return string(text)
}

// between returns what stands after begin and before end.
func between(t *testing.T, text, begin, end string) string {
	_, text, found := strings.Cut(text, begin)
	require.True(t, found, begin)
	text, _, found = strings.Cut(text, end)
	require.True(t, found, end)
	return text
}

// A paste is a change that a student makes to a program.
type paste struct{ old, by string }

func edited(t *testing.T, text string, changes ...paste) string {
	for _, c := range changes {
		require.Equal(t, 1, strings.Count(text, c.old), "%s", c.old)
		text = strings.Replace(text, c.old, c.by, 1)
	}
	return text
}

// What a student fills in: the first rungs of the ladder, those up to cancel, and readers.
var (
	rules = []paste{
		{"import (\n", "import (\n\t\"slices\"\n\n"},
		{"		_, _ = j, theirs // fill in: answer now, or later?\n", `		m.Witness(msg.Attempt, 0)
		if m.Phase() == dmutex.Held || m.Pending() && m.Stamp().Less(theirs) {
			m.deferred[j] = msg.Attempt
		} else {
			m.Send(dmutex.Reply, msg.From, msg.Attempt)
		}
`},
		{"		// fill in: was that the last one?\n", `		m.awaiting[j] = false
		if !slices.Contains(m.awaiting, true) {
			m.Enter()
		}
`},
		{"	// fill in: who waits for us?\n	return m.Out(), nil\n}\n", `	m.leave()
	return m.Out(), nil
}

func (m *machine) leave() {
	for j, peer := range m.Peers() {
		if m.deferred[j] != 0 {
			m.Send(dmutex.Reply, peer, m.deferred[j])
			m.deferred[j] = 0
		}
	}
}
`},
	}
	repeats = []paste{
		{"		m.awaiting[j] = false\n", `		if !m.awaiting[j] || msg.Attempt != m.Stamp().Clock {
			break // it came before
		}
		m.awaiting[j] = false
`},
		{"m.deferred[j] = msg.Attempt", "m.deferred[j] = max(m.deferred[j], msg.Attempt)"},
		{"			m.Enter()\n", `			if withdrawn := m.Enter(); withdrawn {
				m.leave()
			}
`},
	}
	readers = []paste{
		{"site.New(s)", "site.NewShared(s)"},
		{"func (m *machine) Request() ([]dmutex.Message, error) {\n	if fresh, err := m.Ask(dmutex.Request); ", `func (m *machine) Request() ([]dmutex.Message, error) { return m.ask(dmutex.Request) }

// Share is Request for a reader.
func (m *machine) Share() ([]dmutex.Message, error) { return m.ask(dmutex.Share) }

// Wanted reports whether this reader keeps a writer waiting.
func (m *machine) Wanted() bool {
	return slices.ContainsFunc(m.deferred, func(t uint64) bool { return t != 0 })
}

func (m *machine) ask(kind dmutex.Kind) ([]dmutex.Message, error) {
	if fresh, err := m.Ask(kind); `},
		{"m.Send(dmutex.Request, peer", "m.Send(kind, peer"},
		{"case dmutex.Request:", "case dmutex.Request, dmutex.Share:"},
		{"if m.Phase() == dmutex.Held || m.Pending() && m.Stamp().Less(theirs) {", `conflicts := msg.Kind == dmutex.Request || !m.Shared()
		if conflicts && (m.Phase() == dmutex.Held || m.Pending() && m.Stamp().Less(theirs)) {`},
	}
)

// The mistakes of students, the commonest first. Each is made in a program that has the rules of the first rungs, and
// is told by the rung that is named: two nodes, if none is.
var mistakes = []struct {
	name    string
	changes []paste
	rung    string
	says    string
}{
	{"a node replies while it is inside", []paste{{"m.Phase() == dmutex.Held || ", ""}}, "", "mutual exclusion: 1 and 2 both hold the lock"},
	{"equal times are not decided by the number", []paste{{"m.Stamp().Less(theirs)", "m.Stamp().Clock < theirs.Clock"}}, "", "mutual exclusion: 1 and 2 both hold the lock"},
	{"the clock is not moved by a REQUEST", []paste{{"		m.Witness(msg.Attempt, 0)\n", ""}}, "--nodes=3 --requests=1", "mutual exclusion: 1 and 2 both hold the lock"},
	{"a deferred REPLY is never sent", []paste{{"	m.leave()\n	return", "	return"}}, "", "deadlock: 2 waits, no node holds the lock and no message is in flight"},
	{"a peer's place is wrong by one", []paste{{"m.awaiting[j] = false", "m.awaiting[j+1] = false"}}, "", "contract: Handle of 1 panics at main.go:"},
	{"of equal times both go first", []paste{{"m.Stamp().Less(theirs)", "m.Stamp().Clock <= theirs.Clock"}}, "", "deadlock: 1 waits, no node holds the lock and no message is in flight"},
	{"the fence of a message is not remembered", []paste{{"	m.Witness(0, msg.Fence)", "	//"}}, "", "fence order: 2 holds the lock with fence 1 after a grant with fence 1"},
	{"a deferred REPLY is sent, and not forgotten", []paste{{"			m.deferred[j] = 0\n", ""}}, "", `left behind: all nodes are idle, no message is in flight, and Forget of 1 returns false; this is left: "my-ricart 1 idle`},
	{"a node enters at the first REPLY", []paste{{"if !slices.Contains(m.awaiting, true) {", "if !slices.Contains(m.awaiting, true) || m.Pending() {"}}, "--nodes=3 --requests=1", "mutual exclusion: 1 and 2 both hold the lock"},
	{"the comparison is reversed", []paste{{"m.Stamp().Less(theirs)", "theirs.Less(m.Stamp())"}}, "--nodes=3 --requests=1", "mutual exclusion: 1 and 2 both hold the lock"},
	{"a field is not named in Fields", []paste{{"	f.Times(\"deferred\", &m.deferred)\n", ""}}, "", "contract: release makes"},
}

// The table for the teacher has the mistakes, and the rung on which each is told.
func TestMistakes(t *testing.T) {
	table := "| mistake | rung | name |\n| --- | --- | --- |\n"
	for _, m := range mistakes {
		rung := "two nodes"
		if m.rung != "" {
			rung = "three nodes"
		}
		name, _, _ := strings.Cut(m.says, ":")
		table += fmt.Sprintf("| %s | %s | %s |\n", m.name, rung, name)
	}
	rewritten(t, "mistakes", table)
}

// rewritten compares a part of the page with what it should be; -update rewrites it.
func rewritten(t *testing.T, part, want string) {
	text, begin, end := page(t), "<!-- "+part+" -->\n", "<!-- /"+part+" -->"
	was := between(t, text, begin, end)
	if flag.Lookup("update").Value.String() == "true" {
		require.NoError(t, os.WriteFile(filepath.Join(root, "docs", "course.md"), []byte(strings.Replace(text, begin+was, begin+want, 1)), 0o644))
		return
	}
	require.Equal(t, want, was, "docs/course.md is out of date; -update rewrites it")
}

// build compiles programs, by name, in a directory of the clone, as a student does. It returns where the
// executables are.
func build(t *testing.T, programs map[string]string) (bin string) {
	dir, err := os.MkdirTemp(".", "_course") // hidden from patterns such as ./...
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	bin = t.TempDir()
	args := []string{"build", "-o", bin}
	for name, text := range programs {
		place := filepath.Join(dir, name)
		require.NoError(t, os.Mkdir(place, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(place, "main.go"), []byte(text), 0o600))
		args = append(args, "./"+filepath.ToSlash(place))
	}
	out, err := exec.Command("go", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return bin
}

// program runs an executable in a directory and returns what it says, and its exit status.
func program(t *testing.T, dir, executable string, args ...string) (says string, status int) {
	cmd := exec.Command(executable, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// A student goes through the page: the skeleton compiles, and is refused as the page shows. With the rules it climbs the
// ladder, and each mistake is told by its name, with a picture. Every command line of the page does what the page says.
func TestStudent(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	text := page(t)
	skeleton := between(t, text, "```go\n", "```\n")
	right := edited(t, skeleton, rules...)
	whole := edited(t, edited(t, right, repeats...), readers...)
	wrong := mistakes
	if quicktest.On() {
		wrong = wrong[:5]
	}
	programs := map[string]string{"mine": skeleton, "right": right, "whole": whole}
	named := func(name string) string { return strings.NewReplacer(" ", "-", "'", "", ",", "").Replace(name) }
	for _, m := range wrong {
		programs[named(m.name)] = edited(t, right, m.changes...)
	}
	for name, text := range programs {
		formatted, err := format.Source([]byte(text))
		require.NoError(t, err)
		require.Equal(t, string(formatted), text, "%s is not formatted", name)
	}
	bin := build(t, programs)
	executable := func(name string) string {
		file := filepath.Join(bin, named(name))
		if _, err := os.Stat(file); err != nil {
			file += ".exe"
		}
		return file
	}

	for _, m := range wrong {
		t.Run(m.name, func(t *testing.T) {
			dir := t.TempDir()
			said, status := program(t, dir, executable(m.name), append([]string{"check", "-o", "run.html"}, strings.Fields(m.rung)...)...)
			require.Equal(t, tool.StatusFailed, status, said)
			require.Contains(t, said, "\n# "+m.says)
			require.Contains(t, said, "\n1 of 1 failed: mine.\n")
			picture, err := os.ReadFile(filepath.Join(dir, "run.html"))
			require.NoError(t, err)
			require.Contains(t, string(picture), html.EscapeString(m.says))
			if m.rung != "" {
				said, status = program(t, dir, executable(m.name), "check")
				require.Equal(t, tool.StatusOK, status, "the page says that two nodes do not show it: %s", said)
			}
		})
	}

	t.Run("commands", func(t *testing.T) {
		dir := t.TempDir()
		marks, status := program(t, dir, executable(wrong[0].name), "check", "--json")
		require.Equal(t, tool.StatusFailed, status)
		var verdict struct {
			OK     bool
			Checks []struct {
				Algorithm, Verdict string
				Violation          struct{ Kind, Script string }
			}
		}
		require.NoError(t, json.Unmarshal([]byte(marks), &verdict))
		require.False(t, verdict.OK)
		require.Equal(t, "mutual exclusion", verdict.Checks[0].Violation.Kind)
		lines := regexp.MustCompile(`(?m)^go run \./mine ([^#\n]*)`).FindAllStringSubmatch(text, -1)
		require.Len(t, lines, 14)
		for i, line := range lines {
			args := strings.Fields(line[1])
			name, want := "whole", tool.StatusOK
			switch {
			case i == 0:
				name, want = "mine", tool.StatusFailed
			case slices.Contains(args, "lossy"):
				want = tool.StatusFailed
			case slices.Contains(args, "-o") && slices.Contains(args, "check"):
				name, want = wrong[0].name, tool.StatusFailed
			case slices.Contains(args, "run.txt"):
				name = wrong[0].name
			case slices.Contains(args, "step"):
				stepByHand(t, executable(name), args)
				continue
			}
			said, status := program(t, dir, executable(name), args...)
			require.Equal(t, want, status, "%s\n%s", line[0], said)
			if i == 0 {
				require.Contains(t, text, "```\n"+regexp.MustCompile(`in \d+\.\d s`).ReplaceAllString(said, "in 0.0 s")+"```\n")
			}
		}
		require.FileExists(t, filepath.Join(dir, "run.html"))
		script, err := os.ReadFile(filepath.Join(dir, "run.txt"))
		require.NoError(t, err)
		require.Equal(t, verdict.Checks[0].Violation.Script, string(script), "as check -o writes it")
		require.FileExists(t, filepath.Join(dir, "run.svg"))
	})

	t.Run("rungs", func(t *testing.T) {
		for _, rung := range []string{"--network=duplicating", "--cancel"} {
			said, status := program(t, bin, executable("right"), "check", rung)
			require.Equal(t, tool.StatusFailed, status, "the rungs before ask for less: %s", said)
		}
		for _, rung := range []string{"", "--nodes=3 --requests=1", "--nodes=3 --requests=1 --network=unordered"} {
			said, status := program(t, bin, executable("right"), append([]string{"check"}, strings.Fields(rung)...)...)
			require.Equal(t, tool.StatusOK, status, said)
		}
		said, status := program(t, bin, executable("right"), "check", "--shares=1")
		require.Equal(t, tool.StatusUsage, status)
		require.Equal(t, "right: check: --shares: mine lets one node in at a time: for a dmutex.Sharer it lacks Share() ([]dmutex.Message, error) and Wanted() bool\nTry: right check --help\n", said)
		said, status = program(t, bin, executable("whole"), "check", "--shares=1", "--cancel")
		require.Equal(t, tool.StatusFailed, status)
		require.Contains(t, said, "\n# apart: ", "the last rung")
	})

	t.Run("sim", func(t *testing.T) {
		said, status := program(t, bin, executable("right"), "sim", "--nodes=9", "--algorithm=all")
		require.Equal(t, tool.StatusOK, status, said)
		require.Regexp(t, `(?m)^mine +9 +16 +- +2\.000 +2\.000 +- +- `, said)
		require.Regexp(t, `(?m)^ricart +9 +16 +16 +2\.000 +2\.000 +- +- `, said)
		said, status = program(t, bin, executable("mine"), "sim", "--nodes=9")
		require.Equal(t, tool.StatusFailed, status)
		require.Contains(t, said, "mine: mine, 9 nodes, load rare: dmutextest: deadlock: ")
	})
}

// The page says how a student's own module, beside the clone, gets the tools.
func TestOwnModule(t *testing.T) {
	if testing.Short() || quicktest.On() {
		t.Skip("may ask the module proxy for what this module's own tests do not need")
	}
	text, dir := page(t), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(between(t, text, "```go\n", "```\n")), 0o600))
	clone, err := filepath.Abs(root)
	require.NoError(t, err)
	t.Setenv("GOWORK", "off")
	lines := regexp.MustCompile(`(?m)^go (mod .*)$`).FindAllStringSubmatch(text, -1)
	require.Len(t, lines, 5)
	for _, line := range append(lines, []string{"", "build -o homework.exe ."}) {
		said, status := program(t, dir, "go", strings.Fields(strings.ReplaceAll(line[1], "../dmutex", filepath.ToSlash(clone)))...)
		require.Zero(t, status, "go %s\n%s", line[1], said)
	}
	said, status := program(t, dir, filepath.Join(dir, "homework.exe"), "check")
	require.Equal(t, tool.StatusFailed, status)
	require.Contains(t, said, "\n# deadlock: 1 waits, no node holds the lock and no message is in flight\n")
	require.Contains(t, said, "\n1 of 1 failed: mine.\n")
}

// stepByHand gets the page that a program serves.
func stepByHand(t *testing.T, executable string, args []string) {
	cmd := exec.Command(executable, args...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	address, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, address, "/?algorithm=mine&nodes=3")
	got, err := http.Get(strings.TrimSpace(address) + "&run=r2d0&done=2")
	require.NoError(t, err)
	defer got.Body.Close()
	served, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, got.StatusCode)
	require.Contains(t, string(served), "mine, 3 nodes")
	require.Contains(t, string(served), "2-&gt;1 REQUEST attempt=1")
}

// The runs of the exercises are golden counterexamples, and the answers link to them.
func TestExercises(t *testing.T) {
	text := page(t)
	runs := regexp.MustCompile("(?ms)^### Exercise (\\d)\n.*?^```\n(.*?)^```$").FindAllStringSubmatch(text, -1)
	answers := regexp.MustCompile(`(?m)^(\d)\. \[[^]]+\]\(\.\./([a-z]+/testdata/mutant-[a-z0-9-]+\.txt)\)`).FindAllStringSubmatch(between(t, text, "## Answers", "</details>"), -1)
	require.Len(t, runs, 6)
	require.Len(t, answers, len(runs))
	for i, run := range runs {
		golden, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(answers[i][2])))
		require.NoError(t, err)
		require.Equal(t, string(golden), run[2], "exercise %s", run[1])
		require.Equal(t, run[1], answers[i][1])
	}
}

// What the lecture says of each algorithm, of an entry and of the two delays.
var formulas = []struct{ name, messages, client, synchronization string }{
	{"central", "3", "2T", "2T"},
	{"witnessed", "3", "2T", "2T or 3T"},
	{"lamport", "3(N-1)", "2T", "T"},
	{"lamport-omit", "2(N-1) to 3(N-1)", "2T", "T"},
	{"ricart", "2(N-1)", "2T", "T"},
	{"carvalho", "0 to 2(N-1)", "0 or 2T", "T"},
	{"maekawa", "3(K-1) to 6(K-1)", "2T", "2T"},
	{"suzukikasami", "0 or N", "0 or 2T", "T"},
	{"ring", "0 to N", "0 to NT", "T to (N-1)T"},
}

// The table of the page has what sim measures.
func TestMeasures(t *testing.T) {
	status, stdout, stderr := tooltest.Run(new(struct {
		Sim sim.Cmd `cmd:""`
	}), "", "sim", "--nodes=9", "--json")
	require.Equal(t, tool.StatusOK, status, stderr)
	type spread struct{ Mean float64 }
	var all []struct {
		Algorithm, Load string
		Messages        struct {
			PerEntry float64 `json:"per_entry"`
		}
		Wait spread `json:"request_to_entry_T"`
		Next spread `json:"release_to_next_entry_T"`
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &all))
	table := "| N = 9 | messages | one | all | client delay | one | synchronization delay | all |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n"
	for _, f := range formulas {
		measured := make(map[string]string)
		for _, m := range all {
			if m.Algorithm == f.name {
				measured[m.Load] = brief(m.Messages.PerEntry)
				measured["wait "+m.Load], measured["next "+m.Load] = brief(m.Wait.Mean), brief(m.Next.Mean)
			}
		}
		require.Len(t, measured, 6, f.name)
		table += fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s | %s | %s |\n", f.name,
			f.messages, measured["rare"], measured["saturated"], f.client, measured["wait rare"], f.synchronization, measured["next saturated"])
	}
	rewritten(t, "measures", table)
}

// brief writes a number with two decimals, or none if it is exactly whole.
func brief(v float64) string {
	if v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
