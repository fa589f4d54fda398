// Package draw makes pictures of traces: what nodes did, and the messages
// between them, over time.
//
// The clocks of the traces are aligned so that no message arrives before it was
// sent. Where no message connects two events, their drawn order is only as good as
// the nodes' wall clocks.
//
// A change of the group is a band across its members, at each from where it installs
// the new view to where it acts in it. The messages that lead to a view concern no lock
// and are not in traces. Each life of a node has a trace of its own.
package draw

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/trace"
)

// Options says what is drawn. If Lock is empty, that is all locks, at most eight; if To is 0, all
// to the end; if Width is 0, rows have 1500 pixels. The tags are for trace draw.
type Options struct {
	Lock   string        `help:"Draw this lock only."`
	From   time.Duration `least:"0s" help:"Begin this long after the first event."`
	To     time.Duration `help:"End this long after the first event."`
	Title  string        `help:"Written above the picture."`
	Broken string        `kong:"-"` // the name of what is wrong from the last event on
	Width  int           `default:"1500" least:"400" help:"Pixels after which a new row begins, at least 400; of svg. A page scrolls instead."`
}

const (
	mostPanels = 8
	mostPoints = 100_000
	mostLines  = 1000    // of nodes
	mostPieces = 300_000 // of messages: one for each sending, receipt and row
)

// Format returns how a Drawing is written into a file: as svg or html, or as the name of the file says if the format is
// empty. A file without a name is standard output.
func Format(file, format string) (write func(*Drawing) []byte, err error) {
	suffixes := map[string]string{"": "svg", ".svg": "svg", ".html": "html"}
	format = cmp.Or(format, suffixes[filepath.Ext(file)])
	write = map[string]func(*Drawing) []byte{"svg": (*Drawing).SVG, "html": (*Drawing).HTML}[format]
	switch {
	case format == "":
		return nil, fmt.Errorf("--output=%s: the name must end in .svg or .html", file)
	case write == nil:
		return nil, fmt.Errorf("--format=%s: choose svg or html", format)
	}
	return write, nil
}

// A Drawing is traces, ready to be drawn.
type Drawing struct {
	options Options
	panels  []*panel
	virtual bool // the time is virtual
	origin  int64
	names   float64                  // room for the nodes' names
	called  map[dmutex.NodeID]string // the names of their processes
	shared  string                   // the first digits of all epochs, which labels leave out
}

// New prepares a drawing. It refuses an empty list of traces, two traces of one life
// of a node, traces that contradict each other ([trace.ErrFormat]), and a choice of
// events that is empty or too large to look at, such as 100,000 of one lock.
func New(traces []*trace.Trace, o Options) (*Drawing, error) {
	if len(traces) == 0 {
		return nil, errors.New("there is no trace to draw")
	}
	files, arrows, err := align(traces)
	if err != nil {
		return nil, err
	}
	o.Width = cmp.Or(o.Width, 1500)
	d := &Drawing{options: o, virtual: traces[0].Header.Opened == 0}
	all := inOrder(files)
	if len(all) == 0 {
		return nil, errors.New("the traces are empty")
	}
	d.called = make(map[dmutex.NodeID]string)
	for _, f := range files {
		d.called[f.self] = f.trace.Header.Name
	}
	largest := slices.Max(append(slices.Clone(traces[0].Header.Members), files[0].self))
	d.origin = math.MaxInt64
	first, last := uint64(math.MaxUint64), uint64(0) // epochs
	for _, e := range all {
		if e.What == trace.View {
			first, last = min(first, e.N), max(last, e.N)
		}
		if e.What != started { // a process may start long before anything happens
			d.origin = min(d.origin, e.time)
		}
	}
	for from, to := fmt.Sprint(first), fmt.Sprint(last); len(from) == len(to) && len(d.shared) < len(from)-3 && from[len(d.shared)] == to[len(d.shared)]; {
		d.shared = from[:len(d.shared)+1]
	}
	for _, a := range arrows {
		largest = max(largest, a.From, a.To)
	}
	d.names = max(nameWidth, margin+bold*textWidth("N"+largest.String(), 14))
	locks, err := chooseLocks(all, o.Lock)
	if err != nil {
		return nil, err
	}
	bars := barsOf(all)
	for _, lock := range locks {
		p := newPanel(d, lock, all, arrows, bars[lock])
		if len(p.points) == 0 {
			continue
		}
		for _, count := range []struct {
			n, most int
			of      string
		}{{len(p.points), mostPoints, "events"}, {len(p.nodes), mostLines, "nodes"}, {p.pieces(), mostPieces, "pieces of messages"}} {
			if count.n > count.most {
				return nil, fmt.Errorf("%d %s of lock %q, and %d are too many to look at: choose a shorter time",
					count.n, count.of, lock, count.most)
			}
		}
		d.panels = append(d.panels, p)
	}
	if len(d.panels) == 0 {
		return nil, fmt.Errorf("nothing happens to the lock from %v on in the time given", o.From)
	}
	return d, nil
}

