package draw

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
)

// HTML returns the drawing as a page that needs no other file and no network. Each
// lock is one long row that scrolls and zooms, below an overview of its whole time. The page
// shows one lock at first, and can hide nodes with their messages. On paper the row is cut
// as that of an SVG.
func (d *Drawing) HTML() []byte {
	type lock struct {
		Name, Picture string
		First         bool // shown at first
	}
	var locks []lock
	var all seen
	first := slices.MaxFunc(d.panels, func(p, q *panel) int { return cmp.Compare(len(p.points), len(q.points)) })
	for _, p := range d.panels {
		c := &canvas{panel: p, rowWidth: d.rowWidth(), page: true}
		c.paint()
		for k, is := range c.seen {
			all[k] = all[k] || is
		}
		var b strings.Builder
		c.overview(&b)
		c.strip(&b)
		locks = append(locks, lock{escape(fmt.Sprintf("%q", p.lock)), b.String(), p == first})
	}
	var b bytes.Buffer
	page := template.Must(template.New("page").Parse(pageText))
	err := page.Execute(&b, map[string]any{
		"Title": escape(cmp.Or(d.options.Title, "dmutex trace")), "Locks": locks, "Nodes": d.nodes(), "Legend": d.legend(all),
	})
	if err != nil {
		panic(err) // the template names what is not there
	}
	return b.Bytes()
}

// overview writes all bars and views of a lock in small, as wide as the page.
func (c *canvas) overview(b *strings.Builder) {
	const lane = 9
	height := lane * len(c.nodes)
	fmt.Fprintf(b, `<div class="overview" style="height:%dpx"><svg aria-hidden="true" viewBox="0 0 %s %d" preserveAspectRatio="none">`+"\n", height, px(c.right), height)
	for _, v := range c.changes {
		for i, id := range c.nodes {
			if e := v.install[id]; e != nil {
				fmt.Fprintf(b, `<rect class="n%d" x="%s" y="%d" width="2" height="%d" fill="%s"/>`+"\n", id, px(e.x), lane*i, lane, viewColor)
			}
		}
	}
	for _, bar := range c.bars {
		left, right, fill := c.x(bar.begin), c.x(bar.end), "#c4c4c4"
		if bar.sign == held {
			fill = "#222222"
		}
		fmt.Fprintf(b, `<rect class="n%d" x="%s" y="%d" width="%s" height="%d" fill="%s"/>`+"\n",
			bar.node, px(left), lane*slices.Index(c.nodes, bar.node)+1, px(max(right-left, 2)), lane-2, fill)
	}
	b.WriteString("</svg><div class=\"window\"></div></div>\n")
}

// strip writes the diagram of a lock in one row, with the names of the nodes beside it. The
// row is made of tiles, so that a browser has to lay out only those in view.
func (c *canvas) strip(b *strings.Builder) {
	tile := func(class string, from, width float64) {
		fmt.Fprintf(b, `<div class="%s" style="--w: %s"><svg aria-hidden="true" viewBox="%s %d %s %s" %s font-size="%v" fill="#111111">`+"\n",
			class, px(width), px(from), -headGap, px(width), px(c.height()), font, fontSize)
	}
	names := func(class, anchor string, x, off float64) {
		for _, id := range c.nodes {
			fmt.Fprintf(b, `<text class="%sn%d" x="%s" y="%s" text-anchor="%s" font-size="14" font-weight="bold">%s</text>`+"\n", class, id, px(x), px(c.y(id)+off), anchor, c.drawing.label(id))
		}
	}
	fmt.Fprintf(b, `<div class="strip" tabindex="0" role="application" aria-label="messages of lock %s: n and p read them" style="--h: %s; --row: %s">`+"\n",
		escape(fmt.Sprintf("%q", c.lock)), px(c.height()), px(c.rowWidth))
	tile("names", 0, c.drawing.names)
	names("", "end", c.drawing.names-8, 5)
	b.WriteString("</svg></div>\n")
	for row, from := 0, 0.0; from < c.right; row, from = row+1, from+c.rowWidth {
		tile("tile", from, min(c.rowWidth, c.right-from))
		c.writeRow(b, row)
		names("paper ", "start", from, -barHalf-3)
		b.WriteString("</svg></div>\n")
	}
	b.WriteString("</div>\n")
}

//go:embed page.html
var pageText string
