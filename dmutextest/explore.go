package dmutextest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/search"
)

// A Config says which group [Explore] explores, and how far.
type Config struct {
	Algorithm dmutex.Algorithm
	Members   []dmutex.NodeID // see Nodes
	Holder    dmutex.NodeID   // as in dmutex.Start
	Sharers   []dmutex.NodeID // as in dmutex.Start
	Home      dmutex.NodeID   // as in dmutex.Start
	Fence     uint64          // as in dmutex.Start
	Network   Network

	// Requests, Cancels and Ticks are how often in a run a node may do each, at
	// most 255 times: one number for all nodes, or one for each in the order of
	// Members. A holder always releases, after any time. Only machines of type
	// [dmutex.Ticker] tick. When a node waits, or something is left over, and no
	// message is in flight, time passes and they tick without limit.
	Requests, Cancels, Ticks []int

	// Forgets is how often, in the same form, a node may forget its machine when
	// the machine allows it (see dmutex.Machine.Forget). The next one is born with
	// a clock and a fence that are one higher than necessary.
	Forgets []int

	// Shares is how often, in the same form, a node may ask to share the lock, if its machine is a
	// [dmutex.Sharer].
	Shares []int

	// Stamped says that of requests that conflict the one with the lower stamp is granted first.
	// The machine has a method Stamp, as that of [site.Site].
	Stamped bool

	// MaxStates ends an exploration early; 0 means no limit.
	MaxStates int

	// Progress, if not nil, is called from time to time with the progress of
	// Explore, which stops if it returns false.
	Progress func(Report) bool

	clocks []uint64 // at birth, by place in Members; nil if all are 0
	graves bool     // only what is grave is judged; a run that cannot go on for another reason is left out
}

