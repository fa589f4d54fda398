package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/draw"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/trace"
)

type replayCmd struct {
	Files     []string `arg:"" help:"Traces, or directories with files that end in .trace."`
	Algorithm string   `placeholder:"NAME" help:"One of ${algorithms}. The default is the algorithm whose fresh machine describes itself as the trace says."`

	algorithms []tool.Algorithm
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
	c.algorithms = append(slices.Clone(tool.Algorithms), tool.Broken)
	if c.Algorithm == "" {
		return nil
	}
	a, ok := tool.Find(c.Algorithm, tool.Broken)
	if !ok {
		return fmt.Errorf("--algorithm=%s: choose one of %s", c.Algorithm, tool.AlgorithmNames())
	}
	c.algorithms = []tool.Algorithm{a}
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
		case errors.Is(err, trace.ErrDiffers):
			failed = true
			fmt.Fprintln(con.Out, err)
		case err != nil:
			return err
		default:
			fmt.Fprintf(con.Out, "%s: the same: %s under %s, %s", t.Name, tool.Several(done.Inputs, "input"), name, tool.Several(done.Machines, "machine"))
			if done.Skipped > 0 {
				fmt.Fprintf(con.Out, "; %s skipped after a gap", tool.Several(done.Skipped, "event"))
			}
			fmt.Fprintln(con.Out)
		}
	}
	v, err := draw.Judge(traces)
	if err != nil {
		return err
	}
	for _, fault := range v.Faults[:min(len(v.Faults), mostFaults)] {
		fmt.Fprintln(con.Out, fault)
	}
	if more := len(v.Faults) - mostFaults; more > 0 {
		fmt.Fprintf(con.Out, "and %s\n", tool.Several(more, "fault"))
	}
	if failed || len(v.Faults) > 0 {
		return tool.ErrFailed
	}
	fmt.Fprintf(con.Out, "together: %s of %s, one after the other\n", tool.Several(v.Grants, "grant"), tool.Several(v.Locks, "lock"))
	return nil
}

// mostFaults is how many faults of a group are printed.
const mostFaults = 10

// replay replays one trace under the algorithm that was asked for, or under each
// that describes itself as the trace says, until one does the same.
func (c *replayCmd) replay(t *trace.Trace) (name string, done trace.Replayed, err error) {
	for _, a := range c.algorithms {
		if c.Algorithm == "" {
			text, refused := trace.Describe(a.New, t.Header.Self, t.Header.Members)
			if refused != nil || text != t.Header.Algorithm {
				continue
			}
		}
		now, differs := trace.Replay(t, a.New)
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
