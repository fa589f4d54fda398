package draw

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/trace"
)

// A look is how the line of a kind of message is drawn. The colors are those of Okabe and Ito,
// which the color-blind can tell apart. On paper the dashes differ.
type look struct{ color, line string }

var looks = [dmutex.Kinds]look{
	0:              {"#333333", `stroke-width="1.4"`},
	dmutex.Request: {"#0072b2", `stroke-width="1.4"`},
	dmutex.Reply:   {"#00805c", `stroke-width="1.4" stroke-dasharray="7 3"`},
	dmutex.Grant:   {"#00805c", `stroke-width="1.4" stroke-dasharray="7 3"`},
	dmutex.Release: {"#d55e00", `stroke-width="1.6" stroke-dasharray="2.5 2.5"`},
	dmutex.Failed:  {"#6e6e6e", `stroke-width="1.8" stroke-dasharray="1 3"`},
	dmutex.Inquire: {"#b0457f", `stroke-width="1.4" stroke-dasharray="10 3 2 3"`},
	dmutex.Yield:   {"#a87000", `stroke-width="1.4" stroke-dasharray="5 2 1 2"`},
	dmutex.Token:   {"#111111", `stroke-width="2.4"`},
	dmutex.Share:   {"#0072b2", `stroke-width="1.4" stroke-dasharray="3 2"`}, // a request, too
}

const (
	lossColor = "#c00000"
	viewColor = "#6a4c93"
	paleColor = "#e6def0" // of a band of a view
	goneColor = "#8a8a8a"
	fontSize  = 11.0
	font      = `font-family="Helvetica, Arial, sans-serif"`
)

// A canvas collects the shapes of a panel, in four layers. A shape is in each row that it
// reaches into.
type canvas struct {
	*panel
	rowWidth float64
	layers   [4][][]string // by row
	written  boxes
	seen     seen

	page  bool   // the shapes are for HTML, and each carries its owner
	owner string // the class of what is being drawn: its node, or both nodes of a message
}

// seen says which kinds of messages and which signs the picture shows, so that the legend
// explains them.
type seen [dmutex.Kinds + len(signs)]bool

// The places of the signs in seen. Those of bars come first.
const (
	waiting = dmutex.Kinds + iota
	drains
	held
	sharing // held, but not alone
	presumed
	views
	gone
	flying
	lost
	stale
	unended
	stretched
)

// The layers.
const (
	ground = iota
	wires
	blocks
	words
)

func (c *canvas) add(layer int, left, right float64, format string, args ...any) {
	svg := fmt.Sprintf(format, args...)
	if c.page && c.owner != "" {
		svg = `<g class="` + c.owner + `">` + svg + `</g>`
	}
	rows := c.layers[layer]
	first, last := (min(left, right)-8)/c.rowWidth, (max(left, right)+8)/c.rowWidth
	for k := max(0, int(first)); k <= int(last) && k < len(rows); k++ {
		rows[k] = append(rows[k], svg)
	}
}

// of makes a node, or both nodes of a message, the owner of what is drawn next.
func (c *canvas) of(ids ...dmutex.NodeID) {
	c.owner = names("n", ids, " ")
}

// SVG returns the drawing as a file of its own.
func (d *Drawing) SVG() []byte {
	var body strings.Builder
	y, width := float64(margin), 0.0
	heading := func(y, size float64, text string) {
		shown := shorten(text, int(float64(d.options.Width-2*margin)/(0.6*size)))
		title := ""
		if shown != text {
			title = "<title>" + escape(text) + "</title>"
		}
		fmt.Fprintf(&body, `<text x="%d" y="%s" font-size="%v" font-weight="bold">%s%s</text>`+"\n", margin, px(y), size, title, escape(shown))
		width = max(width, 2*margin+bold*textWidth(shown, size))
	}
	if d.options.Title != "" {
		heading(y+10, 17, d.options.Title)
		y += 30
	}
	for _, p := range d.panels {
		c := &canvas{panel: p, rowWidth: d.rowWidth()}
		if len(d.panels) > 1 || !d.virtual {
			heading(y+8, 14, fmt.Sprintf("lock %q", p.lock))
			y += 16
		}
		c.paint()
		y = c.rows(&body, y)
		y = c.writeLegend(&body, y, &width)
		width = max(width, d.names+margin+min(c.rowWidth, p.right))
	}
	w, h := px(math.Ceil(width)), px(math.Ceil(y))
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" viewBox="0 0 %s %s" %s font-size="%v" fill="#111111">`+"\n"+
		`<rect width="%s" height="%s" fill="#ffffff"/>`+"\n%s</svg>\n", w, h, w, h, font, fontSize, w, h, body.String())
}

