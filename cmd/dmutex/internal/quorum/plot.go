package quorum

import (
	"fmt"
	"slices"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/quorum"
)

const (
	plotPoints  = 80
	plotSamples = 20_000 // of a point; their error is well within a line's width
)

// plotAvailability draws how likely a quorum is up against how likely a site is.
func plotAvailability(file string, n int, rows []row) error {
	p := tool.Plot{Title: fmt.Sprintf("Is a quorum up? %d sites", n), X: "probability that a site is up", Y: "probability that a quorum is up"}
	all := quorum.Constructions[int]() // whose order is that of the styles: the same in every plot
	for _, r := range rows {
		points, err := curve(r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		style := slices.IndexFunc(all, func(c quorum.Construction[int]) bool { return c.Name == r.name })
		p.Lines = append(p.Lines, tool.Line{Name: r.name, Style: style, Points: points})
	}
	return tool.DrawPlots(file, [][]tool.Plot{{p}})
}

// plotExact is the number of sites up to which every point is computed exactly.
// It has the constructions for which a point of a larger group would take a
// second; the others are quick at any size.
var plotExact = map[string]int{"fpp": 24, "degenerate": 24, "grid": 64}

// curve computes the points of a line.
func curve(r row) (points []tool.Point, err error) {
	c := r.coterie
	limit, limited := plotExact[r.name]
	sampled := limited && len(c.Sites()) > limit
	for i := range plotPoints + 1 {
		up := float64(i) / plotPoints
		var a quorum.Estimate
		if sampled {
			a, err = c.SampleAvailability(func(int) float64 { return up }, plotSamples, 1)
		} else {
			a, err = c.Availability(up)
		}
		if err != nil {
			return nil, err
		}
		points = append(points, tool.Point{X: up, Y: a.Value})
	}
	return points, nil
}
