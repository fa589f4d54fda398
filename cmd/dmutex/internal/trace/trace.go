// Package trace draws and replays what nodes have recorded.
package trace

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
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
