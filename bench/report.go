package main

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A target bounds one figure by another.
type target struct {
	figure, system   string
	baseFigure, base string
	factor           float64
	least            bool // the ratio must be at least the factor, not at most
}

// targets are those that this program can measure.
var targets = []target{
	{figAcquire, centralTCP, figAcquire, bare, 1.25, false},
	{figRelease, centralTCP, figRelease, bare, 1.5, false},
	{figAcquire, ricart2, figAcquire, rawFan2, 1.3, false},
	{figAcquire, ricart7, figAcquire, rawFan7, 1.3, false},
	{figHandOver, centralTCP, figHandOver, bare, 1.25, false},
	{figHandOff, centralTCP, figHandOff, bare, 1.25, false},
	{figHandOver, ricartTCP, figHandOver, rawHop, 1.5, false},
	{figHandOver, suzukiTCP, figHandOver, rawHop, 1.5, false},
	{figGrants, centralTCP, figGrants, bare, 0.85, true},
	{figGrants, centralTCP, figGrants, postgres, 1.3, true},
	{figFairness, centralTCP, "", "", 0.999, true},
	{figReentry, centralOwn, "", "", 0.5, false},
	{figReentry, suzukiHome, "", "", 0.5, false},
	{figReentry, ringHome, "", "", 0.5, false},
	{figReentry, carvalho, "", "", 0.5, false},
	{figAcquire, centralNATS, figAcquire, rawRequest, 1.2, false},
	{figGrants2, centralNATS, figGrants2, natsKV, 8, true},
	{figGrants3, centralNATS, figGrants3, natsKV, 8, true},
	{figGrants, centralNATS, figGrants, natsKV, 8, true},
	{figMany, centralTCP, figMany, bare, 1, true},
}

// ratio returns the median of the ratios within each round; without a base, of
// the figure itself.
func (t target) ratio(r results) (ratio float64, ok bool) {
	values, bases := r[t.figure][t.system], r[t.baseFigure][t.base]
	if len(values) == 0 || t.base != "" && len(bases) == 0 {
		return 0, false
	}
	if t.base == "" {
		return median(values), true
	}
	return median(ratios(values, bases)), true
}

func ratios(values, bases []float64) []float64 {
	list := make([]float64, len(values))
	for i := range list {
		list[i] = values[i] / bases[i]
	}
	return list
}

// String says what is to be held, such as "at most 1.2 x bare coordinator".
func (t target) String() string {
	word := "at most"
	if t.least {
		word = "at least"
	}
	if t.base == "" {
		return fmt.Sprintf("%s %g", word, t.factor)
	}
	return fmt.Sprintf("%s %g x %s", word, t.factor, t.base)
}

func (t target) verdict(ratio float64) string {
	by := ratio/t.factor - 1
	if t.least {
		by = -by
	}
	if by <= 0 {
		return "met"
	}
	return fmt.Sprintf("missed by %.0f%%", max(1, 100*by))
}

// report writes the tables: each figure of each system, with its ratio to the
// bare coordinator where that has it, and the targets.
func report(w io.Writer, r results, absent []string) {
	for _, figure := range figures {
		systems := sorted(r[figure])
		if len(systems) == 0 {
			continue
		}
		fmt.Fprintf(w, "| %s | median | x bare coordinator |\n|---|---:|---:|\n", figure)
		for _, s := range systems {
			relative := ""
			if bases := r[figure][bare]; len(bases) > 0 && figure != figFairness {
				relative = fmt.Sprintf("%.2f", median(ratios(r[figure][s], bases)))
			}
			fmt.Fprintf(w, "| %s | %.4g | %s |\n", s, median(r[figure][s]), relative)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "| what | system | target | measured | |\n|---|---|---|---:|---|\n")
	for _, t := range targets {
		measured, verdict := "", "not measured"
		if ratio, ok := t.ratio(r); ok {
			measured, verdict = fmt.Sprintf("%.3g", ratio), t.verdict(ratio)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", t.figure, t.system, t, measured, verdict)
	}
	if len(absent) > 0 {
		fmt.Fprintf(w, "\nAbsent: %s.\n", strings.Join(absent, "; "))
	}
}

// sorted returns the systems of a figure in the order of their medians.
func sorted(bySystem map[string][]float64) []string {
	var list []string
	for s := range bySystem {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b string) int {
		if x, y := median(bySystem[a]), median(bySystem[b]); x != y {
			if x < y {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return list
}

// drawPlot plots the time of an Acquire and of a hand-off for each system, on a
// logarithmic scale. The file's name says the format.
func drawPlot(r results, file string) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.Title.Text = "What a lock takes (median; less is better)"
	p.X.Label.Text = "microseconds"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Add(plotter.NewGrid())
	systems := sorted(r[figAcquire])
	for _, s := range sorted(r[figHandOver]) {
		if !slices.Contains(systems, s) {
			systems = append(systems, s)
		}
	}
	if len(systems) == 0 {
		return fmt.Errorf("nothing to draw into %s: a plot shows %s and %s", file, figAcquire, figHandOver)
	}
	slices.Reverse(systems)
	for i, series := range []struct {
		figure string
		color  color.RGBA
		shape  draw.GlyphDrawer
	}{
		{figAcquire, color.RGBA{0, 114, 178, 255}, draw.CircleGlyph{}},
		{figHandOver, color.RGBA{213, 94, 0, 255}, draw.TriangleGlyph{}},
	} {
		var points plotter.XYs
		for y, s := range systems {
			if x := median(r[series.figure][s]); x > 0 {
				points = append(points, plotter.XY{X: x, Y: float64(y)})
			}
		}
		if len(points) == 0 {
			continue
		}
		scatter, err := plotter.NewScatter(points)
		if err != nil {
			return fmt.Errorf("series %d: %w", i, err)
		}
		scatter.GlyphStyle = draw.GlyphStyle{Color: series.color, Radius: vg.Points(4), Shape: series.shape}
		p.Add(scatter)
		p.Legend.Add(series.figure, scatter)
	}
	// The upper right is free: the fast systems are at the top, on the left.
	p.Legend.Top, p.Legend.XOffs, p.Legend.YOffs, p.Legend.TextStyle.Font.Size = true, -8, -8, 10
	p.NominalY(systems...)
	p.Y.Tick.Label.Font.Size = 10
	p.X.Min, p.X.Max = p.X.Min/1.3, p.X.Max*1.3
	const margin = 4 * vg.Millimeter
	canvas, err := draw.NewFormattedCanvas(24*vg.Centimeter, 14*vg.Centimeter, strings.TrimPrefix(filepath.Ext(file), "."))
	if err != nil {
		return err
	}
	page := draw.New(canvas)
	page.SetColor(color.White)
	page.Fill(page.Rectangle.Path())
	p.Draw(draw.Crop(page, margin, -margin, margin, -margin))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o666)
}