func px(v float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.1f", v), "0"), ".")
}

func (c *canvas) paint() {
	c.layout() // again: an event of a node has a place in each panel
	c.written = make(boxes)
	for i := range c.layers {
		c.layers[i] = make([][]string, int(c.right/c.rowWidth)+2)
	}
	c.axis()
	for _, v := range c.changes {
		c.band(v)
	}
	for _, id := range c.nodes {
		c.of(id)
		c.line(id)
	}
	for _, b := range c.bars {
		c.of(b.node)
		c.bar(b)
	}
	for _, e := range c.points {
		y := c.y(e.node())
		c.of(e.node())
		c.add(ground, e.x, e.x, `<circle cx="%s" cy="%s" r="2.2" fill="#444444"/>`, px(e.x), px(y))
		if text := e.mark(); text != "" {
			color := lossColor
			if e.What == started || e.What == trace.Close || e.What == trace.Down && e.Err == "" {
				color = viewColor
			}
			c.add(blocks, e.x, e.x, `<path d="M%s %sv24" stroke="%s" stroke-width="2"><title>%s</title></path>`, px(e.x), px(y-12), color, escape(text))
			text = shorten(text, 40)
			c.write(c.fits(e.x+4, text), y-barHalf-6, text, color, "start")
		}
	}
	c.of()
	c.broken()
	for _, a := range c.arrows {
		c.of(a.From, a.To)
		for _, to := range a.recv {
			c.flight(a, to)
		}
		if len(a.recv) == 0 {
			c.flight(a, nil)
		}
	}
}

// broken draws the moment at which the run went wrong.
func (c *canvas) broken() {
	if text := c.drawing.options.Broken; text != "" {
		x := c.points[len(c.points)-1].x
		c.add(ground, x, x, `<path d="M%s %dV%s" stroke="%s" stroke-width="2" stroke-dasharray="4 3"><title>%s</title></path>`,
			px(x), 16-headGap, px(c.y(c.nodes[len(c.nodes)-1])+26), lossColor, escape(text))
		c.write(c.fits(x+4, text), 12-headGap, text, lossColor, "start")
	}
}

// fits returns x, or a place before it from which the text fits into the row.
func (c *canvas) fits(x float64, text string) float64 {
	width := textWidth(text, fontSize)
	return min(x, c.rowEnd(x)-width-4, c.right-width)
}

// band draws a view: at each member from where it installs the view to where it acts.
func (c *canvas) band(v *change) {
	const beyond = 18 // the first and the last line
	var left, right []string
	var title strings.Builder
	first, last := math.Inf(1), math.Inf(-1)
	fmt.Fprintf(&title, "view %d of %s", v.epoch, v.who)
	for _, id := range c.nodes {
		e := v.install[id]
		if e == nil {
			continue
		}
		from, until := e.x, e.x+2
		fmt.Fprintf(&title, "; N%d installs it at %s", id, c.drawing.clock(e))
		if r := v.ready[id]; r != nil {
			until = max(until, r.x)
			fmt.Fprintf(&title, " and acts at %s", c.drawing.clock(r))
		}
		first, last = min(first, from), max(last, until)
		y := c.y(id)
		left = append(left, px(from)+" "+px(y-beyond), px(from)+" "+px(y+beyond))
		right = slices.Insert(right, 0, px(until)+" "+px(y+beyond), px(until)+" "+px(y-beyond)) // back up
	}
	if len(left) == 0 {
		return
	}
	c.seen[views] = true
	c.add(ground, first, last, `<path d="M%sz" fill="%s" stroke="%s" stroke-width="0.8"><title>%s</title></path>`,
		strings.Join(append(left, right...), "L"), paleColor, viewColor, escape(title.String()))
	short := "view " + c.drawing.short(fmt.Sprint(v.epoch))
	for _, text := range []string{short + ": " + v.who, short} {
		if c.write(c.fits(first, text), 12-headGap, text, viewColor, "start") {
			return
		}
	}
}

// escape makes XML of a text, without control characters.
func escape(text string) string { return html.EscapeString(plain(text)) }

// shorten cuts a text to a number of letters; the title has all of it.
func shorten(text string, most int) string {
	if letters := []rune(text); len(letters) > most {
		return string(letters[:most-2]) + " ..."
	}
	return text
}

