package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/node"
)

// Philosophers shows deadlocks between distributed locks, and their end.
type Philosophers struct {
	Philosophers int            `default:"5" least:"2" most:"64" help:"Number of philosophers, and of forks, 2 to 64."`
	Meals        int            `default:"100" least:"1" help:"Meals that each philosopher wants, at least 1."`
	Algorithm    catalog.Choice `default:"ricart" help:"One algorithm, or all of them: ${algorithms}."`
	Think        time.Duration  `default:"1ms" least:"100µs" help:"Time for a meal, and between the forks when a victim tries again; at least 100µs."`
	Detect       time.Duration  `default:"50ms" least:"1ms" help:"Time that a philosopher waits for a fork before looking for a cycle, at least 1ms."`
	Watch        time.Duration  `default:"2s" least:"100ms" help:"How long to watch the table without detection, at least 100ms. The dinner with detection is the one that --trace records."`
	flags
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
func (c *Philosophers) Validate() error {
	if c.Timeout <= max(c.Think, c.Detect) {
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
	return c.demonstrate(con, p, &r, c.Algorithm, func(ctx context.Context, a catalog.Algorithm, s *stage) (err error) {
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

// dine makes one dinner. Without detection it ends the dinner after c.Watch.
func (c *Philosophers) dine(ctx context.Context, a catalog.Algorithm, s *stage, detect time.Duration) (dinner, error) {
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
		if err := g.ask(ctx, order{Word: wordSit}, wordSeated, nil); err != nil {
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
func (d *dinner) faults(meals int) (f tool.Phrases) {
	for i, n := range d.Meals {
		f.Add(n != meals, "philosopher %d ate %d times instead of %d", i+1, n, meals)
	}
	f.Add(len(d.Cycles) != meals, "%d cycles were found, each with a victim, instead of one at each of %d meals", len(d.Cycles), meals)
	for i, c := range d.Cycles {
		f.Add(!c.around(len(d.Meals)), "cycle %d does not go around the table: %v", i+1, c)
	}
	f.Add(d.Overlaps > 0, "%d forks were in two hands", d.Overlaps)
	f.Add(d.Busy > 0, "%d forks were not given back", d.Busy)
	return f
}

// philosopherCmd is one philosopher of the demo, in a process of its own.
type philosopherCmd struct{}

// Run works until it is told to leave, or until the demo is gone.
func (philosopherCmd) Run(con *tool.Console) error {
	return employ(con, func(ctx context.Context, w *worker) error {
		p := &philosopher{worker: w, badge: filepath.Join(w.task.Dir, fmt.Sprint("philosopher-", w.task.Self))}
		if err := os.WriteFile(p.badge, nil, 0o600); err != nil {
			return err
		}
		for range w.task.Meals {
			if err := p.dine(ctx); err != nil {
				return fmt.Errorf("meal %d: %w", p.meals+1, err)
			}
		}
		if _, err := p.expect(ctx, wordSit); err != nil { // else some are eating
			return err
		}
		w.report(report{Word: wordDone, Overlaps: p.overlaps})
		return nil
	})
}

// A philosopher eats with two forks. Each fork is a lock.
type philosopher struct {
	*worker
	badge    string // see occupy
	meals    int    // eaten
	overlaps int    // forks that it took while they were in another hand
}

// A cycle of philosophers: each waits for a fork that the next one holds. The
// first is the victim.
type cycle []edge

type edge struct {
	Waiter dmutex.NodeID `json:"waiter"`
	Lock   string        `json:"fork"`
	Holder dmutex.NodeID `json:"holder"`
}

// around reports whether the cycle goes around a table: everybody waits for the
// right fork.
func (c cycle) around(philosophers int) bool {
	n := dmutex.NodeID(philosophers)
	for i, e := range c {
		right := e.Waiter%n + 1
		if e.Lock != fork(right) || e.Holder != right || c[(i+1)%len(c)].Waiter != right {
			return false
		}
	}
	return len(c) == philosophers
}

// fork is the name of the i-th philosopher's left fork, which is the right fork
// of the philosopher before.
func fork(i dmutex.NodeID) string { return fmt.Sprint("fork/", i) }

// dine sits down when told to, and tries until it has eaten.
func (p *philosopher) dine(ctx context.Context) error {
	if _, err := p.expect(ctx, wordSit); err != nil {
		return err
	}
	t, pause := p.node.Txn(), p.reach
	for meal := p.meals; p.meals == meal; pause = p.think { // later, others are eating already
		if err := p.try(ctx, t, pause); err != nil {
			return err
		}
	}
	p.report(report{Word: wordProgress, Made: p.meals})
	return nil
}

// try takes the left fork, then, after a pause, the right one, and eats. A victim puts its fork
// back and has not eaten.
func (p *philosopher) try(ctx context.Context, t *node.Txn, pause func(context.Context) error) (err error) {
	var hand []func() error // removes the markers of the forks in it
	defer func() {
		for _, leave := range hand {
			err = errors.Join(err, leave())
		}
		err = errors.Join(err, t.Release())
	}()
	take := func(fork string) error {
		if _, err := t.Acquire(ctx, fork); err != nil {
			return err
		}
		leave, overlap, err := occupy(filepath.Join(p.task.Dir, filepath.Base(fork)), p.badge)
		if overlap {
			p.overlaps++
		}
		if err == nil {
			hand = append(hand, leave)
		}
		return err
	}
	if err := take(fork(p.task.Self)); err != nil {
		return err
	}
	if err := pause(ctx); err != nil {
		return err
	}
	if err := take(fork(p.task.Self%dmutex.NodeID(p.task.Nodes) + 1)); err != nil {
		return p.cycle(err)
	}
	if err := p.think(ctx); err != nil {
		return err
	}
	p.meals++
	return nil
}

func (p *philosopher) think(ctx context.Context) error { return sleep(ctx, p.task.Think) }

// reach waits until all have their left fork.
func (p *philosopher) reach(ctx context.Context) error {
	p.report(report{Word: wordSeated})
	_, err := p.expect(ctx, wordReach)
	return err
}

// cycle reports the cycle if err says that this philosopher is its victim, and returns any
// other error.
func (p *philosopher) cycle(err error) error {
	found, ok := errors.AsType[*node.Error](err)
	if !ok || !errors.Is(err, node.ErrDeadlock) {
		return err
	}
	var c cycle
	for _, e := range found.Cycle {
		c = append(c, edge(e))
	}
	p.report(report{Word: wordCycle, Cycle: c})
	return nil
}

// dinners are the result of a demo of philosophers.
type dinners struct {
	Link         string        `json:"link"`
	Philosophers int           `json:"philosophers"`
	Meals        int           `json:"meals_each"`
	Think        time.Duration `json:"think_ns"`
	Detect       time.Duration `json:"detect_ns"`
	Watched      time.Duration `json:"watched_ns"`
	verdict
	Runs []tables `json:"runs"`
}

// tables are the two dinners under one algorithm.
type tables struct {
	Algorithm string       `json:"algorithm"`
	Without   dinner       `json:"without_detection"` // only the meals are known of it
	With      dinner       `json:"with_detection"`
	Faults    tool.Phrases `json:"faults,omitempty"`
	OK        bool         `json:"ok"`
}

func (r *dinners) judge(err error) bool {
	r.verdict = newVerdict(err)
	for i := range r.Runs {
		t := &r.Runs[i]
		eaten := sum(t.Without.Meals)
		t.Faults = t.With.faults(r.Meals)
		t.Faults.Add(eaten > 0, "without detection %s were eaten, while all forks were taken", tool.Several(eaten, "meal"))
		t.OK = len(t.Faults) == 0
		r.OK = r.OK && t.OK
	}
	return r.OK
}

// writeText writes the result for people: what was done, the cycles, the table,
// and what was seen.
func (r *dinners) writeText(w io.Writer) {
	if len(r.Runs) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n\n", tool.Wrap(fmt.Sprintf("%d philosophers, each a process of its own, want %s each, over %s. These cycles were "+
		"found. Each begins with its victim, which waits for a fork that the next one holds, and so on:",
		r.Philosophers, tool.Several(r.Meals, "meal"), network(r.Link))))
	var rows [][]string
	for _, t := range r.Runs {
		var found []string // in the order in which they were first found
		seen := make(map[string]int)
		for _, c := range t.With.Cycles {
			if seen[c.String()]++; seen[c.String()] == 1 {
				found = append(found, c.String())
			}
		}
		for _, c := range found {
			fmt.Fprintf(w, "%-12s  %s: %s\n", t.Algorithm, times(seen[c]), c)
		}
		d := t.With
		rows = append(rows, []string{
			t.Algorithm, fmt.Sprint(sum(t.Without.Meals)),
			fmt.Sprint(sum(d.Meals)), fmt.Sprint(len(d.Cycles)), fmt.Sprint(d.Overlaps), fmt.Sprint(d.Busy), brief(d.Took),
		})
	}
	fmt.Fprintln(w)
	tool.Tabulate(w, []tool.Heading{
		{Columns: []string{"algorithm"}},
		{Title: "no detection", Columns: []string{"meals"}},
		{Title: "with detection", Columns: []string{"meals", "cycles", "overlap", "kept", "took"}},
	}, rows)
	fmt.Fprintf(w, dinnerLegend, r.Watched)
	fmt.Fprintln(w, r.closing())
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return tool.Several(n, "time")
}

const dinnerLegend = `
no detection  the demo watched the table for %v, and then ended the processes
cycles        found: one at each meal; its victim puts its fork back and tries again
overlap       forks that were taken while in another hand, by a marker file
kept          forks that were held or waited for in the end

`

// String draws the cycle from its victim on.
func (c cycle) String() string {
	var b strings.Builder
	for i, e := range c {
		if i == 0 {
			b.WriteString(e.Waiter.String())
		}
		fmt.Fprintf(&b, " -%s-> %v", e.Lock, e.Holder)
	}
	return b.String()
}

func (r *dinners) closing() string {
	var said tool.Phrases
	cycles, right, were := 0, 0, "were"
	for _, t := range r.Runs {
		said.Add(!t.OK, "FAILED under %s: %s.", t.Algorithm, strings.Join(t.Faults, "; "))
		if t.OK {
			right++
			cycles += len(t.With.Cycles)
		}
	}
	if cycles == 1 {
		were = "was"
	}
	said.Add(right > 0, "Without detection everybody held one fork and nobody ate. With detection everybody ate: "+
		"%s %s found, as many victims tried again, no fork was in two hands, and in the end none was held.", tool.Several(cycles, "cycle"), were)
	return tool.Wrap(strings.Join(said, " "))
}
