// Package trace draws and replays what nodes have recorded.
package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/draw"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/trace"
)

// Cmd is dmutex trace.
type Cmd struct {
	Draw   drawCmd   `cmd:"" help:"Draw a space-time diagram: nodes as lines, messages as arrows, critical sections as bars."`
	Replay replayCmd `cmd:"" help:"Give the recorded inputs to fresh machines, and see whether they do the same."`
}

// readTraces reads files, and the files of directories that end in .trace. It
// names the files whose end is missing.
func readTraces(con *tool.Console, names []string) (traces []*trace.Trace, err error) {
	for _, name := range names {
		files := []string{name}
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			if files, err = traceFiles(name); err != nil {
				return nil, err
			}
		}
		for _, file := range files {
			text, err := os.Open(file)
			if err != nil {
				return nil, err
			}
			t, err := trace.Read(file, text)
			text.Close()
			if err != nil {
				return nil, err
			}
			if t.Cut {
				fmt.Fprintf(con.Err, "%s: the last line is incomplete, and is left out\n", file)
			}
			traces = append(traces, t)
		}
	}
	return traces, nil
}

// traceFiles returns the files of a directory that end in .trace.
func traceFiles(dir string) (files []string, err error) {
	names, err := fs.Glob(os.DirFS(dir), "*.trace")
	for _, name := range names {
		files = append(files, filepath.Join(dir, name))
	}
	if err != nil || len(files) > 0 {
		return files, err
	}
	if below, _ := fs.Glob(os.DirFS(dir), "*/*.trace"); len(below) > 0 {
		return nil, fmt.Errorf("%s: no file in it ends in .trace: choose a directory below, such as %s", dir, filepath.Join(dir, filepath.Dir(below[0])))
	}
	return nil, fmt.Errorf("%s: no file in it ends in .trace", dir)
}

type drawCmd struct {
	Files     []string `arg:"" help:"Traces of the nodes of a group, or directories with files that end in .trace; with --algorithm a script."`
	Algorithm string   `placeholder:"NAME" help:"The file is a script, such as dmutex check prints and golden files are; run it with one of ${algorithms}."`
	Output    string   `short:"o" placeholder:"FILE" help:"The file to write; the default is standard output."`
	Format    string   `placeholder:"svg" help:"svg or html (a page that needs nothing else). The default is what the output's name ends in: .svg or .html."`
	draw.Options

	write     func(*draw.Drawing) []byte
	algorithm dmutex.Algorithm
}

func (drawCmd) Help() string {
	return `A node records if its Config.Trace is set; demo and sim record with --trace DIR. The times of the nodes are lined up by ` +
		`their wall clocks, and then so that no message arrives before it was sent. Where much happens time is stretched; the numbers ` +
		`on the axis are true.

With --algorithm the file is a script, and a delivery takes a second. If a check fails in it, the picture has that as its title.

Exit status: 0 if the picture was drawn; 2 if the command line is wrong; 3 if a file is not a trace, or there is nothing to draw.`
}

// Validate chooses the format, and refuses what could not be drawn.
func (c *drawCmd) Validate() (err error) {
	if c.To < 0 || c.To > 0 && c.To <= c.From {
		return fmt.Errorf("--to=%v: choose more than --from=%v", c.To, c.From)
	}
	if c.Algorithm != "" {
		a, ok := catalog.Find(c.Algorithm, catalog.Broken)
		switch {
		case !ok:
			return fmt.Errorf("--algorithm=%s: choose one of %s", c.Algorithm, catalog.Names())
		case len(c.Files) != 1:
			return errors.New("--algorithm: it runs one script; leave it out to draw traces")
		}
		c.algorithm = a.New
	}
	c.write, err = draw.Format(c.Output, c.Format)
	return err
}

// script reads a file and runs it as a script. If that ends in a violation, the picture says so.
func (c *drawCmd) script(con *tool.Console) ([]*trace.Trace, error) {
	script, err := os.ReadFile(c.Files[0])
	if err != nil {
		return nil, err
	}
	traces, err := dmutextest.TraceScript(c.algorithm, string(script))
	switch {
	case len(traces) == 0 && err == nil:
		return nil, fmt.Errorf("%s: it has no group: a script begins with a line such as \"group 1 2\"", c.Files[0])
	case len(traces) == 0:
		return nil, fmt.Errorf("%s: %w", c.Files[0], err)
	case err != nil:
		c.Title = cmp.Or(c.Title, strings.TrimPrefix(err.Error(), "dmutextest: "))
		fmt.Fprintf(con.Err, "%s: %v\n", c.Files[0], err)
	}
	return traces, nil
}

