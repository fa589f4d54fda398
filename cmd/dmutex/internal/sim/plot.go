package sim

import (
	"slices"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// plotAll draws the measurements into a file, in a column for each load: above
// the messages of an entry, below a delay, both against the number of nodes.
func plotAll(file string, loads []string, all []measurement) error {
	var columns [][]tool.Plot
	for _, load := range loads {
		of := slices.DeleteFunc(slices.Clone(all), func(m measurement) bool { return m.Load != load })
		delay := plot("time from a release to the next entry, in T", of, next)
		if load == "rare" {
			delay = plot("time from a request to the entry, in T", of, func(m measurement) float64 { return m.Wait.Mean })
		}
		columns = append(columns, []tool.Plot{
			plot("messages per entry; "+loadWords(load), of, func(m measurement) float64 { return m.PerEntry }),
			delay,
		})
	}
	return tool.DrawPlots(file, columns)
}

// next is 0 if no node ever waited.
func next(m measurement) float64 {
	if m.Next == nil {
		return 0
	}
	return m.Next.Mean
}

// plot shows a value of every algorithm against the number of nodes.
func plot(title string, of []measurement, value func(measurement) float64) tool.Plot {
	p := tool.Plot{Title: title, X: "nodes", Log: true}
	for i, a := range tool.Algorithms {
		l := tool.Line{Name: a.Name, Style: i}
		for _, m := range of {
			if v := value(m); m.Algorithm == a.Name && v > 0 { // a logarithmic axis has no 0
				l.Points = append(l.Points, tool.Point{X: float64(m.Nodes), Y: v})
			}
		}
		if l.Points != nil {
			p.Lines = append(p.Lines, l)
		}
	}
	return p
}
