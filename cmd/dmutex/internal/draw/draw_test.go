package draw_test

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/draw"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/trace"
)

var _ = flag.Bool("update", false, "rewrite the golden files")

// Two nodes on a bad network. Node 1 asks twice, and its last message never arrives.
const (
	one = `{"dmutex":"trace","version":5,"self":1,"members":[1,2],"algorithm":"ricart 1 idle","life":11,"opened":1700000001000000000}
{"t":1000000,"do":"met","peer":2,"life":22}
{"t":2000000,"do":"born","lock":"a<b","phase":"idle"}
{"t":2000000,"do":"request","lock":"a<b","out":[{"kind":"REQUEST","seq":2,"to":2,"attempt":1}],"phase":"waiting"}
{"t":3000000,"do":"handle","lock":"a<b","fence":1,"in":{"kind":"REPLY","seq":2,"from":2,"attempt":1},"phase":"held"}
{"t":3100000,"do":"born","lock":"other","phase":"idle"}
{"t":3200000,"do":"handle","lock":"a<b","fence":1,"in":{"kind":"REQUEST","seq":3,"from":2,"attempt":2},"phase":"held"}
{"t":4000000,"do":"release","lock":"a<b","out":[{"kind":"REPLY","seq":3,"to":2,"attempt":2,"fence":1}],"phase":"idle"}
{"t":5000000,"do":"request","lock":"a<b","out":[{"kind":"REQUEST","seq":4,"to":2,"attempt":3,"fence":1}],"phase":"waiting"}
{"t":6000000,"do":"left","peer":2}
{"t":6000000,"do":"down","err":"node 2 has left; it closed"}
{"t":6500000,"do":"close"}
`
	two = `{"dmutex":"trace","version":5,"self":2,"members":[1,2],"algorithm":"ricart 2 idle","life":22,"opened":1700000001000000000}
{"t":900000,"do":"met","peer":1,"life":11}
{"t":2600000,"do":"born","lock":"a<b","phase":"idle"}
{"t":2600000,"do":"handle","lock":"a<b","in":{"kind":"REQUEST","seq":2,"from":1,"attempt":1},"out":[{"kind":"REPLY","seq":2,"to":1,"attempt":1}],"phase":"idle"}
{"t":2650000,"do":"request","lock":"a<b","out":[{"kind":"REQUEST","seq":3,"to":1,"attempt":2}],"phase":"waiting"}
{"t":4200000,"do":"handle","lock":"a<b","fence":2,"in":{"kind":"REPLY","seq":3,"from":1,"attempt":2,"fence":1},"phase":"held"}
{"t":4600000,"do":"release","lock":"a<b","phase":"idle"}
{"t":4700000,"do":"close"}
`
)

func read(t testing.TB, texts ...string) (traces []*trace.Trace) {
	for i, text := range texts {
		tr, err := trace.Read(fmt.Sprint("file ", i+1), strings.NewReader(text))
		require.NoError(t, err)
		traces = append(traces, tr)
	}
	return traces
}

func drawn(t testing.TB, traces []*trace.Trace, o draw.Options) *draw.Drawing {
	d, err := draw.New(traces, o)
	require.NoError(t, err)
	return d
}

func TestForms(t *testing.T) {
	traces := read(t, one, two)
	for _, tr := range traces {
		_, err := dmutextest.Replay(tr, ricart.New)
		require.NoError(t, err, "the example is a possible run")
	}
	d := drawn(t, traces, draw.Options{Title: "Losses & <more>", Lock: "a<b"})
	for file, text := range map[string][]byte{
		"small.svg": d.SVG(), "small.html": d.HTML(),
	} {
		goldentest.Compare(t, "testdata/"+file, string(text))
	}
	wellFormed(t, d.SVG())

	svg := string(d.SVG())
	require.Equal(t, 1, strings.Count(svg, `did not arrive</title>`), "the last request")
	require.NotContains(t, string(d.HTML()), "http://www.w3.org/1999")
}

func wellFormed(t testing.TB, svg []byte) {
	for dec := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := dec.Token(); err == io.EOF {
			return
		} else {
			require.NoError(t, err)
		}
	}
}

