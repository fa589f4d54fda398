package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/trace/draw"
)

// traceCmd does things with the traces that nodes have recorded.
type traceCmd struct {
	Draw   traceDrawCmd   `cmd:"" help:"Draw a space-time diagram: nodes as lines, messages as arrows, critical sections as bars."`
	Replay traceReplayCmd `cmd:"" help:"Give the recorded inputs to fresh machines, and see whether they do the same."`
}

// readTraces reads files, and of directories those that end in .trace. It says
// of which the end is missing.
func readTraces(con *console, names []string) (traces []*trace.Trace, err error) {
	for _, name := range names {
		files := []string{name}
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			if files, err = traceFiles(name); err != nil {
				return nil, err
			}
		}
		for _, file := range files {
			t, err := readTrace(file)
			if err != nil {
				return nil, err
			}
			if t.Cut {
				fmt.Fprintf(con.err, "%s: the last line is not whole, and is left out\n", file)
			}
			traces = append(traces, t)
		}
	}
	return traces, nil
}

// traceFiles returns the files of a directory that end in .trace.
func traceFiles(dir string) (files []string, err error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	below := ""
	for _, entry := range all {
		switch path := filepath.Join(dir, entry.Name()); {
		case entry.IsDir():
			below = cmp.Or(below, path)
		case filepath.Ext(path) == ".trace":
			files = append(files, path)
		}
	}
	switch {
	case len(files) > 0:
		return files, nil
	case below != "":
		return nil, fmt.Errorf("%s: there is no file that ends in .trace: choose a directory below, such as %s", dir, below)
	}
	return nil, fmt.Errorf("%s: there is no file that ends in .trace", dir)
}

func readTrace(name string) (*trace.Trace, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return trace.Read(name, file)
}

// traceDrawCmd draws.
type traceDrawCmd struct {
	Files  []string      `arg:"" help:"Traces of the nodes of a group, or directories with files that end in .trace."`
	Output string        `short:"o" placeholder:"FILE" help:"Where to; standard output if not given."`
	Format string        `placeholder:"svg" help:"svg, html (a page that needs nothing else), mermaid (a sequenceDiagram) or shiviz (a log with vector clocks; its first line is the regular expression for ShiViz). If not given, what the output's name ends in: .svg, .html, .mmd or .log."`
	Lock   string        `help:"Draw this lock only."`
	From   time.Duration `help:"Begin so long after the first event."`
	To     time.Duration `help:"End so long after the first event."`
	Title  string        `help:"Written above the picture."`
	Width  int           `default:"1500" help:"Pixels after which a new row begins, at least 400; of svg and html."`

	write func(*draw.Drawing) []byte
}

// Help is the text of trace draw --help.
func (traceDrawCmd) Help() string {
	return `A node records if its Config.Trace is set; demo and sim record with --trace DIR. The times of the nodes are lined up by ` +
		`their wall clocks, and then so that no message arrives before it was sent. Where much happens time is stretched; the numbers ` +
		`on the axis are true. A message that the session sent again before it arrived is taken for lost the first time.

Exit status: 0 it is drawn; 2 if the command line is wrong; 3 if a file is no trace, or there is nothing to draw.`
}

// Validate chooses the format, and refuses what could not be drawn.
func (c *traceDrawCmd) Validate() error {
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
		{"shiviz", ".log", (*draw.Drawing).ShiViz},
	}
	suffix := cmp.Or(filepath.Ext(c.Output), ".svg")
	for _, f := range formats {
		if c.Format == f.name || c.Format == "" && suffix == f.suffix {
			c.write = f.write
			return nil
		}
	}
	if c.Format == "" {
		return fmt.Errorf("--output=%s: the name must end in .svg, .html, .mmd or .log, or give --format", c.Output)
	}
	return fmt.Errorf("--format=%s: choose svg, html, mermaid or shiviz", c.Format)
}

// Run draws.
func (c *traceDrawCmd) Run(con *console) error {
	traces, err := readTraces(con, c.Files)
	if err != nil {
		return err
	}
	drawing, err := draw.New(traces, draw.Options{Title: c.Title, Lock: c.Lock, From: c.From, To: c.To, Width: c.Width})
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), dmutex.ErrMisuse.Error()+": ")) // the user is no program
	}
	if c.Output == "" {
		_, err = con.out.Write(c.write(drawing))
		return err
	}
	return os.WriteFile(c.Output, c.write(drawing), 0o644)
}

// traceReplayCmd replays.
type traceReplayCmd struct {
	Files     []string `arg:"" help:"Traces, or directories with files that end in .trace."`
	Algorithm string   `placeholder:"NAME" help:"If not given, that which describes its fresh machine as the trace does; one of ${algorithms}."`
}

// Help is the text of trace replay --help.
func (traceReplayCmd) Help() string {
	return `Every input of every lock's machine is given to a fresh machine of this program, and the messages that it sends, its ` +
		`phase and its fence are compared with what was recorded.

Exit status: 0 if all is the same; 1 if not, with the first line of each file that differs; 2 if the command line is wrong; ` +
		`3 if a file is no trace, or its algorithm is none of this program.`
}

