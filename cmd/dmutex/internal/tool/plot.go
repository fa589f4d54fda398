package tool

import (
	"fmt"
	"html"
	"math"
	"os"
	"slices"
	"strings"
)

// A Plot is a picture of lines over two axes.
type Plot struct {
	Title, X, Y string
	Log         bool // the axes are logarithmic and fit the points; otherwise they go from 0 to 1
	Lines       []Line
}

// A Line is drawn the same way in every plot of a picture, by its style.
type Line struct {
	Name   string
	Style  int // from 0 on
	Points []Point
}

// A Point has no value of 0 or less on a logarithmic axis.
type Point struct{ X, Y float64 }

// The styles: colors, the first eight those of Okabe and Ito, which color-blind
// people can tell apart, and marks within 5 pixels of a point.
var (
	colors = []string{"#000000", "#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#009e73", "#cc79a7", "#6e6e6e", "#7b3294", "#8c510a"}
	marks  = []string{
		"m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", "m-4 -4h8v8h-8z", "m0 -5l5 9h-10z", "m0 5l5 -9h-10z", "m0 -5l5 5l-5 5l-5 -5z",
		"m-5 -1.5h3.5v-3.5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5z", "m-4 -2h8v4h-8z",
	}
)

const (
	panelWidth, panelHeight  = 480.0, 320.0 // without the axes' words
	panelLeft, panelBottom   = 70.0, 56.0
	panelTop, legendWidth    = 40.0, 170.0
	markGap, dash, tolerance = 30.0, 9.0, 1.0 // between two marks; of a line that shares its way; of lines that lie on each other
)

// DrawPlots draws plots in columns, of equal length, into an SVG file. The legend
// at the right is that of the first plot. Where several lines lie on each other
// they take turns.
func DrawPlots(file string, columns [][]Plot) error {
	across, down := panelLeft+panelWidth+20, panelTop+panelHeight+panelBottom
	width, height := across*float64(len(columns))+legendWidth, down*float64(len(columns[0]))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#111111">`+"\n"+
		`<rect width="%.0f" height="%.0f" fill="#ffffff"/>`+"\n", width, height, width, height, width, height)
	for i, column := range columns {
		for j := range column {
			fmt.Fprintf(&b, `<g transform="translate(%.1f %.1f)">`+"\n", across*float64(i)+panelLeft, down*float64(j)+panelTop)
			column[j].draw(&b)
			b.WriteString("</g>\n")
		}
	}
	for i, l := range columns[0][0].Lines {
		fmt.Fprintf(&b, `<g transform="translate(%.1f %.1f)"><path d="M0 0H34" stroke="%s" stroke-width="2"/>%s<text x="44" y="4">%s</text></g>`+"\n",
			width-legendWidth, panelTop+12+22*float64(i), l.color(), l.mark(17, 0), html.EscapeString(l.Name))
	}
	b.WriteString("</svg>\n")
	return os.WriteFile(file, []byte(b.String()), 0o666)
}

func (l *Line) color() string { return colors[l.Style%len(colors)] }

func (l *Line) mark(x, y float64) string {
	return fmt.Sprintf(`<path d="M%.1f %.1f%s" fill="%s"/>`, x, y, marks[l.Style%len(marks)], l.color())
}

// An axis maps values to pixels.
type axis struct {
	least, most float64
	log         bool
	length      float64
}

// newAxis fits an axis to values.
func newAxis(log bool, values []float64, length float64) axis {
	if !log || len(values) == 0 {
		return axis{0, 1, false, length}
	}
	return axis{slices.Min(values) / 1.15, slices.Max(values) * 1.15, true, length}
}

func (a axis) at(v float64) float64 {
	if a.log {
		return a.length * math.Log(v/a.least) / math.Log(a.most/a.least)
	}
	return a.length * (v - a.least) / (a.most - a.least)
}

// ticks are the values that the axis names: on a logarithmic one 1, 2 and 5 of
// each decade.
func (a axis) ticks() (all []float64) {
	if !a.log {
		return []float64{0, 0.2, 0.4, 0.6, 0.8, 1}
	}
	for decade := math.Pow(10, math.Floor(math.Log10(a.least))); decade < a.most; decade *= 10 {
		for _, v := range []float64{decade, 2 * decade, 5 * decade} {
			if v >= a.least && v <= a.most {
				all = append(all, v)
			}
		}
	}
	return all
}