func scripted(t testing.TB, script string) []*trace.Trace {
	traces, err := dmutextest.TraceScript(ricart.New, script)
	require.NoError(t, err)
	return traces
}

// pair returns the traces of a request and its reply. The times are in nanoseconds.
func pair(opened1, sent, answered, opened2, heard int64) []string {
	return []string{
		fmt.Sprintf(`{"dmutex":"trace","version":5,"self":1,"members":[1,2],"opened":%d}
{"t":0,"do":"born","lock":"x","phase":"idle"}
{"t":%d,"do":"request","lock":"x","out":[{"kind":"REQUEST","seq":1,"to":2,"attempt":1}],"phase":"waiting"}
{"t":%d,"do":"handle","lock":"x","fence":1,"in":{"kind":"REPLY","seq":1,"from":2,"attempt":1},"phase":"held"}
`, opened1, sent, answered),
		fmt.Sprintf(`{"dmutex":"trace","version":5,"self":2,"members":[1,2],"opened":%d}
{"t":0,"do":"born","lock":"x","phase":"idle"}
{"t":%d,"do":"handle","lock":"x","in":{"kind":"REQUEST","seq":1,"from":1,"attempt":1},"out":[{"kind":"REPLY","seq":1,"to":1,"attempt":1}],"phase":"idle"}
`, opened2, heard),
	}
}

var times = regexp.MustCompile(`2-&gt;1 REPLY attempt=1, sent at (\S+ µs), received at (\S+ µs)`)

// Clocks are shifted no further than necessary.
func TestClocks(t *testing.T) {
	for _, tt := range []struct {
		name           string
		files          []string
		sent, received string
	}{
		{"right", pair(1e6, 1000, 9000, 1e6+2000, 3000), "5.0 µs", "9.0 µs"},
		{"2 is behind", pair(1e9, 1000, 9000, 5e8, 3000), "3.0 µs", "11.0 µs"}, // counted from the opening of 2
		{"2 is ahead", pair(5e8, 1000, 9000, 1e9, 3000), "9.0 µs", "9.0 µs"},
		{"they drift", pair(1e9, 9000, 9001, 1e9, 20), "9.0 µs", "9.0 µs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			match := times.FindStringSubmatch(string(drawn(t, read(t, tt.files...), draw.Options{}).SVG()))
			require.NotNil(t, match)
			require.Equal(t, []string{tt.sent, tt.received}, match[1:])
		})
	}
}

func TestContradiction(t *testing.T) {
	files := []string{
		`{"dmutex":"trace","version":5,"self":1,"members":[1,2]}
{"t":1,"do":"handle","lock":"x","in":{"kind":"REPLY","seq":1,"from":2},"phase":"idle"}
{"t":2,"do":"handle","lock":"x","in":{"kind":"REPLY","seq":2,"from":2},"out":[{"kind":"REPLY","seq":1,"to":2}],"phase":"idle"}
`,
		`{"dmutex":"trace","version":5,"self":2,"members":[1,2]}
{"t":1,"do":"handle","lock":"x","in":{"kind":"REPLY","seq":1,"from":1},"out":[{"kind":"REPLY","seq":1,"to":1}],"phase":"idle"}
`,
	}
	_, err := draw.New(read(t, files...), draw.Options{})
	require.ErrorIs(t, err, trace.ErrFormat)
	require.ErrorContains(t, err, "contradict each other")
}

func TestRefused(t *testing.T) {
	traces := read(t, one, two)
	for _, tt := range []struct {
		traces []*trace.Trace
		o      draw.Options
		why    string
	}{
		{nil, draw.Options{}, "no trace"},
		{traces, draw.Options{Lock: "c"}, `no lock "c" in the traces; of 2 the busiest are ["a<b" "other"]`},
		{traces, draw.Options{From: time.Hour}, "nothing happens"},
		{read(t, one, one), draw.Options{}, "file 1 and file 2 are both of one run of a process"},
		{read(t, one, strings.Replace(two, "[1,2]", "[1,2,3]", 1)), draw.Options{}, "file 1 and file 2 are of different groups"},
		{read(t, one, strings.Replace(two, `,"algorithm"`, `,"group":"g","algorithm"`, 1)), draw.Options{}, "different groups"},
		{read(t, one[:strings.Index(one, "\n")+1]), draw.Options{}, "empty"},
	} {
		_, err := draw.New(tt.traces, tt.o)
		require.ErrorContains(t, err, tt.why)
	}
	var many trace.Trace
	many.Header = traces[0].Header
	for i := range 9 {
		many.Events = append(many.Events, trace.Event{What: trace.Born, Lock: fmt.Sprint("lock ", i)})
	}
	_, err := draw.New([]*trace.Trace{&many}, draw.Options{})
	require.ErrorContains(t, err, "there are 9 locks")
}

