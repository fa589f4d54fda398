package byhand

import (
	"html"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/internal/kit/browsertest"
	"github.com/dmutex/dmutex/ricart"
)

func show(t *testing.T, pairs ...string) string {
	t.Helper()
	fields := make(url.Values)
	for i := 0; i < len(pairs); i += 2 {
		fields.Set(pairs[i], pairs[i+1])
	}
	body, err := Page(fields)
	require.NoError(t, err)
	return body
}

var (
	forms   = regexp.MustCompile(`(?s)<form .*?</form>`)
	hidden  = regexp.MustCompile(`<input type="hidden" name="(.*?)" value="(?s:(.*?))">`)
	pressed = regexp.MustCompile(`<button name="(.*?)" value="((?s:.*?))"[^>]*>(.*?)</button>`)
	buttons = regexp.MustCompile(`<button name="do" value="(.*?)"( aria-label=".*?")?( disabled| autofocus)?>(.*?)</button>`)
	control = regexp.MustCompile(`(?s)<label>.*?</label>|<(select|textarea)`)
)

// press presses the first button of a page with that value, or those words, as a browser does.
func press(t *testing.T, body, which string) string {
	t.Helper()
	for _, form := range forms.FindAllString(body, -1) {
		for _, b := range pressed.FindAllStringSubmatch(form, -1) {
			if b[2] != which && b[3] != which {
				continue
			}
			fields := []string{b[1], html.UnescapeString(b[2])}
			for _, f := range hidden.FindAllStringSubmatch(form, -1) {
				fields = append(fields, f[1], html.UnescapeString(f[2]))
			}
			return show(t, fields...)
		}
	}
	require.Fail(t, "no such button", which)
	return ""
}

// A slip is a machine that panics when it gets a message.
type slip struct{ dmutex.Machine }

func (s slip) Clone() dmutex.Machine { return slip{s.Machine.Clone()} }

func (slip) Handle(dmutex.Message) ([]dmutex.Message, error) { panic("no such place") }

// A student's machine may panic. The page says so, and keeps the run to where it was right.
func TestPanics(t *testing.T) {
	before := catalog.All
	t.Cleanup(func() { catalog.All = before })
	catalog.Add(func(s dmutex.Start) (dmutex.Machine, error) {
		m, err := ricart.New(s)
		return slip{m}, err
	})
	body := show(t, "nodes", "2", "do", "r1")
	require.Contains(t, body, "<h1>mine, 2 nodes", "it is what the page begins with")
	for _, do := range []string{"d0", "random"} {
		body, err := Page(url.Values{"nodes": {"2"}, "run": {"r1r2"}, "done": {"2"}, "do": {do}})
		require.EqualError(t, err, "the machine panics: no such place. The command check says at which line")
		require.Contains(t, body, "the machine panics: no such place")
		require.Contains(t, body, `<input type="hidden" name="run" value="r1r2">`)
	}
	body, err := Page(url.Values{"nodes": {"2"}, "run": {"r1d0"}, "done": {"2"}})
	require.ErrorContains(t, err, "the machine panics")
	require.Contains(t, body, "the machine panics")
	body = show(t, "nodes", "2", "run", "r1r2", "done", "2", "do", "trouble")
	require.NotContains(t, body, "Not done")
}

// A reader presses random buttons. Each page is whole: no control without a label, no button without words, and
// at most one has the focus.
func TestButtons(t *testing.T) {
	for _, a := range Algorithms() {
		chance := rand.New(rand.NewPCG(1, 1))
		body := show(t, "algorithm", a.Name, "nodes", "3")
		for range 40 {
			require.NotContains(t, body, "%!")
			require.LessOrEqual(t, strings.Count(body, " autofocus"), 1)
			for _, c := range control.FindAllString(body, -1) {
				require.True(t, strings.HasPrefix(c, "<label>"), c)
			}
			var can []string
			for _, b := range buttons.FindAllStringSubmatch(body, -1) {
				require.NotEmpty(t, b[4])
				if b[3] != " disabled" {
					can = append(can, b[1])
				}
			}
			if len(can) == 0 {
				break
			}
			body = press(t, body, can[chance.IntN(len(can))])
		}
	}
}

// What was undone can be done again, and another step takes its place.
func TestUndo(t *testing.T) {
	body := show(t, "nodes", "2")
	for _, do := range []string{"r1", "d0", "d0"} {
		body = press(t, body, do)
	}
	require.Contains(t, body, "in the critical section, fence 1")
	back := press(t, press(t, body, "undo"), "undo")
	require.Contains(t, back, "1 of 3 steps are done")
	require.Equal(t, strings.ReplaceAll(body, " autofocus", ""), strings.ReplaceAll(press(t, back, "last"), " autofocus", ""))
	other := press(t, back, "l0")
	require.Contains(t, other, `name="run" value="r1l0"`)
	require.Contains(t, other, "A rule is broken: deadlock")
	require.Contains(t, press(t, other, "first"), "Nothing has happened yet")
}