func (c *canvas) bar(b *bar) {
	left, right, y := c.x(b.begin), c.x(b.end), c.y(b.node)
	until := "the end of the trace"
	if b.end != nil {
		until = c.drawing.clock(b.end)
	}
	ink, sign := "#222222", b.sign
	what, texts := "waits", []string(nil)
	switch {
	case b.sign == held:
		what = "holds the lock with fence " + fence(b.fence)
		if ink = "#ffffff"; b.shared {
			ink, sign, what = "#222222", sharing, "shares the lock with fence "+fence(b.fence)
		}
		short := c.drawing.short(fence(b.fence))
		texts = []string{"fence " + short, short}
	case b.sign == presumed:
		what, texts = "may still hold the lock with fence "+fence(b.fence)+" by its lease", []string{"leased"}
	case b.sign == drains:
		of := names("N", b.begin.Members, " and ")
		what, texts = "waits until the lease of "+of+" has ended", []string{"waits for the lease of " + of, "lease of " + of}
	case b.attempt > 0:
		texts = []string{fmt.Sprintf("<%d, %d>", b.attempt, b.node)}
	}
	c.seen[sign] = true
	width := max(right-left, 2)
	c.add(blocks, left, left+width, `<rect x="%s" y="%s" width="%s" height="%d" rx="2" %s><title>node %d %s, from %s to %s</title></rect>`,
		px(left), px(y-barHalf), px(width), 2*barHalf, signs[sign-waiting].Symbol, b.node, what, c.drawing.clock(b.begin), until)
	c.written.take(box{left, y - barHalf, left + width, y + barHalf})
	if c.side(b.begin) < 0 {
		return
	}
	inRow := min(left+width, c.rowEnd(left)) - left
	for _, text := range texts {
		if textWidth(text, fontSize) <= inRow-6 {
			c.add(words, left, left+inRow, `<text x="%s" y="%s" text-anchor="middle" fill="%s" pointer-events="none">%s</text>`,
				px(left+inRow/2), px(y+4), ink, escape(text))
			return
		}
	}
	if len(texts) > 0 {
		text := texts[len(texts)-1]
		_ = c.write(left, y-barHalf-4, text, "#222222", "start") || c.write(left, y+barHalf+fontSize+1, text, "#222222", "start")
	}
}

// rowEnd returns the end of the row that x is in. A page has one row.
func (c *canvas) rowEnd(x float64) float64 {
	if c.page {
		return c.right
	}
	return (math.Floor(x/c.rowWidth) + 1) * c.rowWidth
}

// write writes a text if there is room.
func (c *canvas) write(x, y float64, text, color, anchor string) bool {
	width := textWidth(text, fontSize)
	at := box{x, y - fontSize, x + width, y + 2}
	if anchor == "middle" {
		at.left, at.right = x-width/2, x+width/2
	}
	if at.left < 0 || at.right > c.rowEnd(at.left) || !c.written.free(at) {
		return false
	}
	c.written.take(at)
	c.add(words, at.left, at.right,
		`<text x="%s" y="%s" text-anchor="%s" fill="%s" stroke="#ffffff" stroke-width="3" paint-order="stroke" stroke-linejoin="round" pointer-events="none">%s</text>`,
		px(x), px(y), anchor, color, escape(text))
	return true
}

