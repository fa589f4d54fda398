package draw

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/dmutex/dmutex"
)

// HTML returns the drawing as a page that needs no other file and no network. Each
// lock is one long row that scrolls, below an overview of its whole time. The page
// shows one lock at first, and can hide nodes with their messages. A message under
// the pointer stands out.
func (d *Drawing) HTML() []byte {
	var all seen
	var locks, options, nodes strings.Builder
	first := slices.MaxFunc(d.panels, func(p, q *panel) int { return cmp.Compare(len(p.points), len(q.points)) })
	for i, p := range d.panels {
		p.layout()
		c := &canvas{panel: p, rowWidth: p.right + 1, page: true}
		c.paint()
		for k, is := range c.seen {
			all[k] = all[k] || is
		}
		hidden, selected := " hidden", ""
		if p == first {
			hidden, selected = "", " selected"
		}
		fmt.Fprintf(&locks, `<section id="lock%d"%s>`+"\n", i, hidden)
		if len(d.panels) > 1 {
			fmt.Fprintf(&locks, "<h2>lock %s</h2>\n", escape(fmt.Sprintf("%q", p.lock)))
		}
		c.overview(&locks)
		c.strip(&locks)
		locks.WriteString("</section>\n")
		fmt.Fprintf(&options, `<option value="lock%d"%s>%s</option>`, i, selected, escape(fmt.Sprintf("%q", p.lock)))
	}
	lock := ""
	if len(d.panels) > 1 {
		lock = `<label>lock <select id="lock">` + options.String() + `<option value="">all</option></select></label>`
	}
	for _, id := range d.nodes() {
		fmt.Fprintf(&nodes, `<label><input type="checkbox" class="node" value="n%d" checked>N%d</label>`, id, id)
	}
	var legend strings.Builder
	for _, s := range d.legend(all) {
		fmt.Fprintf(&legend, `<span><svg width="32" height="14" viewBox="-1 -7 32 14">%s</svg> %s</span>`, s.symbol, escape(s.text))
	}
	return []byte(strings.NewReplacer(
		"{title}", escape(cmp.Or(d.options.Title, "dmutex trace")),
		"{lock}", lock,
		"{nodes}", nodes.String(),
		"{legend}", legend.String(),
		"{locks}", locks.String(),
	).Replace(page))
}

// overview writes all bars and views of a lock in small, as wide as the page.
func (c *canvas) overview(b *strings.Builder) {
	const lane = 9
	height := lane * len(c.nodes)
	fmt.Fprintf(b, `<div class="overview" style="height:%dpx"><svg viewBox="0 0 %s %d" preserveAspectRatio="none">`+"\n", height, px(c.right), height)
	for _, v := range c.changes {
		for i, id := range c.nodes {
			if e := v.install[id]; e != nil {
				fmt.Fprintf(b, `<rect class="n%d" x="%s" y="%d" width="2" height="%d" fill="%s"/>`+"\n", id, px(e.x), lane*i, lane, viewColor)
			}
		}
	}
	for _, bar := range c.bars {
		left, right, fill := c.x(bar.begin), c.x(bar.end), "#c4c4c4"
		if bar.phase == dmutex.Held {
			fill = "#222222"
		}
		fmt.Fprintf(b, `<rect class="n%d" x="%s" y="%d" width="%s" height="%d" fill="%s"/>`+"\n",
			bar.node, px(left), lane*slices.Index(c.nodes, bar.node)+1, px(max(right-left, 2)), lane-2, fill)
	}
	b.WriteString("</svg><div class=\"window\"></div></div>\n")
}

// strip writes the diagram of a lock in one row, with the names of the nodes
// beside it.
func (c *canvas) strip(b *strings.Builder) {
	open := func(width float64) {
		fmt.Fprintf(b, `<svg width="%s" height="%s" viewBox="0 %d %s %s" %s font-size="%v" fill="#111111">`+"\n",
			px(width), px(c.height()), -headGap, px(width), px(c.height()), font, fontSize)
	}
	b.WriteString("<div class=\"strip\">\n")
	open(c.drawing.names)
	for _, id := range c.nodes {
		fmt.Fprintf(b, `<text class="n%d" x="%s" y="%s" text-anchor="end" font-size="14" font-weight="bold">N%d</text>`+"\n", id, px(c.drawing.names-8), px(c.y(id)+5), id)
	}
	b.WriteString("</svg>\n<div class=\"scroll\">\n")
	open(c.right)
	c.writeRow(b, 0)
	b.WriteString("</svg>\n</div>\n</div>\n")
}

//go:embed page.html
var page string