// A script says what is lost. What it has not delivered at its end is on its way, and has no cross.
func TestOnItsWay(t *testing.T) {
	for _, tt := range []struct {
		name, script  string
		flying, cross int
	}{
		{"fifo", "group 1 2\nrequest 1\n", 1, 0},
		{"unordered, the older one waits", "group 1 2\nnetwork unordered\nrequest 1\ndeliver 1->2\nrequest 2\ndeliver 2->1 REQUEST\n", 1, 0},
		{"lost", "group 1 2 3\nnetwork fifo, 1 loss\nrequest 1\nlose 1->2\n", 1, 1},
		{"a copy is left", "group 1 2\nnetwork fifo, 1 duplicate\nrequest 1\nduplicate 1->2\n", 1, 0},
		{"all arrive", "group 1 2\nrequest 1\ndeliver all\n", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			traces := scripted(t, tt.script)
			for _, d := range []*draw.Drawing{drawn(t, traces, draw.Options{}), drawn(t, traces, draw.Options{Width: 400})} {
				wellFormed(t, d.SVG())
				require.Equal(t, tt.flying, strings.Count(string(d.SVG()), ", on its way at the end</title>"))
				require.Equal(t, tt.cross, strings.Count(string(d.SVG()), ", did not arrive</title>"))
				require.Equal(t, tt.flying > 0, strings.Contains(string(d.HTML()), "</svg> on its way at the end"), "the legend")
			}
			for i, tr := range traces {
				var file bytes.Buffer
				require.NoError(t, tr.Write(&file))
				again, err := trace.Read("again", &file)
				require.NoError(t, err)
				_, err = dmutextest.Replay(again, ricart.New)
				require.NoError(t, err)
				traces[i] = again
			}
			v, err := draw.Judge(traces)
			require.NoError(t, err)
			require.Empty(t, v.Faults)
			require.Equal(t, tt.cross, strings.Count(string(drawn(t, traces, draw.Options{}).SVG()), ", did not arrive</title>"), "of the files")
		})
	}
}

// The moment at which a run went wrong, which is its end, has a red line with the name of what is wrong.
func TestBroken(t *testing.T) {
	traces := scripted(t, "group 1 2\nrequest 1\ndeliver all\nrelease 1\n")
	d := drawn(t, traces, draw.Options{Broken: "fence <order>"})
	wellFormed(t, d.SVG())
	at := regexp.MustCompile(`<path d="M(\S+) \S+" stroke="#c00000" [^>]*><title>fence &lt;order&gt;</title>`).FindStringSubmatch(string(d.SVG()))
	require.NotNil(t, at)
	points := regexp.MustCompile(`<circle cx="(\S+)"`).FindAllStringSubmatch(string(d.SVG()), -1)
	require.Equal(t, points[len(points)-1][1], at[1])
	require.Contains(t, string(d.SVG()), ">fence &lt;order&gt;</text>")
	require.Contains(t, string(d.HTML()), ">fence &lt;order&gt;</text>")
	require.NotContains(t, string(drawn(t, traces, draw.Options{}).SVG()), "#c00000")
}

// No row shows only the nodes.
func TestLastRow(t *testing.T) {
	for _, end := range []string{"release 2\ndeliver all\n", "request 3\n"} {
		traces := scripted(t, "group 1 2 3\n"+strings.Repeat("request 1\nrequest 2\ndeliver all\nrelease 1\ndeliver all\nrelease 2\ndeliver all\n", 3)+"request 2\ndeliver all\n"+end)
		for width := 400; width < 900; width += 5 {
			rows := strings.Split(string(drawn(t, traces, draw.Options{Width: width}).SVG()), `<svg x="0"`)
			last, _, _ := strings.Cut(rows[len(rows)-1], "</svg>")
			require.Regexp(t, `<circle|<rect|class="m"`, last, "width %d", width)
		}
	}
}