// Validate refuses an algorithm that there is not.
func (c *traceReplayCmd) Validate() error {
	if c.Algorithm != "" && !slices.ContainsFunc(algorithms, func(a algorithm) bool { return a.name == c.Algorithm }) {
		return fmt.Errorf("--algorithm=%s: choose one of %s", c.Algorithm, algorithmNames())
	}
	return nil
}

// Run replays.
func (c *traceReplayCmd) Run(con *console) error {
	traces, err := readTraces(con, c.Files)
	if err != nil {
		return err
	}
	failed := false
	for _, t := range traces {
		name, done, err := c.replay(t)
		switch {
		case errors.Is(err, trace.ErrDiffers):
			failed = true
			fmt.Fprintln(con.out, err)
		case err != nil:
			return err
		default:
			fmt.Fprintf(con.out, "%s: the same: %s under %s, %s", t.Name, several(done.Inputs, "input"), name, several(done.Machines, "machine"))
			if done.Skipped > 0 {
				fmt.Fprintf(con.out, "; %s skipped after a gap", several(done.Skipped, "event"))
			}
			fmt.Fprintln(con.out)
		}
	}
	if failed {
		return errFailed
	}
	return nil
}

// replay replays one trace under the algorithm that was asked for, or under each
// that describes itself as the trace says, until it is the same.
func (c *traceReplayCmd) replay(t *trace.Trace) (name string, done trace.Replayed, err error) {
	said := "it does not say which algorithm it is of"
	if t.Header.Algorithm != "" {
		said = fmt.Sprintf("no algorithm of this program describes itself as %q", t.Header.Algorithm)
	}
	err = fmt.Errorf("%s: %s; give one with --algorithm", t.Name, said)
	first := true
	for _, a := range append(slices.Clone(algorithms), broken) {
		if c.Algorithm == "" {
			text, refused := trace.Describe(a.make, t.Header.Self, t.Header.Members)
			if refused != nil || text != t.Header.Algorithm {
				continue
			}
		} else if a.name != c.Algorithm {
			continue
		}
		now, differs := trace.Replay(t, a.make)
		if differs == nil {
			return a.name, now, nil
		}
		if first {
			first, err = false, differs
		}
	}
	return "", done, err
}

// traceDir makes the directory for traces, which must not have any files.
func traceDir(elements ...string) (string, error) {
	dir := filepath.Join(elements...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	old, err := os.ReadDir(dir)
	if err == nil && len(old) > 0 {
		err = fmt.Errorf("%s is not empty: traces of different runs do not mix, choose another directory", dir)
	}
	return dir, err
}

// traceDirs makes a directory in dir for each algorithm that has a machine, if
// dir is given.
func traceDirs(dir string, list []algorithm) error {
	for _, a := range list {
		if dir == "" || a.make == nil {
			continue
		}
		if _, err := traceDir(dir, a.name); err != nil {
			return err
		}
	}
	return nil
}

func traceFile(dir string, id dmutex.NodeID) string {
	return filepath.Join(dir, fmt.Sprintf("%d.trace", id))
}

// simTraces are the traces of a simulation, as they are written.
type simTraces struct {
	files   []io.Closer
	buffers []*bufio.Writer
	writers map[dmutex.NodeID]*trace.Writer
	err     error
}

// errTraces marks that traces could not be written.
var errTraces = errors.New("traces")

func newSimTraces(dir string, a algorithm, members []dmutex.NodeID) (s *simTraces, err error) {
	if dir, err = traceDir(dir); err != nil {
		return nil, err
	}
	made := &simTraces{writers: make(map[dmutex.NodeID]*trace.Writer)}
	defer func() {
		if err != nil {
			_ = made.close()
		}
	}()
	for _, id := range members {
		text, err := trace.Describe(a.make, id, members)
		if err != nil {
			return nil, err
		}
		file, err := os.Create(traceFile(dir, id))
		if err != nil {
			return nil, err
		}
		buffer := bufio.NewWriter(file)
		made.files, made.buffers = append(made.files, file), append(made.buffers, buffer)
		if made.writers[id], err = trace.NewWriter(buffer, trace.Header{Self: id, Members: members, Algorithm: text}); err != nil {
			return nil, err
		}
	}
	return made, nil
}

func (s *simTraces) write(id dmutex.NodeID, e *trace.Event) {
	if s.err == nil {
		s.err = s.writers[id].Write(e)
	}
}

func (s *simTraces) close() error {
	for i := range s.files {
		s.err = cmp.Or(s.err, s.buffers[i].Flush(), s.files[i].Close())
	}
	return s.err
}

// fileName makes a name that is one everywhere.
func fileName(words ...string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\: `, r) {
			return '_'
		}
		return r
	}, strings.Join(words, "-"))
}
