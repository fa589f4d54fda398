package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// A survival is what one run came to in which tellers were killed, closed and
// started again. Money is in cents, times are in nanoseconds.
//
// What was deposited is what the passbook says: a teller that was killed before it
// wrote its line has deposited nothing. See account.
type survival struct {
	Algorithm string `json:"algorithm"`
	OK        bool   `json:"ok"`

	evidence

	Killed  int `json:"killed"`  // tellers that were killed and started again
	Inside  int `json:"inside"`  // of these, killed inside the critical section
	Closed  int `json:"closed"`  // tellers that left and were started again
	Servers int `json:"servers"` // how often the NATS server was stopped and started again

	Views   int           `json:"views"`      // that the group went through, after the first
	Longest time.Duration `json:"longest_ns"` // for which a view change kept a teller from the lock
	Back    time.Duration `json:"back_ns"`    // the longest from such an event until every teller had made a deposit again
	Took    time.Duration `json:"took_ns"`
	Faults  []string      `json:"faults,omitempty"`
}

// spell is how long the tellers work between two events. An event brings up to
// two views, and the group takes a second for each.
const spell = 1500 * time.Millisecond

// outage is for how long the NATS server is away.
const outage = 500 * time.Millisecond

// An ordeal is a run in which tellers are killed.
type ordeal struct {
	*group
	stage *stage
	survival
	first  uint32          // the epoch in which the tellers began
	epochs map[uint32]bool // those after it
}

// survive is one run with kills, with an empty account.
func (c *Tellers) survive(ctx context.Context, a tool.Algorithm, s *stage) (survival, error) {
	g, err := s.group(task{Trade: "teller", Nodes: c.Nodes, Think: c.Think, Views: true}, a, a.Name+"-kills", false)
	if err != nil {
		return survival{}, err
	}
	if err := createAccount(g.task.Dir); err != nil {
		return survival{}, err
	}
	o := &ordeal{group: g, stage: s, survival: survival{Algorithm: a.Name}, epochs: make(map[uint32]bool)}
	g.heard = o.hear
	g.sofar = func() string { return fmt.Sprintf("%d were killed and %d closed", o.Killed, o.Closed) }
	began := time.Now()
	_, _, err = g.run(ctx, func(ctx context.Context) error { return o.play(ctx, c.Kills) }, nil)
	if err != nil {
		return survival{}, err
	}
	o.Took = time.Since(began)
	book, err := readStatement(g.task.Dir)
	o.audit(book)
	return o.survival, err
}

// hear takes what the tellers report all the time.
func (o *ordeal) hear(_ *process, r report) bool {
	switch r.Word {
	case wordView:
		if o.first == 0 {
			o.first = r.View.Epoch
		}
		if r.View.Epoch != o.first {
			o.epochs[r.View.Epoch] = true
			o.Views = len(o.epochs)
			o.Longest = max(o.Longest, r.View.Took)
		}
	case wordProgress:
	default:
		return false
	}
	return true
}

// play lets the tellers work, and disturbs them from time to time.
func (o *ordeal) play(ctx context.Context, kills int) error {
	events := []func(context.Context, *process) error{o.killOne, o.closeOne, o.killAll}
	if o.stage.stopServer != nil {
		events = append(events, o.restartServer)
	}
	for i := range kills {
		if err := o.work(ctx, spell); err != nil {
			return err
		}
		began := time.Now()
		if err := events[i%len(events)](ctx, o.processes[i%len(o.processes)]); err != nil {
			return err
		}
		if err := o.await(ctx, wordProgress, func(*process, report) {}); err != nil {
			return err
		}
		o.Back = max(o.Back, time.Since(began))
	}
	if err := o.work(ctx, spell); err != nil {
		return err
	}
	o.tell(order{Word: wordLeave})
	if err := o.awaitEnd(ctx, o.processes...); err != nil {
		return err
	}
	return errEnough
}

// work lets the tellers work for a while.
func (o *ordeal) work(ctx context.Context, d time.Duration) error {
	return o.watch(ctx, d, func(p *process, r report) { o.hear(p, r) })
}

// killOne kills the teller that is in the critical section just now, or p if there
// is none.
func (o *ordeal) killOne(ctx context.Context, p *process) error {
	for _, q := range o.processes {
		if isInside(markerPath(o.task.Dir), badgePath(o.task.Dir, q.id)) {
			p = q
			break
		}
	}
	return o.killSome(ctx, p)
}

// killAll kills everybody at once.
func (o *ordeal) killAll(ctx context.Context, _ *process) error {
	return o.killSome(ctx, o.processes...)
}

func (o *ordeal) killSome(ctx context.Context, some ...*process) error {
	if err := o.kill(ctx, some...); err != nil {
		return err
	}
	for _, p := range some {
		o.Killed++
		inside, err := vacate(markerPath(o.task.Dir), badgePath(o.task.Dir, p.id))
		if err != nil {
			return err
		}
		if inside {
			o.Inside++
		}
	}
	return o.restart(ctx, some...)
}

// closeOne tells a teller to leave, as a service manager does with SIGTERM.
func (o *ordeal) closeOne(ctx context.Context, p *process) error {
	p.order(order{Word: wordLeave})
	if err := o.awaitEnd(ctx, p); err != nil {
		return err
	}
	o.Closed++
	return o.restart(ctx, p)
}

func (o *ordeal) restartServer(ctx context.Context, _ *process) error {
	o.stage.stopServer()
	if err := o.work(ctx, outage); err != nil {
		return err
	}
	o.Servers++
	return o.stage.serve()
}

// audit judges the run by the passbook.
func (o *survival) audit(book statement) {
	o.evidence = evidence{
		Entries: book.deposits, Expected: int64(book.deposits) * deposit, Actual: book.balance,
		Overlaps: book.overlaps, FenceErrors: book.stale,
	}
	o.Faults = o.faults()
	o.OK = len(o.Faults) == 0
}
