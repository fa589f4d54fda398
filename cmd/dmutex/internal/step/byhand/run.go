// Package byhand is a group of machines that a person steps by hand: who asks, which message arrives next, which
// is lost, and which node crashes.
//
// A [Run] is a beginning and a list of steps. It does no I/O, and [Page] is a function of it: what a reader does
// on the page makes the next Run, which the page carries along. So a server keeps nothing.
package byhand

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/dmutextest"
)

const (
	mostNodes = 9
	mostSteps = 400 // of a run: a picture of more cannot be read

	// MostText is how many bytes the fields of a page, or a script, may have.
	MostText = 64 << 10
)

// Algorithms returns those of the tool, and some that are wrong on purpose.
func Algorithms() []catalog.Algorithm {
	return append(slices.Clone(catalog.All), wrong...)
}

var wrong = []catalog.Algorithm{
	{Name: "broken", New: catalog.Broken.New, About: catalog.Broken.About},
	{Name: "maekawa-plain", New: plain, About: "Maekawa without FAILED and INQUIRE: wrong on purpose, it deadlocks"},
}

// Find returns the algorithm of that name.
func Find(name string) (catalog.Algorithm, error) {
	a, ok := catalog.Find(name, wrong...)
	if !ok {
		return a, fmt.Errorf("there is no algorithm %.40q: choose one of %s, broken and maekawa-plain", name, catalog.Names())
	}
	return a, nil
}

// A Run is how a group begins, and what was done to it.
type Run struct {
	Algorithm catalog.Algorithm
	group     setup
	steps     []step
	done      int    // of the steps; the others can be done again
	closing   string // what a script says after the last step
}

// A setup is how a group begins, in the words of a script.
type setup struct {
	start     dmutex.Start // of each node but for Self and Clock
	clocks    []uint64     // by place in Members
	unordered bool
}

// A step is what happens to a node, or to a message in flight.
type step struct {
	do   string
	at   uint64 // the number of the node, or the place of the message among those in flight, oldest first
	note string // what a script says before the step
}

type verb struct {
	do     string
	letter byte
	local  bool // it happens to a node
}

// What a step may do, as scripts write it but for the crash, and the letter for it in the address of a page.
var verbs = []verb{
	{"request", 'r', true}, {"share", 's', true}, {"cancel", 'c', true}, {"release", 'e', true}, {"tick", 't', true}, {"forget", 'f', true}, {crash, 'x', true},
	{deliver, 'd', false}, {duplicate, 'u', false}, {lose, 'l', false},
}

const (
	crash     = "crash"
	deliver   = "deliver"
	duplicate = "duplicate"
	lose      = "lose"
)

func (s step) local() bool {
	return slices.ContainsFunc(verbs, func(v verb) bool { return v.do == s.do && v.local })
}

// encode writes steps for the address of a page, such as r1r2d0.
func encode(steps []step) string {
	var b []byte
	for _, s := range steps {
		for _, v := range verbs {
			if v.do == s.do {
				b = strconv.AppendUint(append(b, v.letter), s.at, 10)
			}
		}
	}
	return string(b)
}

// decode reads what encode writes.
func decode(text string) (steps []step, err error) {
	for text != "" {
		end := 1
		for end < len(text) && text[end] >= '0' && text[end] <= '9' {
			end++
		}
		at, err := strconv.ParseUint(text[1:end], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("a step is a letter and a number, not %q", text[:min(end, 20)])
		}
		s := step{at: at}
		for _, v := range verbs {
			if v.letter == text[0] {
				s.do = v.do
			}
		}
		if s.do == "" {
			return nil, fmt.Errorf("no step has the letter %q", text[:1])
		}
		if steps = append(steps, s); len(steps) > mostSteps {
			return nil, errLong
		}
		text = text[end:]
	}
	return steps, nil
}

var errLong = fmt.Errorf("a run has at most %d steps: begin again", mostSteps)

// newSetup is that of n nodes.
func newSetup(n int, unordered bool) (setup, error) {
	if n < 1 || n > mostNodes {
		return setup{}, fmt.Errorf("choose 1 to %d nodes", mostNodes)
	}
	return setup{start: dmutex.Start{Members: dmutextest.Nodes(n)}, clocks: make([]uint64, n), unordered: unordered}, nil
}

var errGroup = fmt.Errorf("a run begins with a group of 1 to %d nodes, such as \"group 1 2 3\"", mostNodes)

// read takes a line of the beginning of a script.
func (g *setup) read(name, rest string) (err error) {
	words := strings.Fields(rest)
	switch name {
	case "group":
		if len(words) == 0 || len(words) > mostNodes || len(g.start.Members) > 0 {
			return errGroup
		}
		for _, word := range words {
			id, clock, given := strings.Cut(word, "@")
			if !given {
				clock = "0"
			}
			member, err1 := number(id)
			at, err2 := number(clock)
			err = errors.Join(err, err1, err2)
			g.start.Members, g.clocks = append(g.start.Members, dmutex.NodeID(member)), append(g.clocks, at)
		}
	case "sharers":
		if len(words) > mostNodes {
			return errGroup
		}
		for _, word := range words {
			sharer, err1 := number(word)
			g.start.Sharers, err = append(g.start.Sharers, dmutex.NodeID(sharer)), errors.Join(err, err1)
		}
	case "network":
		network, err := dmutextest.ParseNetwork(rest)
		g.unordered = network.Unordered
		return err
	case "fence":
		g.start.Fence, err = number(rest)
	case "holder", "home":
		node, err := number(rest)
		if name == "home" {
			g.start.Home = dmutex.NodeID(node)
		} else {
			g.start.Holder = dmutex.NodeID(node)
		}
		return err
	}
	return err
}