// A Report is what an exploration, or a number of random runs, has seen.
type Report struct {
	Network  Network
	States   int  // different states of the group; 0 for random runs
	Steps    int  // transitions between them
	Depth    int  // steps to the farthest state; of random runs, steps of the longest
	Most     int  // messages in flight from one node to another at one time
	Least    int  // messages received or lost in a whole run, at least
	Greatest int  // and at most
	Inside   int  // nodes that held the lock at one time, at most
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
	if r.Inside > 1 {
		fmt.Fprintf(&b, ", up to %d inside", r.Inside)
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
// What a lock is for is judged first. If something else is wrong, such as what WaitsFor
// returns, Explore looks for an [ErrMutualExclusion], [ErrFenceOrder] or [ErrDeadlock] in
// 50,000 states, and returns that if there is one. Only one thing is judged before: a machine
// that is not what its text says, since nothing else that is seen of it need be true.
//
// If nothing is wrong and the Report is Complete, then in this group and network
// no two nodes are ever in the critical section together, fences rise, and every
// run ends with every request granted or withdrawn and nothing left over.
//
// States are recognized by a fingerprint of 64 bits. The chance that two of n
// states have the same fingerprint, so that one is never seen, is about n*n/2^65:
// one in a million for 6 million states.
func Explore(c Config) (Report, error) {
	_, r, err := explore(c)
	return r, err
}

// enough states show what is grave if something else is wrong already.
const enough = 50_000

func explore(c Config) (*model, Report, error) {
	suspect, all := c.probe(0, quick, 5000), c
	if suspect != nil { // the exploration may never end, but may find a shorter run
		all.MaxStates = fewer(c.MaxStates, enough)
	}
	m, r, err := all.explore()
	if _, wrong := wrongly(err); err == nil && suspect != nil || isBlind(suspect) && !isBlind(err) {
		r.Complete, err = false, suspect
	} else if !wrong {
		return m, r, err
	}
	if !isGrave(err) {
		all.MaxStates, all.graves = fewer(c.MaxStates, enough), true
		if _, graver, grave := all.explore(); isGrave(grave) {
			return m, graver, grave
		}
	}
	return m, r, err
}

// fewer is the smaller of two limits. A first one of 0 is no limit.
func fewer(limit, most int) int {
	if limit == 0 {
		return most
	}
	return min(limit, most)
}

// explore is one exploration.
func (c Config) explore() (*model, Report, error) {
	w, err := begin(c)
	if err != nil {
		return nil, Report{Network: c.Network}, err
	}
	report := func(r search.Report) Report {
		return Report{
			Network: c.Network, States: r.States, Steps: r.Steps, Depth: r.Depth,
			Most: w.most, Least: r.Least, Greatest: r.Greatest, Inside: w.inside, Dense: !w.sparse, Complete: r.Complete,
		}
	}
	w.pairs = true
	s := search.Search[*world, action]{
		First:  w,
		State:  (*world).rests,
		Ends:   ErrLivelock,
		Counts: func(a action) bool { return a.do.consumes() },
		Script: func(told string, _ *world, v *Violation) string { return c.script(told, v) },
		Limits: search.Limits{MaxStates: c.MaxStates},
	}
	if c.graves {
		s.Ends = nil
	}
	if c.Progress != nil {
		s.Progress = func(r search.Report) bool { return c.Progress(report(r)) }
	}
	r, err := s.Run()
	return w.model, report(r), err
}

// begin returns the state at the beginning, or what is wrong with it.
func begin(c Config) (*world, error) {
	w, err := newWorld(c)
	if v, ok := wrongly(err); ok {
		v.Script = c.script("", v)
	}
	return w, err
}

// Walk makes random runs of a group, each until nothing more can happen, with
// the checks of [Explore]. It is for groups too large to explore. The same seed
// makes the same runs; run k of seed s is run 0 of seed s+k. A [*Violation] has
// the run as a script, and its seed. A run of a million steps counts as an
// [ErrLivelock]; its script has the first hundred. Walk ignores MaxStates and
// Progress of the Config.
func Walk(c Config, seed uint64, runs int) (Report, error) {
	r, err := c.walk(seed, runs)
	if suspect := c.probe(seed, min(runs, quick), 500); isBlind(suspect) && !isBlind(err) {
		return r, suspect
	}
	if _, wrong := wrongly(err); wrong && !isGrave(err) {
		c.graves = true
		if graver, grave := c.walk(seed, min(runs, quick*quick)); isGrave(grave) {
			return graver, grave
		}
	}
	return r, err
}

func (c Config) walk(seed uint64, runs int) (Report, error) {
	r := Report{Network: c.Network}
	w, err := begin(c)
	if err != nil {
		return r, err
	}
	for k := range uint64(max(0, runs)) {
		run, err := w.random(seed+k, false, endless)
		if err == nil && len(run) == endless {
			err = search.Wrong(ErrLivelock, "the run has not ended after %d steps", endless)
		}
		r.Steps += len(run)
		r.Depth = max(r.Depth, len(run))
		r.Most, r.Inside, r.Dense = w.most, w.inside, !w.sparse
		if v, ok := wrongly(err); ok {
			return r, w.ran(run, seed+k, v)
		}
		messages := 0
		for _, a := range run {
			if a.do.consumes() {
				messages++
			}
		}
		if k == 0 {
			r.Least = messages
		}
		r.Least, r.Greatest = min(r.Least, messages), max(r.Greatest, messages)
	}
	return r, nil
}

// ran adds a random run to a violation: the beginning of it, if it is endless.
func (w *world) ran(run []action, seed uint64, v *Violation) *Violation {
	if v.Kind == ErrLivelock || len(run) > quick*quick && v.Kind == ErrChannel {
		run = run[:quick*quick]
	}
	told, _ := search.Tell(w, run)
	return &Violation{Kind: v.Kind, Why: fmt.Sprintf("%s (seed %d)", v.Why, seed), Script: w.script(told, v)}
}

const (
	endless = 1_000_000 // steps: a run of so many counts as endless
	quick   = 10        // random runs are made with machines that live through them
)

// random makes one run of at most so many steps, if lives is set with machines that live through it.
func (w *world) random(seed uint64, lives bool, most int) (run []action, err error) {
	random := rand.New(rand.NewPCG(seed, 0))
	w = w.Clone(nil)
	if lives {
		if err := w.lives(); err != nil {
			return nil, err
		}
	}
	var list []action
	for len(run) < most {
		if err := w.rests(); err != nil {
			return run, err
		}
		if list = w.Steps(list[:0]); len(list) == 0 {
			return run, nil
		}
		a := list[random.IntN(len(list))]
		run = append(run, a)
		if err := w.Do(a); err != nil {
			return run, err
		}
	}
	return run, nil
}

// probe makes some random runs, of at most so many steps together, with machines that live through them. It returns a violation
// that an exploration may not find, or not soon.
func (c Config) probe(seed uint64, runs, steps int) error {
	w, err := newWorld(c)
	if err != nil {
		return nil // the exploration says so, too
	}
	for k := range uint64(max(0, runs)) {
		run, err := w.random(seed+k, true, steps)
		if v, ok := wrongly(err); ok && (v.Kind == errBlind || v.Kind == ErrChannel && c.Network.Channel == 0) {
			return w.ran(run, seed+k, v)
		}
		steps -= len(run)
	}
	return nil
}