// flight draws a message on its way to one receipt, or to none if to is nil.
func (c *canvas) flight(a *arrow, to *event) {
	c.seen[a.Kind] = true
	outside := func(e *event) bool { return e == nil || c.side(e) != 0 }
	if outside(a.send) && outside(to) {
		return
	}
	look, title := looks[a.Kind], a.Message.Message.String()
	x1, y1, x2, y2 := c.x(a.send), c.y(a.From), c.x(to), c.y(a.To)
	if a.send == nil {
		x1 = x2 - leastLean
	} else {
		title += ", sent at " + c.drawing.clock(a.send)
	}
	tip, opacity := 7.0, 1.0
	if to == nil {
		x2, y2, tip, opacity = x1+leastLean, y1+0.45*(y2-y1), 0, 0.75
	} else {
		gap := 2.0 // from the line of the node
		if !c.written.free(box{x2 - 0.1, y2 - 1, x2 + 0.1, y2 + 1}) {
			gap = barHalf + 1 // there is a bar
		}
		y2 -= math.Copysign(gap, y2-y1)
	}
	length := math.Hypot(x2-x1, y2-y1)
	dx, dy := (x2-x1)/length, (y2-y1)/length
	cross := func(color string) string {
		return fmt.Sprintf(`<path d="M%s %sl8 8m-8 0l8 -8" stroke="%s" stroke-width="2.2"/>`, px(x2-4), px(y2-4), color)
	}
	var end string
	switch {
	case to != nil:
		title += ", received at " + c.drawing.clock(to)
		end = fmt.Sprintf(`<path d="M%s %sL%s %sL%s %sz" fill="%s"/>`, px(x2), px(y2),
			px(x2-9*dx-4*dy), px(y2-9*dy+4*dx), px(x2-9*dx+4*dy), px(y2-9*dy-4*dx), look.color)
	case a.stale:
		c.seen[stale] = true
		title, end = title+", dropped: its view was over", cross(viewColor)
	case a.flying && !a.lost:
		c.seen[flying] = true
		title += ", on its way at the end"
		end = fmt.Sprintf(`<path d="M%s %sL%s %sL%s %s" stroke="%s" stroke-width="1.6" fill="none"/>`, px(x2-9*dx-5*dy), px(y2-9*dy+5*dx),
			px(x2), px(y2), px(x2-9*dx+5*dy), px(y2-9*dy-5*dx), look.color)
	case a.unfollowed:
		c.seen[unended] = true
		end = fmt.Sprintf(`<circle cx="%s" cy="%s" r="3" fill="#ffffff" stroke="%s"/>`, px(x2), px(y2), look.color)
	default:
		c.seen[lost] = true
		title, end = title+", did not arrive", cross(lossColor)
	}
	c.add(wires, x1, x2, `<g class="m"><title>%s</title><path d="M%s %sL%s %s" stroke="#ffffff" stroke-opacity="0" stroke-width="9" fill="none"/>`+
		`<path d="M%s %sL%s %s" stroke="%s" stroke-opacity="%v" fill="none" %s/>%s</g>`, escape(title), px(x1), px(y1), px(x2), px(y2),
		px(x1), px(y1), px(x2-tip*dx), px(y2-tip*dy), look.color, opacity, look.line, end)
	if to != nil {
		c.label(x1, y1, x2, y2, a.Kind.String(), look.color)
	}
}

// label names an arrow where there is room: near the middle if possible, and not on
// the line of another node.
func (c *canvas) label(x1, y1, x2, y2 float64, text, color string) {
	const places = 16
	for k := range places - 1 {
		at := 0.5 + float64((k+1)/2)/places*float64(1-k%2*2)
		x, y := x1+at*(x2-x1), y1+at*(y2-y1)
		if off := math.Abs(math.Remainder(y, lineGap)); off > 12 && c.write(x, y+4, text, color, "middle") {
			return
		}
	}
}

// axis draws the times, which belong to no node.
func (c *canvas) axis() {
	bottom := c.y(c.nodes[len(c.nodes)-1])
	free := 0.0
	for _, e := range c.points {
		text := c.drawing.clock(e)
		half := textWidth(text, 10)/2 + 8
		if e.x-half < free || e.x+half-8 > c.rowEnd(e.x-half+8) {
			continue
		}
		free = e.x + half
		c.add(ground, e.x-half, e.x+half, `<path d="M%s %dV%s" stroke="#e6e6e6"/><text x="%s" y="%s" text-anchor="middle" font-size="10" fill="#555555">%s</text>`,
			px(e.x), -headGap/2, px(bottom+26), px(e.x), px(bottom+38), text)
	}
}

// line draws the line of a node while a process of the node is running. It is dotted while none
// is, unless the group has a store: then each process has a number of its own.
func (c *canvas) line(id dmutex.NodeID) {
	from, there, numbered := 0.0, true, false
	draw := func(to float64) {
		if look := `stroke="#444444" stroke-width="1.2"`; to > from && (there || !numbered) {
			if !there {
				c.seen[gone] = true
				look = `stroke="` + goneColor + `" stroke-width="1.2" stroke-dasharray="1 5"`
			}
			c.add(ground, from, to, `<path d="M%s %sH%s" %s/>`, px(from), px(c.y(id)), px(to), look)
		}
		from = to
	}
	for _, e := range c.points {
		switch {
		case e.node() != id:
		case e.What == started:
			there, numbered = false, e.numbered()
			draw(e.x)
			there = true
		case e.What == crashed || e.What == trace.Close || e.What == trace.Excluded && e.Peer == id:
			draw(e.x)
			there, numbered = false, e.numbered()
		}
	}
	draw(c.right)
}

func (c *canvas) height() float64 { return c.y(c.nodes[len(c.nodes)-1]) + headGap + axisGap }

