package tool

import (
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Where lines lie on each other their dashes take turns, and their marks as well.
// A line that lies alone is whole.
func TestPlotShared(t *testing.T) {
	line := func(name string, style int, ys ...float64) Line {
		l := Line{Name: name, Style: style}
		for i, y := range ys {
			l.Points = append(l.Points, Point{float64(i) / 4, y})
		}
		return l
	}
	file := filepath.Join(t.TempDir(), "plot.svg")
	require.NoError(t, DrawPlots(file, [][]Plot{{{Title: "a < b", Lines: []Line{
		line("under", 0, 0.5, 0.5, 0.5, 0.5, 0.1),
		line("over", 1, 0.5, 0.5, 0.5, 0.5, 0.9),
		line("alone", 2, 0.2, 0.3, 0.2, 0.3, 0.2),
	}}}}))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	svg := string(text)
	for dec := xml.NewDecoder(strings.NewReader(svg)); err != io.EOF; {
		_, err = dec.Token()
		require.True(t, err == nil || err == io.EOF, err)
	}
	shared := `<path d="M0.0 160.0L120.0 160.0L240.0 160.0L360.0 160.0" `
	require.Contains(t, svg, shared+`stroke="#000000" stroke-width="2" fill="none" stroke-dasharray="9 9" stroke-dashoffset="-0"/>`)
	require.Contains(t, svg, shared+`stroke="#0072b2" stroke-width="2" fill="none" stroke-dasharray="9 9" stroke-dashoffset="-9"/>`)
	require.Equal(t, 2, strings.Count(svg, "stroke-dasharray"))
	marks := func(color string) int { return strings.Count(svg, `fill="`+color+`"`) - 1 } // and one in the legend
	require.Equal(t, []int{3, 3, 5}, []int{marks("#000000"), marks("#0072b2"), marks("#56b4e9")}, "of 5 points, 4 are shared")
	require.Contains(t, svg, ">a &lt; b<")
}

// A logarithmic axis fits its points, and names 1, 2 and 5 of each decade.
func TestPlotLogarithmic(t *testing.T) {
	a := newAxis(true, []float64{2, 30}, 100)
	require.Equal(t, []float64{2, 5, 10, 20}, a.ticks())
	require.InDelta(t, 100-a.at(30), a.at(2), 1e-9, "as much room at each end")
	require.Equal(t, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}, newAxis(false, []float64{2}, 100).ticks())
}