// inOrder returns all events in the order of time.
func inOrder(files []*file) (all []*event) {
	for _, f := range files {
		all = append(all, f.events...)
	}
	slices.SortStableFunc(all, func(a, b *event) int {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.depth, b.depth), cmp.Compare(a.node(), b.node()))
	})
	return all
}

// nodes returns those of all panels.
func (d *Drawing) nodes() (all []dmutex.NodeID) {
	for _, p := range d.panels {
		all = append(all, p.nodes...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// chooseLocks returns the locks to draw, ascending.
func chooseLocks(all []*event, only string) ([]string, error) {
	inputs := make(map[string]int)
	for _, e := range all {
		if e.Lock != "" {
			inputs[e.Lock]++
		}
	}
	names := slices.SortedFunc(maps.Keys(inputs), func(a, b string) int {
		return cmp.Or(cmp.Compare(inputs[b], inputs[a]), cmp.Compare(a, b))
	})
	switch {
	case only != "" && inputs[only] > 0:
		return []string{only}, nil
	case only == "" && len(names) > 0 && len(names) <= mostPanels:
		slices.Sort(names)
		return names, nil
	}
	busiest := names[:min(len(names), mostPanels)]
	if only != "" {
		return nil, fmt.Errorf("there is no lock %q in the traces; of %d the busiest are %q", only, len(names), busiest)
	}
	return nil, fmt.Errorf("there are %d locks in the traces, which is too many or too few for a picture: choose one; the busiest are %q",
		len(names), busiest)
}

// A panel is the picture of one lock.
type panel struct {
	drawing *Drawing
	lock    string
	nodes   []dmutex.NodeID
	points  []*event // in the order of time
	arrows  []*arrow
	bars    []*bar
	changes []*change // ascending by epoch
	right   float64   // where the time that is drawn ends; it begins at 0
}

// A change is a view: when each member has installed it, and when it acted there.
type change struct {
	epoch          uint64
	who            string // see members
	install, ready map[dmutex.NodeID]*event
}

// note notes an event of a view.
func (c *change) note(e *event) {
	if e.What == trace.Ready {
		c.ready[e.node()] = e
		return
	}
	c.install[e.node()] = e
	if who := e.members(); len(who) > len(c.who) { // a member that joins does not know who has gone
		c.who = who
	}
}

// members names the members of a view, and those that are gone.
func (e *event) members() string {
	var out, excluded []dmutex.NodeID
	for _, id := range e.before {
		switch {
		case slices.Contains(e.Members, id):
		case slices.Contains(e.file.excluded, id):
			excluded = append(excluded, id)
		default:
			out = append(out, id)
		}
	}
	text := names("N", e.Members, " ")
	if len(out) > 0 {
		text += ", without " + names("N", out, " ")
	}
	if len(excluded) > 0 {
		text += ", " + names("N", excluded, " ") + " excluded"
	}
	return text
}

// names names nodes.
func names(prefix string, ids []dmutex.NodeID, between string) string {
	var all []string
	for _, id := range ids {
		all = append(all, prefix+id.String())
	}
	return strings.Join(all, between)
}

func newPanel(d *Drawing, lock string, all []*event, arrows []*arrow, bars []*bar) *panel {
	p := &panel{drawing: d, lock: lock, bars: bars}
	within := func(e *event) bool { return p.side(e) == 0 }
	nodes := make(map[dmutex.NodeID]bool)
	for _, a := range arrows {
		if a.lock != lock {
			continue
		}
		if a.send != nil && within(a.send) || slices.ContainsFunc(a.recv, within) {
			p.arrows = append(p.arrows, a)
			nodes[a.From], nodes[a.To] = true, true
		}
	}
	changes := make(map[uint64]*change)
	for _, e := range all {
		if !within(e) || e.What == started && len(p.points) == 0 {
			continue // it was there from the beginning
		}
		view := e.What == trace.View || e.What == trace.Ready
		if view {
			if changes[e.N] == nil {
				changes[e.N] = &change{epoch: e.N, install: make(map[dmutex.NodeID]*event), ready: make(map[dmutex.NodeID]*event)}
			}
			changes[e.N].note(e)
		}
		idle := !e.turns && (e.What == trace.Born && e.Phase == dmutex.Idle || e.What == trace.Waits)
		mine := e.Lock == lock && e.What != trace.Forget && !idle
		if mine || view || e.Lock == "" && e.mark() != "" {
			nodes[e.node()] = nodes[e.node()] || mine
			p.points = append(p.points, e)
		}
	}
	p.bars = slices.DeleteFunc(p.bars, func(b *bar) bool {
		return p.side(b.begin) > 0 || b.end != nil && p.side(b.end) < 0
	})
	for _, b := range p.bars {
		nodes[b.node] = true
	}
	slices.SortFunc(p.bars, func(a, b *bar) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.begin.depth, b.begin.depth))
	})
	p.points = slices.DeleteFunc(p.points, func(e *event) bool { return !nodes[e.node()] })
	p.nodes = slices.Sorted(maps.Keys(nodes))
	p.changes = slices.SortedFunc(maps.Values(changes), func(a, b *change) int { return cmp.Compare(a.epoch, b.epoch) })
	return p
}