// Parts of a drawing: one node's trace alone, a time that cuts bars and
// messages, rows that are short, two lives of a node.
func TestParts(t *testing.T) {
	alone := drawn(t, read(t, one), draw.Options{Lock: "a<b"})
	require.Contains(t, string(alone.SVG()), "what became of it is not known")

	// A trace cannot prove that a message was lost if it is cut off, has a gap, or
	// does not end with a close.
	for _, two := range []string{
		two[:len(two)-1],
		strings.Replace(two, `{"t":900000,"do":"met","peer":1,"life":11}`, `{"t":900000,"do":"gap","n":1}`, 1),
		strings.Replace(two, `{"t":4700000,"do":"close"}`+"\n", ``, 1),
	} {
		svg := string(drawn(t, read(t, one, two), draw.Options{Lock: "a<b"}).SVG())
		require.NotContains(t, svg, `did not arrive</title>`, two)
	}

	traces := read(t, one, two)
	part := string(drawn(t, traces, draw.Options{Lock: "a<b", From: 1500 * time.Microsecond, To: 3500 * time.Microsecond}).SVG())
	require.Contains(t, part, "holds the lock with fence 1")
	require.Contains(t, part, "holds the lock with fence 2")
	later := string(drawn(t, traces, draw.Options{Lock: "a<b", From: 2200 * time.Microsecond}).SVG())
	require.Contains(t, later, "holds the lock with fence 1")
	require.Contains(t, later, "holds the lock with fence 2")
	part = string(drawn(t, traces, draw.Options{Lock: "a<b", To: 2200 * time.Microsecond}).SVG())
	require.Contains(t, part, "holds the lock with fence 1")
	require.NotContains(t, part, "holds the lock with fence 2")

	long := "group 1 2 3\n"
	for range 30 {
		long += "\nrequest 1\nrequest 2\ndeliver all\nrelease 1\ndeliver all\nrelease 2\ndeliver all\n"
	}
	svg := drawn(t, scripted(t, long), draw.Options{Width: 600}).SVG()
	wellFormed(t, svg)
	require.Greater(t, strings.Count(string(svg), ">N3<"), 5, "each row has its own labels")
	require.Equal(t, 60, strings.Count(string(svg), " holds the lock with fence ")-inTwoRows(string(svg)))

	again := strings.NewReplacer(`"life":11`, `"life":33`, "1700000001", "1700000009").Replace(one)
	both := drawn(t, read(t, one, two, again), draw.Options{Lock: "a<b"})
	wellFormed(t, both.SVG())
}

// In a drawing of several locks, each lock looks as it does alone, with the events of
// the nodes.
func TestSeveralLocks(t *testing.T) {
	busy := `{"t":3300000,"do":"request","lock":"busy","phase":"waiting"}
{"t":3400000,"do":"cancel","lock":"busy","phase":"idle"}
`
	for range 4 {
		busy += busy
	}
	traces := read(t, strings.Replace(one, `{"t":4000000`, busy+`{"t":4000000`, 1), two)
	all := drawn(t, traces, draw.Options{})
	panel := regexp.MustCompile(`(?s)<svg x="0".*?</svg>\n</g>\n<g`)
	panels := panel.FindAllString(string(all.SVG()), -1)
	require.Len(t, panels, 2)
	for i, lock := range []string{"a<b", "busy"} {
		require.Equal(t, panels[i], panel.FindString(string(drawn(t, traces, draw.Options{Lock: lock}).SVG())), lock)
	}
}