// Two in the critical section are red, with the rule.
func TestTwoInside(t *testing.T) {
	body := show(t, "algorithm", "broken", "nodes", "3", "do", "trouble", "seed", "1")
	require.Equal(t, 2, strings.Count(body, `<li class="clash">`))
	require.Contains(t, body, "The rule that is broken: mutual exclusion")
}

// The deadlock of Maekawa's algorithm, step by step, and its resolution. Each begins with a button of any page.
func TestDeadlockOnThePage(t *testing.T) {
	body := press(t, show(t), "Maekawa&#39;s deadlock")
	require.Contains(t, body, "0 of 7 steps are done. Next: All are idle, and each node has its own vote to give. 1 asks its quorum {1,2,3},")
	for k := range 7 {
		require.NotContains(t, body, `class="wrong"`, k)
		body = press(t, body, "next step")
	}
	require.Contains(t, body, "A rule is broken: deadlock")
	require.Equal(t, 3, strings.Count(body, `<li class="waiting">`))
	const see = "<p>Now each node has its own vote, and waits for that of another."
	require.Contains(t, body, see)
	require.Contains(t, press(t, press(t, body, "undo"), "next step"), see)
	require.NotContains(t, press(t, press(t, body, "undo"), "random step"), see, "it is another run")

	body = press(t, body, "the same, resolved")
	for range 20 {
		require.NotContains(t, body, `class="wrong"`)
		body = press(t, body, "next step")
	}
	require.NotContains(t, body, `class="wrong"`)
	require.Contains(t, body, "FAILED")
	require.Contains(t, body, "All have been inside, one after the other")
	require.Equal(t, 3, strings.Count(body, `<li class="idle">`))
}

// What is wrong is on the page, and the run stays.
func TestProblems(t *testing.T) {
	for _, c := range []struct{ name, value, says string }{
		{"algorithm", "<b>", "there is no algorithm"},
		{"nodes", "10", "choose 1 to 9 nodes"},
		{"nodes", "x", "nodes is no number"},
		{"run", "q1", "no step has the letter"},
		{"run", "r9", "there is no node 9"},
		{"done", "5", "5 of 1 steps cannot be done"},
		{"do", "d7", "no such message is in flight"},
		{"do", "<script>", "nobody can do"},
		{"begin", "group 1 2;holder 9", "Start.Holder 9"},
		{"script", "nonsense", "line 1"},
		{"script", strings.Repeat("x", MostText), "a page has at most 65536 bytes"},
	} {
		fields := url.Values{"nodes": {"2"}, "run": {"r1"}, "done": {"1"}}
		fields.Set(c.name, c.value)
		body, err := Page(fields)
		require.ErrorContains(t, err, c.says)
		require.Contains(t, body, "Not done: ")
		require.NotContains(t, body, "<b>")
		require.NotContains(t, body, "<script>")
	}
	body := show(t, "script", "# </textarea><script>alert(1)</script>\ngroup 1 2\n# \"><img src=x>\nrequest 1\n")
	require.NotContains(t, body, "<script>")
	require.NotContains(t, press(t, body, "redo"), "<img")
}

// The page fits a phone and a screen, and every control can be reached by the keyboard.
func TestBrowser(t *testing.T) {
	body := show(t, "algorithm", "maekawa", "nodes", "5", "run", "r1r2r3d0d0d0", "done", "6")
	for _, size := range [][2]int{{360, 740}, {1280, 900}} {
		var said struct {
			Wide, Window, Buttons, Focus int
			Small                        []string
		}
		browsertest.Look(t, []byte(Document("", body)), size[0], size[1], false, `
			const buttons = [...document.querySelectorAll("button:not(:disabled), select, textarea")];
			let focus = 0;
			for (const b of buttons) { b.focus(); if (document.activeElement == b) focus++; }
			return { Wide: document.scrollingElement.scrollWidth, Window: window.innerWidth, Buttons: buttons.length, Focus: focus,
				Small: buttons.filter((b) => b.getBoundingClientRect().height < 24).map((b) => b.textContent) };`, &said)
		require.LessOrEqual(t, said.Wide, said.Window)
		require.Greater(t, said.Buttons, 15)
		require.Equal(t, said.Buttons, said.Focus)
		require.Empty(t, said.Small)
	}
}
