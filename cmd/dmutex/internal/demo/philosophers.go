package demo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// Philosophers shows deadlocks between distributed locks, and their end.
type Philosophers struct {
	Philosophers int           `default:"5" help:"Number of philosophers, and of forks, 2 to 64."`
	Meals        int           `default:"100" help:"Meals that each philosopher wants, at least 1."`
	Algorithm    string        `default:"ricart" help:"One algorithm, or all of them: ${algorithms}."`
	Think        time.Duration `default:"1ms" help:"Time for a meal, and between the forks when a victim tries again; at least 100µs."`
	Detect       time.Duration `default:"50ms" help:"Time that a philosopher waits for a fork before looking for a cycle, at least 1ms."`
	Watch        time.Duration `default:"2s" help:"How long to watch the table without detection, at least 100ms. The dinner with detection is the one that --trace records."`
	flags

	algorithms []tool.Algorithm
}

// Help is the text of demo philosophers --help.
func (Philosophers) Help() string {
	return `Philosophers sit around a table, each a process of its own, with a fork between any two. Every fork is a distributed lock. ` +
		`Each philosopher takes the left fork, then the right one, and eats. Sooner or later they would wait for each other in a cycle. The demo makes that ` +
		`happen at each meal: all philosophers take the left fork before any of them reaches for the right one.

First there is no detection. At the first meal each waits forever for the fork that the next one holds. The demo watches for a while and ends ` +
		`the processes. Then the dinner starts again with node.Config.Deadlock set: at each meal one victim learns of the cycle, puts its fork back, and ` +
		`tries again until it has eaten.

The lock is not asked whether a fork is in one hand only: a philosopher that takes a fork creates a marker file, exclusively. ` +
		`There must be exactly one victim at each meal, and in the end no node may hold a fork or wait for one.

Exit status: 0 if nobody ate without detection, everybody did with it, and all was right; 1 if not; 2 if the command line is wrong; ` +
		`3 if a dinner could not be completed.`
}

// Validate refuses what could not be run, or would show nothing.
func (c *Philosophers) Validate() (err error) {
	c.algorithms, err = tool.Choose(c.Algorithm)
	switch {
	case err != nil:
		return err
	case c.Philosophers < 2 || c.Philosophers > 64:
		return fmt.Errorf("--philosophers=%d: choose 2 to 64", c.Philosophers)
	case c.Meals < 1:
		return fmt.Errorf("--meals=%d: choose at least 1", c.Meals)
	case c.Think < 100*time.Microsecond:
		return fmt.Errorf("--think=%v: choose at least 100µs", c.Think)
	case c.Detect < time.Millisecond:
		return fmt.Errorf("--detect=%v: choose at least 1ms", c.Detect)
	case c.Watch < 100*time.Millisecond:
		return fmt.Errorf("--watch=%v: choose at least 100ms", c.Watch)
	case c.Timeout <= max(c.Think, c.Detect):
		return fmt.Errorf("--timeout=%v is not longer than --think=%v and --detect=%v", c.Timeout, c.Think, c.Detect)
	}
	return c.validate()
}

// Run makes all dinners and reports on them.
func (c *Philosophers) Run(con *tool.Console) error {
	p := tool.NewProgress(con.Err, c.Philosophers*c.Meals, "meals")
	r := dinners{
		Link: c.Link, Philosophers: c.Philosophers, Meals: c.Meals,
		Think: c.Think, Detect: c.Detect, Watched: c.Watch, Runs: []tables{},
	}
	return c.demonstrate(con, p, &r, c.algorithms, func(ctx context.Context, a tool.Algorithm, s *stage) (err error) {
		p.Say("%-12s %d philosophers, without detection: watched for %v", a.Name, c.Philosophers, c.Watch)
		t := tables{Algorithm: a.Name}
		if t.Without, err = c.dine(ctx, a, s, 0); err != nil {
			return fmt.Errorf("without detection: %w", err)
		}
		p.Begin(a.Name)
		if t.With, err = c.dine(ctx, a, s, c.Detect); err != nil {
			return fmt.Errorf("with detection: %w", err)
		}
		p.End(t.With.Took)
		r.Runs = append(r.Runs, t)
		return nil
	})
}

// A dinner is the result of one run.
type dinner struct {
	Meals    []int         `json:"meals"`    // by philosopher
	Overlaps int           `json:"overlaps"` // forks that were taken while in another hand
	Busy     int           `json:"busy"`     // forks held or waited for in the end
	Cycles   []cycle       `json:"cycles"`   // in the order in which they were found; each had a victim
	Took     time.Duration `json:"took_ns"`
}

// dine is one run. Without detection it ends when it was watched for long enough.
func (c *Philosophers) dine(ctx context.Context, a tool.Algorithm, s *stage, detect time.Duration) (dinner, error) {
	d := dinner{Meals: make([]int, c.Philosophers), Cycles: []cycle{}}
	g, err := s.group(task{Trade: "philosopher", Nodes: c.Philosophers, Meals: c.Meals, Think: c.Think, Detect: detect},
		a, fmt.Sprintf("%s-%v", a.Name, detect), detect > 0)
	if err != nil {
		return d, err
	}
	defer g.end()
	g.sofar = func() string { return fmt.Sprint("meals eaten by each: ", d.Meals) }
	advance := func(p *process, r report) { s.progress.At(progressed(d.Meals, p, r.Made)) }
	g.heard = func(p *process, r report) bool {
		switch r.Word {
		case wordCycle:
			d.Cycles = append(d.Cycles, r.Cycle)
		case wordProgress: // at the dinner without detection
			advance(p, r)
		default:
			return false
		}
		return true
	}
	if err := g.begin(ctx); err != nil {
		return d, err
	}
	for range c.Meals {
		g.tell(order{Word: wordSit})
		if err := g.await(ctx, wordSeated, nil); err != nil {
			return d, err
		}
		g.tell(order{Word: wordReach})
		if detect == 0 {
			return d, g.watch(ctx, c.Watch)
		}
		if err := g.await(ctx, wordProgress, advance); err != nil {
			return d, err
		}
	}
	g.tell(order{Word: wordSit})
	counted, took, err := g.finish(ctx, func(_ *process, r report) { d.Overlaps += r.Overlaps })
	d.Took = took
	for _, n := range counted {
		d.Busy += n.Busy
	}
	return d, err
}

// faults says what was wrong at a dinner with detection, with this many meals each.
func (d *dinner) faults(meals int) (f []string) {
	if i := slices.IndexFunc(d.Meals, func(n int) bool { return n != meals }); i >= 0 {
		f = append(f, fmt.Sprintf("philosopher %d ate %d times instead of %d", i+1, d.Meals[i], meals))
	}
	if len(d.Cycles) != meals {
		f = append(f, fmt.Sprintf("%d cycles were found, each with a victim, instead of one at each of %d meals", len(d.Cycles), meals))
	}
	for i, c := range d.Cycles {
		if !c.around(len(d.Meals)) {
			f = append(f, fmt.Sprintf("cycle %d does not go around the table: %v", i+1, c))
		}
	}
	if d.Overlaps > 0 {
		f = append(f, fmt.Sprintf("%d forks were in two hands", d.Overlaps))
	}
	if d.Busy > 0 {
		f = append(f, fmt.Sprintf("%d forks were not given back", d.Busy))
	}
	return f
}