// The header of the page has the explanations and the filters. The page shows the
// busiest lock first, and the classes of a shape name its nodes.
func TestPage(t *testing.T) {
	idle := `{"t":3300000,"do":"request","lock":"idle","phase":"waiting"}
{"t":3400000,"do":"cancel","lock":"idle","phase":"idle"}
`
	traces := read(t, strings.Replace(one, `{"t":4000000`, idle+`{"t":4000000`, 1), two)
	page := string(drawn(t, traces, draw.Options{Title: "a <b>"}).HTML())
	head, locks, ok := strings.Cut(page, "</header>")
	require.True(t, ok)
	require.Contains(t, head, "<h1>a &lt;b&gt;</h1>")
	require.Contains(t, head, `<option value="lock0" selected>&#34;a&lt;b&#34;</option><option value="lock1">&#34;idle&#34;</option><option value="">all</option>`)
	for _, box := range []string{`value="n1" checked>N1<`, `value="n2" checked>N2<`} {
		require.Contains(t, head, box)
	}
	require.Contains(t, head, "in the critical section")
	require.NotContains(t, locks, "in the critical section")
	require.Contains(t, locks, `<section id="lock0">`)
	require.Contains(t, locks, `<section id="lock1" hidden>`)
	require.Equal(t, 1, strings.Count(locks, `<g class="n1 n2"><g class="m"><title>1-&gt;2 REQUEST attempt=3`))
	require.Contains(t, locks, `<g class="n2"><rect `)
	require.Contains(t, locks, `<rect class="n2" `, "in the overview")

	alone := string(drawn(t, traces, draw.Options{Lock: "a<b"}).HTML())
	require.NotContains(t, alone, "<select", "there is no choice")
	require.NotContains(t, string(drawn(t, traces, draw.Options{}).SVG()), `class="n`)
}

// A node that holds the lock during the whole picture is drawn, although it has no event
// in it.
func TestHolderWithoutEvents(t *testing.T) {
	traces := read(t, `{"dmutex":"trace","version":5,"self":1,"members":[1,2]}
{"t":0,"do":"request","lock":"x","fence":7,"phase":"held"}
{"t":9000000000,"do":"release","lock":"x","phase":"idle"}
`, `{"dmutex":"trace","version":5,"self":2,"members":[1,2]}
{"t":2000000000,"do":"request","lock":"x","phase":"waiting"}
{"t":3000000000,"do":"cancel","lock":"x","phase":"idle"}
`)
	d := drawn(t, traces, draw.Options{From: time.Second, To: 4 * time.Second})
	require.Contains(t, string(d.SVG()), ">N1</text>")
	require.Contains(t, string(d.SVG()), `<rect x="0" y="-8" `)
	require.Contains(t, string(d.SVG()), "node 1 holds the lock with fence ")
}

// restart returns the traces of docs/figures: a rolling restart of three nodes.
func restart(t testing.TB) []*trace.Trace { return figure(t, "restart", 6) }

func figure(t testing.TB, name string, files int) (traces []*trace.Trace) {
	names, err := filepath.Glob("../../../../docs/figures/" + name + "/*.trace")
	require.NoError(t, err)
	require.Len(t, names, files)
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		traces = append(traces, read(t, string(text))...)
		traces[len(traces)-1].Name = filepath.Base(name)
	}
	return traces
}

// A view change is drawn: its epoch and members, the missing members, the hold that
// is carried over, and the node that is gone for a while.
func TestViews(t *testing.T) {
	d := drawn(t, restart(t), draw.Options{Width: 5000})
	svg := string(d.SVG())
	wellFormed(t, d.SVG())
	for _, label := range []string{"view 2: N1 N2 N3", "view 3: N2 N3, without N1", "view 5: N1 N2 N3", "view 6: N1 N2 N3", "view 7: N1 N2, without N3"} {
		require.Equal(t, 1, strings.Count(svg, ">"+label+"</text>"), label)
	}
	require.Regexp(t, `<title>view 3 of N2 N3, without N1; N2 installs it at \S+ s and acts at \S+ s; N3 installs it at \S+ s and acts at \S+ s</title>`, svg)
	require.Equal(t, 1, strings.Count(svg, "<title>node 3 holds the lock with fence 2:1,"), "one bar through three views")
	require.Equal(t, 3, strings.Count(svg, "<title>node 2 waits, "), "the node asks again in each view")
	require.Regexp(t, `node 2 holds the lock with fence 5:1, from (\S+) s to \S+ s</title>`, svg)
	require.Equal(t, 3+1, strings.Count(svg, `stroke-dasharray="1 5"`), "each node is gone once, and the legend has one more")
	require.Equal(t, 1, strings.Count(svg, ">crashed</text>"))
	require.Equal(t, 2, strings.Count(svg, ">closed</text>"))
	require.Equal(t, 3, strings.Count(svg, ">started</text>"))
	require.NotContains(t, svg, "has restarted", "the node's own trace shows the restart")

	alone := string(drawn(t, restart(t)[:1], draw.Options{}).SVG())
	require.NotContains(t, alone, ">started</text>", "it was there from the beginning")
	two := string(drawn(t, restart(t)[2:4], draw.Options{}).SVG())
	require.Equal(t, 1, strings.Count(two, ">node 1 has restarted</text>"), "there is no trace of node 1")

	page := string(d.HTML())
	require.Contains(t, page, "the group changes")
	require.Contains(t, page, ">view 3: N2 N3, without N1</text>")
	require.Equal(t, 3+2+3+3+2+3, strings.Count(page, `width="2" height="9" fill="#6a4c93"/>`), "in the overview")
}

