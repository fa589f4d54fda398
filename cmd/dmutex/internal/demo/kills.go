package demo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// A killOutcome is the result of one run in which tellers were killed. Either they were
// started again, and sometimes closed, or new ones took their place (crashes.go). Money
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

// spell is how long the tellers work between two events: kills, leaves and outages
// of the server.
const spell = 2 * time.Second

// outage is how long the NATS server is down.
const outage = 500 * time.Millisecond

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
func (c *Tellers) workUnderKills(ctx context.Context, a tool.Algorithm, s *stage) (killOutcome, error) {
	g, err := s.group(task{Trade: "teller", Nodes: c.Nodes, Think: c.Think, Views: true, Lease: c.Lease, Remote: c.Store == "remote"}, a, a.Name+"-kills", c.Kill || c.Crash)
	if err != nil {
		return killOutcome{}, err
	}
	if err := createAccount(g.task.Dir); err != nil {
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
	k.tell(order{Word: wordLeave})
	return k.await(ctx, wordLeave, nil)
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

// killSome kills some tellers and starts them again.
func (k *killRun) killSome(ctx context.Context, some ...*process) error {
	if err := k.strike(ctx, some...); err != nil {
		return err
	}
	return k.join(ctx, some...)
}

// strike kills some tellers, and counts those that were inside.
func (k *killRun) strike(ctx context.Context, some ...*process) error {
	if err := k.kill(ctx, some...); err != nil {
		return err
	}
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
	p.order(order{Word: wordLeave})
	if err := k.await(ctx, wordLeave, nil, p); err != nil {
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