// side returns -1 for an event before the time that is drawn, 1 for one after it
// and 0 for one within.
func (p *panel) side(e *event) int {
	o := &p.drawing.options
	switch at := e.time - p.drawing.origin; {
	case at < int64(o.From):
		return -1
	case o.To != 0 && at > int64(o.To):
		return 1
	}
	return 0
}

// fence writes a fence: in a view it is the epoch and a counter.
func fence(f uint64) string {
	if epoch := epochs.Of(f); epoch > 0 {
		return fmt.Sprintf("%d:%d", epoch, f-epochs.First(epoch))
	}
	return fmt.Sprint(f)
}

// label names a node, in XML.
func (d *Drawing) label(id dmutex.NodeID) string {
	if name := d.called[id]; name != "" {
		return fmt.Sprintf("N%d<title>%s</title>", id, escape(name))
	}
	return fmt.Sprintf("N%d", id)
}

// short leaves out the digits that all epochs of the drawing have.
func (d *Drawing) short(text string) string {
	if rest, ok := strings.CutPrefix(text, d.shared); ok && len(d.shared) > 2 {
		return "…" + rest
	}
	return text
}

// plain replaces the characters that cannot be printed in a line.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

func (d *Drawing) clock(e *event) string {
	t := e.time - d.origin
	if d.virtual {
		return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", float64(t)/1e9), "0"), ".")
	}
	return span(t)
}

func span(t int64) string {
	switch v := float64(t); {
	case v < 1e5 && v > -1e5:
		return fmt.Sprintf("%.1f µs", v/1e3)
	case v < 1e9 && v > -1e9:
		return fmt.Sprintf("%.2f ms", v/1e6)
	default:
		return fmt.Sprintf("%.4f s", v/1e9)
	}
}

// Distances in pixels.
const (
	nameWidth = 64 // of the nodes' names, left of the diagram: the least
	lineGap   = 88 // between the lines of two nodes
	barHalf   = 8  // half the thickness of a bar
	margin    = 24
	axisGap   = 46 // from the last line to the end of the row
	headGap   = 40 // from the beginning of a row to the first line

	leastStep = 9  // between two events of a node
	leastLean = 22 // between sending and receiving
	mostSteps = 3  // for the longest time between two events
)

// scale returns the usual time between two events, the median of the times between those
// that differ in time, and the distance for it: the more times there are, the closer.
func (p *panel) scale() (usual, step float64) {
	var between []int64
	for i, e := range p.points[1:] {
		if passed := e.time - p.points[i].time; passed > 0 {
			between = append(between, passed)
		}
	}
	slices.Sort(between)
	usual = 1
	n := len(between)
	if n > 0 {
		usual = float64(between[n/2])
	}
	for _, few := range []struct{ n, step int }{{20, 56}, {50, 34}, {120, 24}, {400, 16}} {
		if n < few.n {
			return usual, float64(few.step)
		}
	}
	return usual, 10
}

