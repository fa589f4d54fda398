package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// A killOutcome is the result of one run in which tellers were killed. Either they were
// started again, and sometimes closed, or new ones took their place. Money
// is in cents, times are in nanoseconds.
//
// Only the passbook counts: a teller that was killed before it wrote its line has
// deposited nothing. See account.
type killOutcome struct {
	Algorithm string `json:"algorithm"`
	OK        bool   `json:"ok"`

	evidence

	Killed  int `json:"killed"`  // tellers that were killed
	Inside  int `json:"inside"`  // of these, killed inside the critical section
	Closed  int `json:"closed"`  // tellers that left and were started again
	Servers int `json:"servers"` // how often the NATS server was stopped and started again

	Views   int           `json:"views"`      // after the first
	Longest time.Duration `json:"longest_ns"` // the longest time that a view change kept a teller from the lock
	Back    time.Duration `json:"back_ns"`    // the longest time from an event until every teller had made a deposit again

	Joined  int     `json:"joined,omitempty"` // new tellers
	Crashes []crash `json:"crashes,omitempty"`

	Took   time.Duration `json:"took_ns"`
	Faults []string      `json:"faults,omitempty"`
}

const (
	spell  = 2 * time.Second        // of work between two events: kills, leaves and outages of the server
	outage = 500 * time.Millisecond // of the NATS server
)

// A killRun is a run in which tellers are killed.
type killRun struct {
	*group
	stage *stage
	spell time.Duration
	killOutcome
	first  uint64          // the epoch in which the tellers began
	epochs map[uint64]bool // those after it

	// Of a run with crashes.
	homes map[string]dmutex.NodeID // of the locks, as they were told last
	fell  time.Time                // when the last teller was killed
	lost  map[string]bool          // the locks at home with it
	due   map[string]bool          // the locks that were not granted since
}

// workUnderKills does one run with kills, on a new account.
func (c *Tellers) workUnderKills(ctx context.Context, a catalog.Algorithm, s *stage) (killOutcome, error) {
	g, err := s.group(task{Trade: "teller", Nodes: c.Nodes, Think: c.Think, Views: true, Lease: c.Lease, Remote: c.Store == "remote"}, a, a.Name+"-kills", c.Kill || c.Crash)
	if err != nil {
		return killOutcome{}, err
	}
	k := &killRun{
		group: g, stage: s, spell: cmp.Or(c.spell, spell), killOutcome: killOutcome{Algorithm: a.Name},
		epochs: make(map[uint64]bool), homes: make(map[string]dmutex.NodeID),
	}
	defer g.end()
	g.heard = k.hear
	g.sofar = func() string { return fmt.Sprintf("%d were killed and %d closed", k.Killed, k.Closed) }
	events := []func(context.Context, *process) error{k.killOne, k.closeOne, k.killAll}
	switch {
	case c.Crash:
		events = []func(context.Context, *process) error{k.replaceOne}
	case s.stopServer != nil:
		events = slices.Insert(events, 2, k.restartServer)
	}
	if err := g.begin(ctx); err != nil {
		return killOutcome{}, err
	}
	if err := k.play(ctx, c.Kills, events); err != nil {
		return killOutcome{}, err
	}
	k.Took = time.Since(k.began)
	k.evidence, err = readPassbook(g.task.Dir)
	k.Faults = k.faults()
	k.OK = len(k.Faults) == 0
	return k.killOutcome, err
}

// hear takes the reports that a teller may send at any time.
func (k *killRun) hear(p *process, r report) bool {
	switch r.Word {
	case wordView:
		if k.first == 0 {
			k.first = r.View.Epoch
		}
		if r.View.Epoch != k.first {
			k.epochs[r.View.Epoch] = true
			k.Views = len(k.epochs)
			k.Longest = max(k.Longest, r.View.Took)
		}
	case wordProgress:
		k.took(p, r)
	default:
		return false
	}
	return true
}

// play lets the tellers work, and disturbs them from time to time: by the events in turn,
// each with a teller for it to use. At the end they work once more, and leave.
func (k *killRun) play(ctx context.Context, times int, events []func(context.Context, *process) error) error {
	for i := range times {
		if err := k.watch(ctx, k.spell); err != nil {
			return err
		}
		began := time.Now()
		if err := events[i%len(events)](ctx, k.processes[i%len(k.processes)]); err != nil {
			return err
		}
		if err := k.await(ctx, wordProgress, k.took); err != nil {
			return err
		}
		k.Back = max(k.Back, time.Since(began))
	}
	if err := k.watch(ctx, k.spell); err != nil {
		return err
	}
	return k.ask(ctx, order{Word: wordLeave}, wordLeave, nil)
}