func (c *drawCmd) Run(con *tool.Console) error {
	read := readTraces
	if c.algorithm != nil {
		read = func(con *tool.Console, _ []string) ([]*trace.Trace, error) { return c.script(con) }
	}
	traces, err := read(con, c.Files)
	if errors.Is(err, trace.ErrFormat) {
		return fmt.Errorf("%w (a script needs --algorithm)", err)
	}
	if err != nil {
		return err
	}
	drawing, err := draw.New(traces, c.Options)
	if err != nil {
		return err
	}
	if c.Output == "" {
		_, err = con.Write(c.write(drawing))
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

type replayCmd struct {
	Files     []string `arg:"" help:"Traces, or directories with files that end in .trace."`
	Algorithm string   `placeholder:"NAME" help:"One of ${algorithms}. The default is the algorithm whose fresh machine describes itself as the trace says."`

	algorithms []catalog.Algorithm
}

func (replayCmd) Help() string {
	return `Every input of every lock's machine is given to a fresh machine of this program, and the messages that it sends, its ` +
		`phase and its fence are compared with the recorded ones. Then the traces, which are of one group, are judged together: a message that came ` +
		`was sent, views have the same members, no fence is granted twice, and of two holds of a lock the one with the lower fence has ended ` +
		`before the other begins. The members of a group with a store may have crashed or been excluded; then the lease must have ended, unless the store ` +
		`proves that the process has. The times of the nodes are lined up as for draw.

Exit status: 0 if all is the same and right; 1 if not, with the first line of each file that differs; 2 if the command line is wrong; ` +
		`3 if a file is not a trace, or is of an algorithm that this program does not have.`
}

func (c *replayCmd) Validate() error {
	c.algorithms = append(slices.Clone(catalog.All), catalog.Broken)
	if c.Algorithm == "" {
		return nil
	}
	a, ok := catalog.Find(c.Algorithm, catalog.Broken)
	if !ok {
		return fmt.Errorf("--algorithm=%s: choose one of %s", c.Algorithm, catalog.Names())
	}
	c.algorithms = []catalog.Algorithm{a}
	return nil
}

func (c *replayCmd) Run(con *tool.Console) error {
	traces, err := readTraces(con, c.Files)
	if err != nil {
		return err
	}
	failed := false
	for _, t := range traces {
		name, done, err := c.replay(t)
		switch {
		case errors.Is(err, dmutextest.ErrDiffers):
			failed = true
			fmt.Fprintln(con, err)
		case err != nil:
			return err
		default:
			fmt.Fprintf(con, "%s: the same: %s under %s, %s", t.Name, tool.Several(done.Inputs, "input"), name, tool.Several(done.Machines, "machine"))
			if done.Skipped > 0 {
				fmt.Fprintf(con, "; %s skipped after a gap", tool.Several(done.Skipped, "event"))
			}
			fmt.Fprintln(con.Out)
		}
	}
	v, err := draw.Judge(traces)
	if err != nil {
		return err
	}
	for _, fault := range v.Faults[:min(len(v.Faults), mostFaults)] {
		fmt.Fprintln(con, fault)
	}
	if more := len(v.Faults) - mostFaults; more > 0 {
		fmt.Fprintf(con, "and %s\n", tool.Several(more, "fault"))
	}
	if failed || len(v.Faults) > 0 {
		return tool.ErrFailed
	}
	fmt.Fprintf(con, "together: %s of %s, one after the other\n", tool.Several(v.Grants, "grant"), tool.Several(v.Locks, "lock"))
	return nil
}

const mostFaults = 10 // that are printed

// replay replays one trace under the algorithm that was asked for, or under each
// that describes itself as the trace says, until one does the same.
func (c *replayCmd) replay(t *trace.Trace) (name string, done dmutextest.Replayed, err error) {
	for _, a := range c.algorithms {
		if c.Algorithm == "" {
			text, refused := trace.Describe(a.New, t.Header.Self, t.Header.Members)
			if refused != nil || text != t.Header.Algorithm {
				continue
			}
		}
		now, differs := dmutextest.Replay(t, a.New)
		if differs == nil {
			return a.Name, now, nil
		}
		err = cmp.Or(err, differs)
	}
	switch {
	case err != nil:
		return "", done, err
	case t.Header.Algorithm == "":
		return "", done, fmt.Errorf("%s: it does not say which algorithm it is of; give one with --algorithm", t.Name)
	}
	return "", done, fmt.Errorf("%s: no algorithm of this program describes itself as %q; give one with --algorithm", t.Name, t.Header.Algorithm)
}
