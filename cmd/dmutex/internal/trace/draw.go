package trace

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/draw"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

type drawCmd struct {
	Files  []string `arg:"" help:"Traces of the nodes of a group, or directories with files that end in .trace."`
	Output string   `short:"o" placeholder:"FILE" help:"The file to write; the default is standard output."`
	Format string   `placeholder:"svg" help:"svg, html (a page that needs nothing else) or mermaid (a sequenceDiagram). The default is what the output's name ends in: .svg, .html or .mmd."`
	draw.Options

	write func(*draw.Drawing) []byte
}

func (drawCmd) Help() string {
	return `A node records if its Config.Trace is set; demo and sim record with --trace DIR. The times of the nodes are lined up by ` +
		`their wall clocks, and then so that no message arrives before it was sent. Where much happens time is stretched; the numbers ` +
		`on the axis are true.

Exit status: 0 if the picture was drawn; 2 if the command line is wrong; 3 if a file is not a trace, or there is nothing to draw.`
}

// Validate chooses the format, and refuses what could not be drawn.
func (c *drawCmd) Validate() error {
	switch {
	case c.Width < 400:
		return fmt.Errorf("--width=%d: choose at least 400", c.Width)
	case c.From < 0:
		return fmt.Errorf("--from=%v: choose 0s or more", c.From)
	case c.To < 0 || c.To > 0 && c.To <= c.From:
		return fmt.Errorf("--to=%v: choose more than --from=%v", c.To, c.From)
	}
	formats := []struct {
		name, suffix string
		write        func(*draw.Drawing) []byte
	}{
		{"svg", ".svg", (*draw.Drawing).SVG},
		{"html", ".html", (*draw.Drawing).HTML},
		{"mermaid", ".mmd", (*draw.Drawing).Mermaid},
	}
	suffix := cmp.Or(filepath.Ext(c.Output), ".svg")
	for _, f := range formats {
		if c.Format == f.name || c.Format == "" && suffix == f.suffix {
			c.write = f.write
			return nil
		}
	}
	if c.Format == "" {
		return fmt.Errorf("--output=%s: the name must end in .svg, .html or .mmd, or give --format", c.Output)
	}
	return fmt.Errorf("--format=%s: choose svg, html or mermaid", c.Format)
}

func (c *drawCmd) Run(con *tool.Console) error {
	traces, err := readTraces(con, c.Files)
	if err != nil {
		return err
	}
	drawing, err := draw.New(traces, c.Options)
	if err != nil {
		return err
	}
	if c.Output == "" {
		_, err = con.Out.Write(c.write(drawing))
		return err
	}
	if err := os.WriteFile(c.Output, c.write(drawing), 0o644); err != nil {
		return err
	}
	events := 0
	for _, t := range traces {
		events += len(t.Events)
	}
	_, err = fmt.Fprintf(con.Err, "wrote %s: %s of %s\n", c.Output, tool.Several(events, "event"), tool.Several(len(traces), "trace"))
	return err
}