// An event that the drawing does not know is drawn by its name.
func TestNewEvent(t *testing.T) {
	traces := read(t, one, two)
	i := slices.IndexFunc(traces[0].Events, func(e trace.Event) bool { return e.What == trace.Met })
	traces[0].Events[i].What = "eclipse"
	require.Contains(t, string(drawn(t, traces, draw.Options{Lock: "a<b"}).SVG()), ">eclipse</text>")
}

// A message in flight when the view changes is dropped, not lost.
func TestStale(t *testing.T) {
	const sender = `{"dmutex":"trace","version":5,"self":1,"members":[1,2],"life":11,"opened":1700000001000000000}
{"t":1000,"do":"view","peer":1,"life":11,"n":1,"members":[1,2]}
{"t":2000,"do":"ready","n":1}
{"t":3000,"do":"born","lock":"x","fence":4194304,"phase":"idle"}
{"t":3000,"do":"request","lock":"x","out":[{"kind":"REQUEST","seq":1,"to":2,"attempt":1,"fence":4194304}],"phase":"waiting"}
{"t":9000,"do":"close"}
`
	receiver := func(epoch int) string {
		return fmt.Sprintf(`{"dmutex":"trace","version":5,"self":2,"members":[1,2],"life":22,"opened":1700000001000000000}
{"t":1000,"do":"view","peer":2,"life":22,"n":1,"members":[1,2]}
{"t":3500,"do":"view","peer":2,"life":22,"n":%d,"members":[1,2]}
{"t":9000,"do":"close"}
`, epoch)
	}
	svg := string(drawn(t, read(t, sender, receiver(2)), draw.Options{}).SVG())
	require.Contains(t, svg, "sent at 2.0 µs, dropped: its view was over</title>")
	require.NotContains(t, svg, "did not arrive")
	svg = string(drawn(t, read(t, sender, receiver(1)), draw.Options{}).SVG())
	require.Contains(t, svg, "did not arrive")
}

// A life that gets a new number before its first view keeps its messages.
func TestRenamed(t *testing.T) {
	svg := string(drawn(t, read(t, `{"dmutex":"trace","version":5,"self":1,"members":[1,2],"life":11,"opened":1700000001000000000}
{"t":1000,"do":"view","peer":1,"life":12,"n":1,"members":[1,2]}
{"t":2000,"do":"met","peer":2,"life":22}
{"t":3000,"do":"request","lock":"x","out":[{"kind":"REQUEST","seq":1,"to":2,"attempt":1}],"phase":"waiting"}
`, `{"dmutex":"trace","version":5,"self":2,"members":[1,2],"life":22,"opened":1700000001000000000}
{"t":500,"do":"met","peer":1,"life":11}
{"t":2000,"do":"met","peer":1,"life":12}
{"t":4000,"do":"handle","lock":"x","in":{"kind":"REQUEST","seq":1,"from":1,"attempt":1},"phase":"idle"}
`), draw.Options{}).SVG())
	require.Contains(t, svg, "<title>1-&gt;2 REQUEST attempt=1, sent at 2.5 µs, received at 3.5 µs</title>")
	require.NotContains(t, svg, "has restarted")
}