// killOne kills the teller that is now in the critical section, or p if there is none.
func (k *killRun) killOne(ctx context.Context, p *process) error {
	inside := func(q *process) bool { return isInside(markerPath(k.task.Dir), badgePath(k.task.Dir, q.id)) }
	if i := slices.IndexFunc(k.processes, inside); i >= 0 {
		p = k.processes[i]
	}
	return k.killSome(ctx, p)
}

func (k *killRun) killAll(ctx context.Context, _ *process) error {
	return k.killSome(ctx, k.processes...)
}

func (k *killRun) killSome(ctx context.Context, some ...*process) error {
	if err := errors.Join(k.kill(ctx, some...), k.vacate(some...)); err != nil {
		return err
	}
	return k.join(ctx, some...)
}

// vacate counts tellers that are killed, and those of them that are inside.
func (k *killRun) vacate(some ...*process) error {
	for _, p := range some {
		k.Killed++
		inside, err := vacate(markerPath(k.task.Dir), badgePath(k.task.Dir, p.id))
		if err != nil {
			return err
		}
		if inside {
			k.Inside++
		}
	}
	return nil
}

// closeOne tells a teller to leave: it closes its node and exits.
func (k *killRun) closeOne(ctx context.Context, p *process) error {
	if err := k.ask(ctx, order{Word: wordLeave}, wordLeave, nil, p); err != nil {
		return err
	}
	k.Closed++
	return k.join(ctx, p)
}

func (k *killRun) restartServer(ctx context.Context, _ *process) error {
	k.stage.stopServer()
	if err := k.watch(ctx, outage); err != nil {
		return err
	}
	k.Servers++
	return k.stage.serve()
}

// A crash is what the others noticed of a teller that was killed for good: the longest
// waits for a lock that ended after it.
type crash struct {
	Held   bool          `json:"held"`              // it held the lock of the account; else it held none
	Free   time.Duration `json:"free_ns"`           // for a lock that it neither held nor was the home of
	Holder time.Duration `json:"held_ns,omitempty"` // for the one that it held
	Home   time.Duration `json:"home_ns,omitempty"` // for those at home with it, if there are any
}

// replaceOne kills a teller for good, and starts a new one when all locks go on. Every other time the
// teller holds the lock of the account; otherwise it holds none.
func (k *killRun) replaceOne(ctx context.Context, p *process) error {
	c := crash{Held: k.Killed%2 == 0}
	var self dmutex.NodeID
	rest := order{Word: wordRest, Hold: c.Held}
	if err := k.ask(ctx, rest, wordResting, func(_ *process, r report) { self = r.Self }, p); err != nil {
		return err
	}
	// It rests, and stays where it is. When this process hears of its end, another may be inside.
	if err := errors.Join(k.vacate(p), k.kill(ctx, p)); err != nil {
		return err
	}
	k.fell = time.Now() // what was granted before may still be reported
	k.Crashes = append(k.Crashes, c)
	k.lost, k.due = make(map[string]bool), make(map[string]bool)
	for lock, home := range k.homes {
		k.lost[lock], k.due[lock] = home == self, true
	}
	k.processes = slices.DeleteFunc(k.processes, func(q *process) bool { return p == q })
	for len(k.due) > 0 {
		if err := k.await(ctx, wordProgress, k.took); err != nil {
			return err
		}
	}
	how := "while it held no lock"
	if c = k.Crashes[len(k.Crashes)-1]; c.Held {
		how = "while it held a lock, which waited for " + brief(c.Holder)
	}
	if c.Home > 0 {
		how += "; those at home with it waited for up to " + brief(c.Home)
	}
	k.stage.progress.Say("%-12s %s was killed %s; all others for up to %s", k.Algorithm, p.name(), how, brief(c.Free))
	k.Joined++
	return k.join(ctx, k.newcomer(dmutex.NodeID(k.task.Nodes+k.Joined)))
}