func (p *Plot) draw(b *strings.Builder) {
	var xs, ys []float64
	for _, l := range p.Lines {
		for _, at := range l.Points {
			xs, ys = append(xs, at.X), append(ys, at.Y)
		}
	}
	x, y := newAxis(p.Log, xs, panelWidth), newAxis(p.Log, ys, panelHeight)
	fmt.Fprintf(b, `<text x="%.1f" y="-14" text-anchor="middle" font-size="14">%s</text>`+"\n", panelWidth/2, html.EscapeString(p.Title))
	for _, v := range x.ticks() {
		fmt.Fprintf(b, `<path d="M%.1f 0V%.1f" stroke="#e1e1e1"/><text x="%.1f" y="%.1f" text-anchor="middle">%.3g</text>`+"\n", x.at(v), panelHeight, x.at(v), panelHeight+18, v)
	}
	for _, v := range y.ticks() {
		fmt.Fprintf(b, `<path d="M0 %.1fH%.1f" stroke="#e1e1e1"/><text x="-8" y="%.1f" text-anchor="end">%.3g</text>`+"\n", panelHeight-y.at(v), panelWidth, panelHeight-y.at(v)+4, v)
	}
	fmt.Fprintf(b, `<path d="M0 0V%.1fH%.1f" stroke="#444444" fill="none"/>`+"\n", panelHeight, panelWidth)
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", panelWidth/2, panelHeight+38, html.EscapeString(p.X))
	fmt.Fprintf(b, `<text transform="translate(-50 %.1f) rotate(-90)" text-anchor="middle">%s</text>`+"\n", panelHeight/2, html.EscapeString(p.Y))
	drawn := slices.Clone(p.Lines) // in pixels
	for i := range drawn {
		drawn[i].Points = slices.Clone(drawn[i].Points)
		for j, at := range drawn[i].Points {
			drawn[i].Points[j] = Point{x.at(at.X), panelHeight - y.at(at.Y)}
		}
	}
	for _, l := range drawn {
		l.path(b, 0, len(l.Points)-1, "")
	}
	for _, l := range drawn {
		l.overlay(b, drawn)
	}
}

// path draws a line, whose points are pixels, from a point to another.
func (l *Line) path(b *strings.Builder, from, to int, dashes string) {
	var d strings.Builder
	for i, at := range l.Points[from : to+1] {
		fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(i, 1)], at.X, at.Y)
	}
	fmt.Fprintf(b, `<path d="%s" stroke="%s" stroke-width="2" fill="none"%s/>`+"\n", d.String(), l.color(), dashes)
}

// overlay draws what must not be hidden: the dashes of a line where others lie on
// it, and its marks.
func (l *Line) overlay(b *strings.Builder, all []Line) {
	for i := 0; i+1 < len(l.Points); {
		shared := l.companions(all, i, i+1)
		end := i + 1
		for end+1 < len(l.Points) && slices.Equal(shared, l.companions(all, end, end+1)) {
			end++
		}
		if n := float64(len(shared)); n > 1 {
			turn := float64(slices.Index(shared, l.Style))
			l.path(b, i, end, fmt.Sprintf(` stroke-dasharray="%v %v" stroke-dashoffset="%v"`, dash, dash*(n-1), -dash*turn))
		}
		i = end
	}
	last, n := math.Inf(-1), 0
	for i, at := range l.Points {
		if at.X < last+markGap {
			continue
		}
		last = at.X
		if shared := l.companions(all, i, i); n%len(shared) == slices.Index(shared, l.Style) {
			b.WriteString(l.mark(at.X, at.Y) + "\n")
		}
		n++
	}
}

// companions are the styles of the lines that lie on this one from a point to
// another, itself among them.
func (l *Line) companions(all []Line, from, to int) (styles []int) {
	for _, other := range all {
		on := func(at Point) bool {
			return slices.ContainsFunc(other.Points, func(o Point) bool {
				return math.Abs(o.X-at.X) < tolerance && math.Abs(o.Y-at.Y) < tolerance
			})
		}
		if on(l.Points[from]) && on(l.Points[to]) {
			styles = append(styles, other.Style)
		}
	}
	return styles
}