// A bar ends where the node learns that its hold is over: the lock was released while no
// view acts, another member holds the lock by a later grant, or the node has to stop.
func TestHoldEnds(t *testing.T) {
	const held = `{"dmutex":"trace","version":5,"self":1,"members":[1,2]}
{"t":1000000000,"do":"view","peer":1,"n":1,"members":[1,2]}
{"t":1000000000,"do":"ready","n":1}
{"t":2000000000,"do":"born","lock":"x","fence":4194304,"phase":"idle"}
{"t":2000000000,"do":"request","lock":"x","fence":4194305,"phase":"held"}
`
	const changed = held + `{"t":3000000000,"do":"forget","lock":"x"}
{"t":3000000000,"do":"view","peer":1,"n":2,"members":[1,2]}
`
	for _, tt := range []struct{ name, text, until string }{
		{"never", held, "the end of the trace"},
		{"frozen", changed, "the end of the trace"},
		{"carried over", changed + `{"t":4000000000,"do":"born","lock":"x","holder":1,"fence":8388608,"phase":"held"}
{"t":4000000000,"do":"ready","n":2}
{"t":5000000000,"do":"handle","lock":"x","fence":8388608,"in":{"kind":"REQUEST","from":2,"attempt":1,"fence":8388608},"phase":"held"}
{"t":6000000000,"do":"release","lock":"x","phase":"idle"}
`, "5"},
		{"released while frozen", changed + `{"t":4000000000,"do":"ready","n":2}
`, "2"},
		{"overruled", changed + `{"t":4000000000,"do":"born","lock":"x","holder":2,"fence":8388608,"phase":"idle"}
{"t":5000000000,"do":"ready","n":2}
`, "3"},
		{"stopped", held + `{"t":3000000000,"do":"down","err":"node: evicted"}
`, "2"},
		{"closing", held + `{"t":3000000000,"do":"down"}
{"t":4000000000,"do":"release","lock":"x","phase":"idle"}
`, "3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			svg := string(drawn(t, read(t, tt.text), draw.Options{}).SVG())
			require.Equal(t, 1, strings.Count(svg, "holds the lock with fence "))
			require.Contains(t, svg, "holds the lock with fence 1:1, from 1 to "+tt.until+"</title>")
		})
	}
}

// There is room for long node numbers.
func TestLongNumbers(t *testing.T) {
	const id = "18446744073709551615"
	svg := string(drawn(t, read(t, `{"dmutex":"trace","version":5,"self":1,"members":[1,`+id+`]}
{"t":0,"do":"request","lock":"x","out":[{"kind":"REQUEST","seq":1,"to":`+id+`,"attempt":1}],"phase":"waiting"}
`), draw.Options{Width: 400}).SVG())
	require.Contains(t, svg, ">N"+id+"</text>")
	var room int
	_, err := fmt.Sscanf(svg[strings.Index(svg, "<g transform"):], `<g transform="translate(%d`, &room)
	require.NoError(t, err)
	require.Greater(t, room, 8*len(id), "the number stands to the left of the lines")
	wellFormed(t, []byte(svg))
}