func (k *killRun) took(_ *process, r report) {
	for lock, t := range r.Turns {
		k.homes[lock] = t.Home
		after := time.Duration(t.Granted - k.fell.UnixNano())
		if len(k.Crashes) == 0 || after <= 0 {
			continue
		}
		delete(k.due, lock)
		c := &k.Crashes[len(k.Crashes)-1]
		longest := &c.Free
		switch {
		case c.Held && lock == accountLock:
			longest = &c.Holder
		case k.lost[lock]:
			longest = &c.Home
		}
		*longest = max(*longest, min(t.Wait, after))
	}
}

func (r *result) writeKillRuns(w io.Writer) {
	how, headings, cells, legend := ", while they are killed and started again", killHeadings, (*killOutcome).killCells, killLegend
	if r.Lease != 0 {
		how = fmt.Sprintf(", lease %v, --store=%s, while they are killed for good and new ones join", r.Lease, r.Store)
		headings, cells, legend = crashHeadings, (*killOutcome).crashCells, crashLegend
	}
	fmt.Fprintf(w, "\n%s\n\n", tool.Wrap(fmt.Sprintf("%d tellers make deposits over %s%s.", r.Nodes, network(r.Link), how)))
	var rows [][]string
	for _, o := range r.KillRuns {
		rows = append(rows, slices.Concat(o.evidence.cells(o.Algorithm), cells(&o)))
	}
	tool.Tabulate(w, slices.Concat(evidenceHeadings, headings), rows)
	fmt.Fprintf(w, "%s\n%s\n", legend, r.killClosing())
}

var killHeadings = []tool.Heading{
	{Title: "tellers", Columns: []string{"killed", "inside", "closed"}},
	{Title: "view changes", Columns: []string{"number", "longest"}},
	{Columns: []string{"all back"}},
}

func (o *killOutcome) killCells() []string {
	return []string{fmt.Sprint(o.Killed), fmt.Sprint(o.Inside), fmt.Sprint(o.Closed), fmt.Sprint(o.Views), brief(o.Longest), brief(o.Back)}
}

const killLegend = `
expected  what the lines of the account are worth, one for each deposit
killed    with SIGKILL, and started again; inside: of these, in the critical section
closed    tellers that left and were started again
longest   time for which a view change kept a teller from the lock
all back  longest time from such an event until every teller had made a deposit again, with the
          start of the process
`

var crashHeadings = []tool.Heading{
	{Title: "killed", Columns: []string{"idle", "holding"}},
	{Title: "longest wait", Columns: []string{"free", "held", "at home"}},
	{Columns: []string{"views"}},
}

func (o *killOutcome) crashCells() []string {
	var longest crash
	for _, c := range o.Crashes {
		longest = crash{Free: max(longest.Free, c.Free), Holder: max(longest.Holder, c.Holder), Home: max(longest.Home, c.Home)}
	}
	cells := []string{fmt.Sprint(o.Killed - o.Inside), fmt.Sprint(o.Inside), "-", "-", "-", fmt.Sprint(o.Views)}
	for i, wait := range []time.Duration{longest.Free, longest.Holder, longest.Home} {
		if wait > 0 { // else there was no such lock
			cells[2+i] = brief(wait)
		}
	}
	return cells
}

const crashLegend = `
expected  what the lines of the account are worth, one for each deposit
holding   killed while they held the lock of the account; idle: while they held none
free      longest wait of the others, up to the next kill, for a lock that the dead neither held
          nor was the home of
held      for the one that it held; at home: for those at home with it
views     view changes of the group
`

func (r *result) killClosing() string {
	var right []string
	var said tool.Phrases
	killed, closed, servers, joined := 0, 0, 0, 0
	for _, o := range r.KillRuns {
		killed, closed, servers, joined = killed+o.Killed, closed+o.Closed, servers+o.Servers, joined+o.Joined
		if o.OK {
			right = append(right, o.Algorithm)
		}
		said.Add(!o.OK, "FAILED under %s: %s.", o.Algorithm, strings.Join(o.Faults, "; "))
	}
	said.Add(r.Lease != 0, "Tellers were killed for good %s, and new ones joined %s.", times(killed), times(joined))
	said.Add(r.Lease == 0 && servers == 0, "Tellers were killed %s and closed %s.", times(killed), times(closed))
	said.Add(servers > 0, "Tellers were killed %s and closed %s, and the NATS server was stopped %s.", times(killed), times(closed), times(servers)) // without a lease
	said.Add(len(right) > 0, "Under %s not a cent was lost, no two tellers met inside, and every fence rose.", names(right))
	return tool.Wrap(strings.Join(said, " "))
}
