package dmutextest

import (
	"fmt"
	"strings"

	"github.com/dmutex/dmutex/internal/search"
)

// A Report is what an exploration, or a number of random runs, has seen.
type Report struct {
	Network  Network
	States   int  // different states of the group; 0 for random runs
	Steps    int  // transitions between them
	Depth    int  // length of the longest of the shortest runs to a state; of the longest run if they are random
	Most     int  // messages in flight from one node to another at one time
	Least    int  // messages received or lost in a whole run, at least
	Greatest int  // and at most
	Dense    bool // the n-th grant had the fence Config.Fence + n
	Complete bool // nothing was left out: every run has been seen, and every run ends
}

// String returns the report on one line.
func (r Report) String() string {
	var b strings.Builder
	if r.States > 0 {
		fmt.Fprintf(&b, "%d states, ", r.States)
	}
	fmt.Fprintf(&b, "%d steps, depth %d, %v, at most %d in a channel", r.Steps, r.Depth, r.Network, r.Most)
	if r.Greatest > 0 {
		fmt.Fprintf(&b, ", %d to %d messages a run", r.Least, r.Greatest)
	}
	if r.Dense {
		b.WriteString(", dense fences")
	}
	if r.Complete {
		b.WriteString(", complete")
	}
	return b.String()
}

// Explore runs a group through every order of events that the network allows,
// breadth first, until it has seen all states. It returns a [*Violation] with the
// shortest run to the first thing that is wrong (an [ErrLivelock] has just one
// run of many), or [dmutex.ErrMisuse] for a Config that makes no sense. In any
// case the Report says how far it came.
//
// If nothing is wrong and the Report is Complete, then in this group and network
// no two nodes are ever in the critical section together, fences rise, and every
// run ends with every request granted or withdrawn and nothing left over.
//
// States are recognized by a fingerprint of 64 bits. The chance that two of n
// states have the same fingerprint, so that one is never seen, is about n*n/2^65:
// one in a million for 6 million states.
func Explore(c Config) (Report, error) {
	first, err := newWorld(c)
	if err != nil {
		return Report{Network: c.Network}, err
	}
	return first.explore()
}

func (w *world) explore() (Report, error) {
	report := func(r search.Report) Report {
		return Report{
			Network: w.cfg.Network, States: r.States, Steps: r.Steps, Depth: r.Depth,
			Most: w.most, Least: r.Least, Greatest: r.Greatest, Dense: !w.sparse, Complete: r.Complete,
		}
	}
	s := search.Search[*world, action]{
		First:  w,
		State:  (*world).rests,
		Ends:   ErrLivelock,
		Counts: action.consumes,
		Script: func(told string, _ *world, v *Violation) string { return w.script(told, v) },
		Limits: search.Limits{MaxStates: w.cfg.MaxStates},
	}
	if w.cfg.Progress != nil {
		s.Progress = func(r search.Report) bool { return w.cfg.Progress(report(r)) }
	}
	r, err := s.Run()
	return report(r), err
}