// A title is not cut off at the edge of a small picture: the picture grows, or the
// title is shortened and the tooltip shows the whole title.
func TestLongTitle(t *testing.T) {
	small := `{"dmutex":"trace","version":5,"self":1,"members":[1]}
{"t":0,"do":"request","lock":"x","fence":1,"phase":"held"}
`
	width := func(title string) (width float64, svg string) {
		svg = string(drawn(t, read(t, small), draw.Options{Title: title}).SVG())
		_, err := fmt.Sscanf(svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%f"`, &width)
		require.NoError(t, err)
		return width, svg
	}
	usual, _ := width("title")
	long, svg := width(strings.Repeat("long ", 20))
	require.Greater(t, long, 2*usual)
	require.Contains(t, svg, ">"+strings.Repeat("long ", 20)+"</text>")
	longest, svg := width(strings.Repeat("longest ", 1000))
	require.Greater(t, longest, long)
	require.LessOrEqual(t, longest, 1500.0)
	require.Contains(t, svg, "<title>"+strings.Repeat("longest ", 1000)+"</title>long")
	require.Contains(t, svg, " ...</text>")
}

// A file may be hostile: a drawing that would be far larger than its file is refused.
func TestBounds(t *testing.T) {
	members := dmutextest.Nodes(1001)
	tick := trace.Event{What: trace.Tick, Lock: "x"}
	for _, id := range members[1:] {
		tick.Out = append(tick.Out, trace.Message{Message: dmutex.Message{Kind: dmutex.Reply, From: 1, To: id}})
	}
	crowd := &trace.Trace{Header: trace.Header{Self: 1, Members: members}, Events: []trace.Event{tick}}
	_, err := draw.New([]*trace.Trace{crowd}, draw.Options{})
	require.ErrorContains(t, err, "1001 nodes of lock")

	message := func(seq int) trace.Message {
		return trace.Message{Seq: uint64(seq), Message: dmutex.Message{Kind: dmutex.Reply, From: 1, To: 2, Attempt: 1}}
	}
	var sender, receiver trace.Trace
	sender.Header.Self, receiver.Header.Self = 1, 2
	sender.Header.Members = dmutextest.Nodes(2)
	receiver.Header.Members = sender.Header.Members
	const many = 4000
	for i := range many { // all are sent before any arrives, the highest number first
		m := message(many - i)
		sender.Events = append(sender.Events, trace.Event{What: trace.Tick, Lock: "x", Time: int64(i), Out: []trace.Message{m}})
		receiver.Events = append(receiver.Events, trace.Event{What: trace.Handle, Lock: "x", Time: int64(many + i), In: m})
	}
	_, err = draw.New([]*trace.Trace{&sender, &receiver}, draw.Options{Width: 400})
	require.ErrorContains(t, err, "pieces of messages")
}

// If a gap hides the end of a hold, its bar ends where the lock is born again.
func TestBarBeforeGap(t *testing.T) {
	svg := string(drawn(t, read(t, `{"dmutex":"trace","version":5,"self":1,"members":[1]}
{"t":0,"do":"born","lock":"x","phase":"idle"}
{"t":1000000000,"do":"request","lock":"x","fence":1,"phase":"held"}
{"t":2000000000,"do":"gap","n":2}
{"t":3000000000,"do":"born","lock":"x","phase":"idle"}
`), draw.Options{}).SVG())
	require.Regexp(t, `<rect x="24" y="-8" width="1\d\d" height="16" .*holds the lock with fence 1, from 1 to 3</title>`, svg)
}

// inTwoRows counts the bars that are drawn twice, since they reach into a second
// row.
func inTwoRows(svg string) (n int) {
	seen := make(map[string]bool)
	for _, title := range regexp.MustCompile(`<title>(node \d+ holds[^<]*)`).FindAllString(svg, -1) {
		if seen[title] {
			n++
		}
		seen[title] = true
	}
	return n
}

// Any trace makes a well-formed picture, or is refused.
func FuzzDraw(f *testing.F) {
	f.Add(one, two, "a<b", int64(0))
	f.Add(strings.Replace(one, "it closed", `\u0001]]>\u000a&`, 1), two, "", int64(2e6))
	f.Add(pair(1e6, 1000, 9000, 5e8, 3000)[0], pair(1e6, 1000, 9000, 5e8, 3000)[1], "x", int64(1))
	for _, traces := range [][]*trace.Trace{restart(f), append(figure(f, "failover", 4), read(f, cutOff)...)} {
		for i, tr := range traces {
			var a, b bytes.Buffer
			require.NoError(f, tr.Write(&a))
			require.NoError(f, traces[(i+2)%len(traces)].Write(&b))
			f.Add(a.String(), b.String(), "", int64(0))
		}
	}
	f.Fuzz(func(t *testing.T, one, two, lock string, to int64) {
		var traces []*trace.Trace
		for _, text := range []string{one, two} {
			tr, err := trace.Read("f", strings.NewReader(text))
			if err != nil {
				t.Skip()
			}
			traces = append(traces, tr)
		}
		d, err := draw.New(traces, draw.Options{Title: lock, Lock: lock, To: time.Duration(to)})
		if err != nil {
			return
		}
		wellFormed(t, d.SVG())
		require.NotContains(t, string(d.SVG()), "NaN")
		require.NotContains(t, string(d.HTML()), "NaN")
		_, err = draw.Judge(traces)
		require.NoError(t, err)
	})
}
