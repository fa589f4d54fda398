// Package course makes a tool of an algorithm that is not one of the library's: a program whose main function is
//
//	func main() { course.Main(New) }
//
// has the commands check, sim, step and trace of dmutex for the algorithm that New makes. Everything else
// that a student needs is in packages dmutex and site; docs/course.md has the assignment.
package course

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/check"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/sim"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/step"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/trace"
)

type commands struct {
	Check check.Cmd `cmd:"" help:"Run a small group through everything that can happen to it, and show the shortest run that goes wrong."`
	Sim   sim.Cmd   `cmd:"" help:"Measure the algorithm in groups of any size and under any load; with --algorithm=all beside the others."`
	Step  step.Cmd  `cmd:"" help:"Step a small group by hand on a page: deliver each message, lose it, crash a node."`
	Trace trace.Cmd `cmd:"" help:"Draw scripts and traces, or replay traces."`
}

// Help is the text of --help.
func (commands) Help() string {
	return `The algorithm of this program is called "` + catalog.Mine + `"; all commands begin with it.

Exit status: 0 all is well; 1 a check failed; 2 the command line is wrong; 3 the command could not be completed.`
}

// Main runs the command line of the program, and ends it. In the commands the algorithm is called "mine", and
// is the one that they take if they are not told another.
func Main(algorithm dmutex.Algorithm) {
	catalog.Add(algorithm)
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	con := &tool.Console{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Name: name}
	tool.Exit(tool.Main(new(commands), os.Args[1:], con), con)
}