var beginnings = []string{"group", "holder", "sharers", "home", "fence", "network"}

func number(word string) (uint64, error) {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.20q is no number", word)
	}
	return n, nil
}

// lines writes the beginning but for the network.
func (g *setup) lines() (lines []string) {
	group := "group"
	for i, id := range g.start.Members {
		group += " " + id.String()
		if g.clocks[i] != 0 {
			group += fmt.Sprintf("@%d", g.clocks[i])
		}
	}
	lines = append(lines, group)
	for _, carried := range []struct {
		what string
		over uint64
	}{{"holder", uint64(g.start.Holder)}, {"home", uint64(g.start.Home)}, {"fence", g.start.Fence}} {
		if carried.over != 0 {
			lines = append(lines, fmt.Sprint(carried.what, " ", carried.over))
		}
	}
	if len(g.start.Sharers) > 0 {
		lines = append(lines, "sharers "+strings.Trim(fmt.Sprint(g.start.Sharers), "[]"))
	}
	return lines
}

// order says what the network keeps.
func (g *setup) order() string { return dmutextest.Network{Unordered: g.unordered}.String() }

// String writes the beginning for the address of a page.
func (g *setup) String() string {
	return strings.Join(append(g.lines(), "network "+g.order()), ";")
}

// parseSetup reads what String writes.
func parseSetup(text string) (g setup, err error) {
	for line := range strings.SplitSeq(text, ";") {
		name, rest, _ := strings.Cut(line, " ")
		if !slices.Contains(beginnings, name) {
			return g, errGroup
		}
		if err := g.read(name, rest); err != nil {
			return g, err
		}
	}
	if len(g.start.Members) == 0 {
		return g, errGroup
	}
	return g, nil
}

// New returns a run of n nodes in which nothing was done.
func New(a catalog.Algorithm, n int, unordered bool) (Run, error) {
	g, err := newSetup(n, unordered)
	return Run{Algorithm: a, group: g}, err
}

// Read returns the run of a script, as dmutextest.RunScript runs it, at its beginning: every step can be done.
// Comments go along with the step before which they stand.
func Read(a catalog.Algorithm, script string) (Run, error) {
	if len(script) > MostText {
		return Run{}, fmt.Errorf("a script has at most %d bytes", MostText)
	}
	r := Run{Algorithm: a}
	var w *world
	var note []string
	output := false // between ---- and the next empty line
	for i, line := range strings.Split(script, "\n") {
		command := strings.Join(strings.Fields(line), " ")
		name, rest, _ := strings.Cut(command, " ")
		var err error
		switch {
		case command == "":
			output = false
		case output:
		case command == "----":
			output = true
		case strings.HasPrefix(command, "# crash "):
			err = r.take(&w, &note, crash, strings.TrimPrefix(command, "# crash "))
		case command[0] == '#':
			note = append(note, strings.TrimSpace(command[1:]))
		case slices.Contains(beginnings, name):
			if w != nil {
				err = errors.New("the group is at work already")
			} else {
				err = r.group.read(name, rest)
			}
		case name == "state":
		default:
			err = r.take(&w, &note, name, rest)
		}
		if err != nil {
			return Run{}, fmt.Errorf("line %d: %.100q: %w", i+1, command, err)
		}
	}
	r.closing = strings.Join(note, " ")
	if w == nil {
		_, err := r.world()
		return r, err
	}
	return r, nil
}

// take appends the steps of a command, which it gives to the world.
func (r *Run) take(w **world, note *[]string, name, rest string) (err error) {
	if *w == nil {
		if *w, err = newWorld(r); err != nil {
			return err
		}
	}
	all := name == deliver && rest == "all"
	for {
		s, err := (*w).named(name, rest, all)
		if err != nil || s.do == "" {
			return err
		}
		if len(r.steps) == mostSteps {
			return errLong
		}
		s.note, *note = strings.Join(*note, " "), nil
		if err := (*w).do(s); err != nil {
			return err
		}
		if r.steps = append(r.steps, s); !all {
			return nil
		}
	}
}

// Script returns what was done as a golden script, with its output.
func (r *Run) Script() (string, error) {
	w, err := r.world()
	if err != nil {
		return "", err
	}
	return w.golden(), nil
}

// world does the steps that are done.
func (r *Run) world() (*world, error) {
	w, err := newWorld(r)
	if err != nil {
		return nil, err
	}
	for _, s := range r.steps[:r.done] {
		if err := w.do(s); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// with returns the run with one more step in place of those that were undone.
func (r Run) with(s ...step) (Run, error) {
	if r.done+len(s) > mostSteps {
		return r, errLong
	}
	r.steps = append(slices.Clone(r.steps[:r.done]), s...)
	r.done, r.closing = len(r.steps), ""
	return r, nil
}
