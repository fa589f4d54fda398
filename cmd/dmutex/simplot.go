package main

import (
	"fmt"
	"image/color"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A figure has a column for each load: above the messages of an entry, below a
// delay, both against the number of nodes. Where requests are rare the delay is
// that from request to entry, else that from a release to the next entry. At
// the right is what the lines are.
const (
	panelWidth  = 14 * vg.Centimeter
	panelHeight = 9.5 * vg.Centimeter
	legendWidth = 4.5 * vg.Centimeter
)

// A style tells an algorithm's line from the others.
type style struct {
	color  color.Color
	glyph  draw.GlyphDrawer
	dashes []vg.Length
}

// styles are colours that are told apart also by those who do not see all of
// them (Okabe and Ito), and different marks and dashes besides.
var styles = []style{
	{color.RGBA{0, 0, 0, 255}, draw.CircleGlyph{}, nil},
	{color.RGBA{0, 114, 178, 255}, draw.SquareGlyph{}, nil},
	{color.RGBA{86, 180, 233, 255}, draw.BoxGlyph{}, []vg.Length{5, 3}},
	{color.RGBA{213, 94, 0, 255}, draw.TriangleGlyph{}, nil},
	{color.RGBA{230, 159, 0, 255}, draw.PyramidGlyph{}, []vg.Length{5, 3}},
	{color.RGBA{0, 158, 115, 255}, draw.PlusGlyph{}, nil},
	{color.RGBA{204, 121, 167, 255}, draw.CrossGlyph{}, nil},
	{color.RGBA{110, 110, 110, 255}, draw.RingGlyph{}, []vg.Length{1, 2}},
}

// plotAll draws the figure into a file.
func plotAll(file string, loads []string, all []measurement) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	width := panelWidth*vg.Length(len(loads)) + legendWidth
	canvas, err := draw.NewFormattedCanvas(width, 2*panelHeight, filepath.Ext(file)[1:])
	if err != nil {
		return err
	}
	page := draw.New(canvas)
	page.SetColor(color.White)
	page.Fill(page.Rectangle.Path())
	tiles := draw.Tiles{Rows: 2, Cols: len(loads), PadX: 2 * plotMargin, PadY: plotMargin}
	left := draw.Crop(page, plotMargin, -legendWidth, plotMargin, -plotMargin)
	for k, load := range loads {
		of := slices.DeleteFunc(slices.Clone(all), func(m measurement) bool { return m.Load != load })
		delay := panel{"time from a release to the next entry, in T", next}
		if load == "rare" {
			delay = panel{"time from a request to the entry, in T", wait}
		}
		for i, p := range []panel{{"messages per entry; " + loadWords(load), perEntry}, delay} {
			drawn, legend, err := p.plot(of)
			if err != nil {
				return err
			}
			drawn.Draw(tiles.At(left, k, i))
			if i == 0 && k == 0 {
				legend.Draw(draw.Crop(page, width-legendWidth+plotMargin, -plotMargin, plotMargin, -4*plotMargin))
			}
		}
	}
	return writeCanvas(canvas, file)
}

func perEntry(m measurement) float64 { return m.PerEntry }
func wait(m measurement) float64     { return m.Wait.Mean }

// next is 0 if nobody ever waited.
func next(m measurement) float64 {
	if m.Next == nil {
		return 0
	}
	return m.Next.Mean
}

// A panel shows a value of all algorithms against the number of nodes.
type panel struct {
	title string
	value func(measurement) float64
}

func (p panel) plot(of []measurement) (*plot.Plot, plot.Legend, error) {
	drawn, legend := plot.New(), plot.NewLegend()
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{225}, color.Gray{225}
	drawn.Add(grid)
	drawn.Title.Text, drawn.Title.TextStyle.Font.Size, drawn.Title.Padding = p.title, 12, 8
	drawn.X.Label.Text = "nodes"
	legend.Top, legend.Left, legend.Padding, legend.ThumbnailWidth = true, true, 6, 30

	var nodes, values []float64
	for i, a := range algorithms {
		var points plotter.XYs
		for _, m := range of {
			if v := p.value(m); m.Algorithm == a.name && v > 0 { // there is no 0 on a scale of logarithms
				points = append(points, plotter.XY{X: float64(m.Nodes), Y: v})
				nodes, values = append(nodes, float64(m.Nodes)), append(values, v)
			}
		}
		if len(points) == 0 {
			continue
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, legend, err
		}
		marks, err := plotter.NewScatter(apart(points))
		if err != nil {
			return nil, legend, err
		}
		look := styles[i%len(styles)]
		line.Color, line.Dashes = look.color, look.dashes
		line.Width = 1.2 + 0.4*vg.Length(len(algorithms)-1-i) // so that a line shows beneath another
		marks.Color, marks.Shape, marks.Radius = look.color, look.glyph, 3.5
		drawn.Add(line, marks)
		legend.Add(a.name, line, marks)
	}
	if len(values) > 0 {
		logarithmic(&drawn.X, nodes)
		logarithmic(&drawn.Y, values)
	}
	return drawn, legend, nil
}

// apart leaves out points that would crowd on a scale of logarithms.
func apart(points plotter.XYs) (some plotter.XYs) {
	for _, p := range points {
		if len(some) == 0 || p.X >= 1.3*some[len(some)-1].X {
			some = append(some, p)
		}
	}
	return some
}

// logarithmic makes an axis for these values, with a little room beside them.
func logarithmic(axis *plot.Axis, values []float64) {
	axis.Scale = plot.LogScale{}
	axis.Min, axis.Max = slices.Min(values)/1.15, slices.Max(values)*1.15
	var ticks []plot.Tick
	for decade := 1e-3; decade < axis.Max; decade *= 10 {
		for _, digit := range []float64{1, 2, 5} {
			if v := digit * decade; v >= axis.Min && v <= axis.Max {
				ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%.3g", v)})
			}
		}
	}
	axis.Tick.Marker = plot.ConstantTicks(ticks)
}
