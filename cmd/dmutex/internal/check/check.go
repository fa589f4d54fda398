// Package check runs a small group of machines through everything that can
// happen to it.
package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/dmutextest"
)

// Cmd is dmutex check.
type Cmd struct {
	Election string `xor:"subject" placeholder:"ALGORITHM" help:"Explore elections instead of a lock: bully, ring or chang-roberts."`
	Deadlock string `xor:"subject" placeholder:"MODEL" help:"Explore deadlock detection instead of a lock: and, or (a wait ends with all grants, or with one), or chase (transactions that take locks, as package node detects deadlocks)."`

	Nodes     int  `least:"1" most:"9" unit:" nodes" placeholder:"N" help:"Nodes of the group, 1 to 9. The default is 2, and 3 for elections and deadlocks."`
	MaxStates int  `default:"10000000" least:"0" help:"Stop each check after this many states. A million states take about 200 MB; of elections and deadlocks up to 600 MB. 0 does not stop."`
	JSON      bool `name:"json" help:"Print the result as JSON, and nothing else, on standard output."`

	Locks     lockOptions     `embed:"" group:"Flags of locks:"`
	Elections electionOptions `embed:"" group:"Flags of --election:"`
	Deadlocks deadlockOptions `embed:"" group:"Flags of --deadlock:"`
}

// Help is the text of check --help.
func (Cmd) Help() string {
	return `The group is made of the real machines. Every order of events that the network allows is tried, breadth first. In ` +
		`each state the check is that no two nodes are in the critical section, that fences rise, that no node waits forever, and ` +
		`that nothing is left over at the end. A violation is shown, below the verdicts, as the shortest script that leads to it; package dmutextest ` +
		`replays it, and --output draws it, or writes it into a file.

The number of states multiplies with each node and request. 2 nodes and 3 requests, or 3 nodes and 1 request, take seconds.

` + electionHelp + `

` + deadlockHelp + `

Exit status: 0 if every run was seen and is right; 1 if one is wrong; 2 if the command line is wrong; 3 if the check was ` +
		`stopped, by --max-states or Ctrl-C.`
}

// Validate refuses what could not be run, and flags that belong to another subject
// than the one that is checked.
func (c *Cmd) Validate(line *kong.Context) error {
	given := make(map[string]bool)
	for _, p := range line.Path {
		if p.Flag != nil {
			given[p.Flag.Name] = true
		}
	}
	subject := "locks"
	switch {
	case given["election"]:
		subject = "--election"
	case given["deadlock"]:
		subject = "--deadlock"
	}
	for _, f := range line.Flags() {
		if !given[f.Name] || f.Group == nil {
			continue
		}
		switch of := strings.TrimSuffix(strings.TrimPrefix(f.Group.Key, "Flags of "), ":"); of {
		case subject:
		case "locks":
			return fmt.Errorf("--%s is about locks: leave out either it or %s", f.Name, subject)
		default:
			return fmt.Errorf("--%s needs %s", f.Name, of)
		}
	}
	if !given["nodes"] {
		c.Nodes = 3
		if subject == "locks" {
			c.Nodes = 2
		}
	}
	switch {
	case subject == "--election":
		return c.Elections.validate(c.Election, given)
	case subject == "--deadlock":
		return c.Deadlocks.validate(c.Deadlock, c.Nodes, given)
	}
	return c.Locks.validate(c.Nodes)
}

// Run checks, and reports.
func (c *Cmd) Run(con *tool.Console) error {
	ctx, stop := tool.Interruptible()
	defer stop()
	switch {
	case c.Election != "":
		return c.explore(ctx, con, []subject{c.Elections.subject(c)}, closingOne)
	case c.Deadlock != "":
		return c.explore(ctx, con, []subject{c.Deadlocks.subject(c)}, closingOne)
	}
	return c.explore(ctx, con, c.Locks.subjects(c), c.Locks.closing)
}

// A subject is a group of machines to explore. As JSON it is the result.
type subject interface {
	title() string
	// explore fills in what it finds. From time to time it calls more with its
	// progress, and stops when more returns false.
	explore(more func(soFar string) bool) error
	found() *finding
	text() string // the verdict for people
}

// A finding is the verdict on a subject.
type finding struct {
	Verdict   string     `json:"verdict"`
	States    int        `json:"states"`
	Seconds   float64    `json:"seconds"`
	Violation *violation `json:"violation,omitempty"`
}

func (f *finding) found() *finding { return f }

const (
	clean   = "clean"
	wrong   = "violation"
	stopped = "stopped"
)

// A violation is what went wrong, and the shortest way to it.
type violation struct {
	Kind   string `json:"kind"`
	Why    string `json:"why"`
	Script string `json:"script"`
	kind   error
}

// judge records the verdict on an exploration. It returns any error that is not a
// violation.
func (f *finding) judge(states int, complete bool, err error) error {
	f.States = states
	var v *dmutextest.Violation
	switch {
	case errors.As(err, &v):
		f.Verdict, f.Violation = wrong, &violation{strings.TrimPrefix(v.Kind.Error(), "dmutextest: "), v.Why, v.Script, v.Kind}
	case err != nil:
		return err
	case complete:
		f.Verdict = clean
	default:
		f.Verdict = stopped
	}
	return nil
}

// explore explores subjects until ctx ends, and reports. The text below the
// verdicts is closing.
func (c *Cmd) explore(ctx context.Context, con *tool.Console, subjects []subject, closing func([]subject) string) error {
	p := tool.NewProgress(con.Err, 1, "")
	for i, s := range subjects {
		began := time.Now()
		err := s.explore(func(soFar string) bool {
			p.Live("%-14s %s", s.title(), soFar)
			return ctx.Err() == nil
		})
		p.Clear()
		if err != nil {
			return fmt.Errorf("%s: %w", s.title(), err)
		}
		s.found().Seconds = time.Since(began).Seconds()
		if !c.JSON {
			fmt.Fprint(con, s.text())
		}
		if ctx.Err() != nil {
			subjects = subjects[:i+1]
			break
		}
	}
	if err := c.Locks.draw(con, subjects); err != nil {
		return err
	}
	failed, halted := named(subjects, wrong), named(subjects, stopped)
	if c.JSON {
		_ = tool.PrintJSON(con, struct {
			OK     bool      `json:"ok"` // all are clean
			Checks []subject `json:"checks"`
		}{failed == nil && halted == nil, subjects})
	} else {
		fmt.Fprint(con, closing(subjects))
	}
	switch last := subjects[len(subjects)-1]; {
	case ctx.Err() != nil && last.found().Verdict == stopped:
		return fmt.Errorf("interrupted: %s stopped after %s states", last.title(), tool.Thousands(last.found().States))
	case failed != nil:
		return tool.ErrFailed
	case halted != nil:
		return fmt.Errorf("%s: stopped after %s states with nothing wrong; --max-states=0 goes to the end",
			strings.Join(halted, ", "), tool.Thousands(c.MaxStates))
	}
	return nil
}

func named(subjects []subject, verdict string) (names []string) {
	for _, s := range subjects {
		if s.found().Verdict == verdict {
			names = append(names, s.title())
		}
	}
	return names
}