// rows cuts the panel into rows, and returns where they end.
func (c *canvas) rows(b *strings.Builder, y float64) float64 {
	height, row := c.height(), 0
	for from := 0.0; from < c.right; from += c.rowWidth {
		to := min(from+c.rowWidth, c.right)
		fmt.Fprintf(b, `<g transform="translate(%s %s)">`+"\n", px(c.drawing.names), px(y+headGap))
		for _, id := range c.nodes {
			fmt.Fprintf(b, `<text x="-8" y="%s" text-anchor="end" font-size="14" font-weight="bold">%s</text>`+"\n", px(c.y(id)+5), c.drawing.label(id))
		}
		// A nested svg element clips without an id.
		fmt.Fprintf(b, `<svg x="0" y="%d" width="%s" height="%s" viewBox="%s %d %s %s">`+"\n",
			-headGap, px(to-from), px(height), px(from), -headGap, px(to-from), px(height))
		c.writeRow(b, row)
		row++
		b.WriteString("</svg>\n</g>\n")
		y += height
	}
	return y
}

func (c *canvas) writeRow(b *strings.Builder, row int) {
	for _, layer := range c.layers {
		for _, svg := range layer[row] {
			b.WriteString(svg + "\n")
		}
	}
}

// A sign is a line of the legend. The symbol is 30 pixels wide, with its middle at y = 0; that
// of a bar is only its fill.
type sign struct{ Symbol, Text string }

// signs are the lines of the legend that are not about kinds of messages, in the order of their
// places in seen.
var signs = [...]sign{
	{`fill="#d9d9d9" stroke="#8a8a8a"`, "waits, with the stamp of its request"},
	{`fill="#fbe3d0" stroke="#d55e00"`, "waits for the lease of a former member to end"},
	{`fill="#222222" stroke="#222222"`, "in the critical section"},
	{`fill="#cfe3f2" stroke="#0072b2"`, "in the critical section, which it shares"},
	{`fill="#ffffff" stroke="#222222" stroke-dasharray="3 2"`, "has crashed, and its lease runs"},
	{`<path d="M10 -7H20V7H10z" fill="` + paleColor + `" stroke="` + viewColor + `" stroke-width="0.8"/>`, "the group changes: nothing is granted until the new view acts"},
	{`<path d="M0 0H30" stroke="` + goneColor + `" stroke-width="1.2" stroke-dasharray="1 5"/>`, "no process of the node is running"},
	{`<path d="M3 0H24M15 -5l9 5l-9 5" stroke="#333333" stroke-width="1.6" fill="none"/>`, "on its way at the end"},
	{`<path d="M11 -4l8 8m-8 0l8 -8" stroke="` + lossColor + `" stroke-width="2.2"/>`, "did not arrive"},
	{`<path d="M11 -4l8 8m-8 0l8 -8" stroke="` + viewColor + `" stroke-width="2.2"/>`, "dropped: its view was over"},
	{`<circle cx="15" r="3" fill="#ffffff" stroke="#333333"/>`, "what became of it is not known"},
	{`<path d="M15 -7v14" stroke="#e6e6e6" stroke-width="2"/>`, "time since the first event; stretched where much happens"},
}

func (d *Drawing) legend(seen seen) (all []sign) {
	seen[stretched] = !d.virtual
	for k, is := range seen {
		switch {
		case !is:
		case k < dmutex.Kinds:
			l := looks[k]
			all = append(all, sign{fmt.Sprintf(`<path d="M0 0H22" stroke="%s" %s/><path d="M30 0l-9 -4v8z" fill="%s"/>`, l.color, l.line, l.color),
				dmutex.Kind(k).String()})
		case k <= presumed:
			s := signs[k-waiting]
			all = append(all, sign{`<rect y="-6" width="30" height="12" rx="2" ` + s.Symbol + `/>`, s.Text})
		default:
			all = append(all, signs[k-waiting])
		}
	}
	return all
}

// writeLegend writes the legend, and returns where it ends.
func (c *canvas) writeLegend(b *strings.Builder, y float64, width *float64) float64 {
	x, limit := float64(margin), max(640, c.drawing.names+min(c.rowWidth, c.right))
	y += 14
	for _, s := range c.drawing.legend(c.seen) {
		long := 36 + textWidth(s.Text, fontSize)
		if x > margin && x+long > limit {
			x, y = margin, y+20
		}
		fmt.Fprintf(b, `<g transform="translate(%s %s)">%s<text x="36" y="4">%s</text></g>`+"\n", px(x), px(y), s.Symbol, escape(s.Text))
		x += long + 26
		*width = max(*width, x)
	}
	return y + 26
}