// layout gives every event its place. Time goes to the right, and what happens
// at one time stands at one place. Where much happens, time is stretched, and
// where nothing happens, it is cut short.
func (p *panel) layout() {
	usual, step := p.scale()
	last := make(map[dmutex.NodeID]*event)
	x := float64(margin)
	for i, e := range p.points {
		if passed := float64(e.time - p.points[max(0, i-1)].time); passed > 0 {
			x += max(1, step*min(passed/usual, mostSteps))
		}
		if before := last[e.node()]; before != nil && before.time < e.time {
			x = max(x, before.x+leastStep)
		}
		if e.sent != nil && e.sent.time < e.time && p.side(e.sent) == 0 {
			x = max(x, e.sent.x+leastLean)
		}
		e.x = x
		last[e.node()] = e
	}
	p.right = x + 2*margin
	width := p.drawing.rowWidth()
	end := (math.Floor(x/width) + 1) * width
	if p.right > end && (end-x > leastLean+8 || p.over()) {
		p.right = end // else a row would show nothing but the nodes
	}
}

// over reports whether all messages arrive, and all bars end.
func (p *panel) over() bool {
	return !slices.ContainsFunc(p.arrows, func(a *arrow) bool { return len(a.recv) == 0 }) &&
		!slices.ContainsFunc(p.bars, func(b *bar) bool { return b.end == nil })
}

// rowWidth is how much of the time a row has.
func (d *Drawing) rowWidth() float64 { return float64(d.options.Width-margin) - d.names }

// pieces lays the panel out, and returns about how many pieces its messages
// have: one that travels long goes through many rows.
func (p *panel) pieces() (n int) {
	p.layout()
	for _, a := range p.arrows {
		first, last := p.right, 0.0
		for _, e := range append([]*event{a.send}, a.recv...) {
			if e != nil {
				first, last = min(first, p.x(e)), max(last, p.x(e))
			}
		}
		rows := 1 + int(max(0, last-first)/p.drawing.rowWidth())
		n += rows * (1 + len(a.recv))
	}
	return n
}

// x is where an event is, or the edge beyond which it is.
func (p *panel) x(e *event) float64 {
	switch {
	case e == nil || p.side(e) > 0:
		return p.right
	case p.side(e) < 0:
		return 0
	}
	return e.x
}

// y is the line of a node, from the first one's.
func (p *panel) y(id dmutex.NodeID) float64 {
	return float64(lineGap * slices.Index(p.nodes, id))
}

// A box is where something is written, so that nothing else is written there.
type box struct{ left, top, right, bottom float64 }

// boxes are those of a panel, by the stretches of it that they are in.
type boxes map[int][]box

const stretch = 128

// free reports whether nothing is written there.
func (b boxes) free(c box) bool {
	overlaps := func(e box) bool { return c.left < e.right && e.left < c.right && e.top < c.bottom && c.top < e.bottom }
	for at := int(c.left) / stretch; at <= int(c.right)/stretch; at++ {
		if slices.ContainsFunc(b[at], overlaps) {
			return false
		}
	}
	return true
}

func (b boxes) take(c box) {
	for at := int(c.left) / stretch; at <= int(c.right)/stretch; at++ {
		b[at] = append(b[at], c)
	}
}

// widths are those of the letters from the space to the tilde, in hundredths of the font's size: in DejaVu
// Sans or in Helvetica, which has wider capitals. Few fonts without serifs have wider ones.
var widths = [...]uint8{
	32, 41, 46, 84, 64, 96, 78, 28, 40, 40, 50, 84, 32, 37, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 34, 34, 84, 84, 84, 56,
	102, 69, 69, 73, 78, 67, 62, 78, 76, 30, 50, 67, 56, 87, 75, 79, 67, 79, 73, 67, 62, 74, 69, 99, 69, 67, 69, 40, 34, 40, 84, 56,
	50, 62, 64, 55, 64, 62, 36, 64, 64, 28, 28, 58, 28, 98, 64, 62, 64, 64, 42, 53, 40, 64, 60, 82, 60, 60, 53, 64, 34, 64, 84,
}

// Letters in bold are so much wider.
const bold = 1.15

// textWidth is how wide a text is at most.
func textWidth(s string, size float64) (width float64) {
	for _, r := range s {
		w := 1.0
		if r >= ' ' && r <= '~' {
			w = float64(widths[r-' ']) / 100
		}
		width += w * size
	}
	return width
}
