package draw

import (
	"cmp"
	"slices"
	"unicode"

	"github.com/dmutex/dmutex"
)

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
	switch {
	case n < 20:
		return usual, 56
	case n < 50:
		return usual, 34
	case n < 120:
		return usual, 24
	case n < 400:
		return usual, 16
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

// boxes are those of a row, by their left edges.
type boxes struct {
	sorted []box
	widest float64
}

// from returns the place of the first box that does not begin before x.
func (b *boxes) from(x float64) int {
	at, _ := slices.BinarySearchFunc(b.sorted, x, func(e box, x float64) int { return cmp.Compare(e.left, x) })
	return at
}

// free reports whether nothing is written there.
func (b *boxes) free(c box) bool {
	near := b.sorted[b.from(c.left-b.widest):b.from(c.right)]
	return !slices.ContainsFunc(near, func(e box) bool { return c.left < e.right && e.top < c.bottom && c.top < e.bottom })
}

func (b *boxes) take(c box) {
	b.sorted = slices.Insert(b.sorted, b.from(c.left), c)
	b.widest = max(b.widest, c.right-c.left)
}

// textWidth is about how wide a text is: capitals and digits are wide.
func textWidth(s string, size float64) (width float64) {
	for _, r := range s {
		switch {
		case unicode.IsUpper(r):
			width += 0.7 * size
		case unicode.IsDigit(r):
			width += 0.6 * size
		default:
			width += 0.5 * size
		}
	}
	return width
}
