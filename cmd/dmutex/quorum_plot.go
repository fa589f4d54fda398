package main

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/dmutex/dmutex/quorum"
)

// The looks of a construction: one colour and one dash each, the same in every
// plot. The colours are those of Okabe and Ito, which the colour-blind can tell
// apart; where two constructions share one, their dashes differ.
var looks = map[string]struct {
	colour color.RGBA
	dash   []vg.Length
}{
	"central":    {color.RGBA{110, 110, 110, 255}, []vg.Length{2, 3}},
	"majority":   {color.RGBA{0, 0, 0, 255}, nil},
	"grid":       {color.RGBA{213, 94, 0, 255}, nil},
	"rowgrid":    {color.RGBA{213, 94, 0, 255}, []vg.Length{6, 3}},
	"fpp":        {color.RGBA{0, 114, 178, 255}, nil},
	"degenerate": {color.RGBA{0, 114, 178, 255}, nil},
	"tree":       {color.RGBA{0, 158, 115, 255}, nil},
	"hqc":        {color.RGBA{230, 159, 0, 255}, nil},
	"wheel":      {color.RGBA{204, 121, 167, 255}, []vg.Length{6, 3}},
	"wall":       {color.RGBA{86, 180, 233, 255}, []vg.Length{10, 3}},
}

const (
	plotPoints  = 80
	plotSamples = 20_000 // of a point; they keep well within a line's width
	plotWidth   = 22 * vg.Centimeter
	plotHeight  = 14 * vg.Centimeter
	plotMargin  = 4 * vg.Millimeter
)

// plotAvailability draws how likely a quorum is up against how likely a site is.
func plotAvailability(file string, n int, rows []quorum.Row) error {
	p := plot.New()
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle,
		&p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Variant = "Sans"
	}
	p.Title.Text = fmt.Sprintf("Is a quorum up? %d sites", n)
	p.Title.TextStyle.Font.Size = 16
	p.Title.Padding = 10
	p.X.Label.Text = "probability that a site is up"
	p.Y.Label.Text = "probability that a quorum is up"
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font.Size = 13
		axis.Label.Padding = 6
		axis.Tick.Label.Font.Size = 11
		axis.Tick.Marker = tenths{}
		axis.Padding = 0
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color = color.Gray{225}
	grid.Horizontal.Color = color.Gray{225}
	p.Add(grid)

	p.Legend.TextStyle.Font.Size = 11
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs, p.Legend.YOffs = 12, -8
	p.Legend.Padding = 3
	p.Legend.ThumbnailWidth = 32
	var lines []*plotter.Line
	for _, r := range rows {
		xys, err := curve(r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
		line, err := plotter.NewLine(xys)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
		look := looks[r.Name]
		line.Color, line.Dashes, line.Width = look.colour, look.dash, 2
		lines = append(lines, line)
		p.Legend.Add(" "+r.Name, line)
	}
	for _, line := range slices.Backward(lines) { // the best on top of the others
		p.Add(line)
	}
	return save(p, file)
}

// save draws the plot on white, with a margin, in the format that the file's name
// asks for.
func save(p *plot.Plot, file string) error {
	format := strings.ToLower(strings.TrimPrefix(filepath.Ext(file), "."))
	canvas, err := draw.NewFormattedCanvas(plotWidth, plotHeight, format)
	if err != nil {
		return err
	}
	page := draw.New(canvas)
	page.SetColor(color.White)
	page.Fill(page.Rectangle.Path())
	p.Draw(draw.Crop(page, plotMargin, -plotMargin, plotMargin, -plotMargin))
	return writeCanvas(canvas, file)
}

// writeCanvas writes what was drawn.
func writeCanvas(canvas vg.CanvasWriterTo, file string) error {
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o666)
}

// plotExact has the sites up to which every point is computed exactly, for those
// constructions where more would make a point take a second; the others are quick
// at any size.
var plotExact = map[string]int{"fpp": 24, "degenerate": 24, "grid": 64}

// curve computes the points of a line.
func curve(r quorum.Row) (plotter.XYs, error) {
	c := r.Coterie
	limit, limited := plotExact[r.Name]
	sampled := limited && len(c.Sites()) > limit
	var xys plotter.XYs
	for i := range plotPoints + 1 {
		up := float64(i) / plotPoints
		a, err := quorum.Estimate{}, error(nil)
		if sampled {
			a, err = c.SampleAvailability(func(int) float64 { return up }, plotSamples, 1)
		} else {
			a, err = c.Availability(up)
		}
		if err != nil {
			return nil, err
		}
		xys = append(xys, plotter.XY{X: up, Y: a.Value})
	}
	return xys, nil
}

// tenths marks every tenth and writes every second.
type tenths struct{}

// Ticks returns the marks between 0 and 1.
func (tenths) Ticks(float64, float64) []plot.Tick {
	var ticks []plot.Tick
	for i := range 11 {
		t := plot.Tick{Value: float64(i) / 10}
		if i%2 == 0 {
			t.Label = strings.TrimSuffix(fmt.Sprintf("%.1f", t.Value), ".0")
		}
		ticks = append(ticks, t)
	}
	return ticks
}
