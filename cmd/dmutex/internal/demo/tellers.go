package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
)

// Tellers shows the locks at work on real processes.
type Tellers struct {
	Nodes     int            `default:"5" least:"2" most:"64" unit:" tellers" help:"Number of tellers, 2 to 64."`
	Deposits  int            `default:"100" least:"1" help:"Deposits that each teller makes, at least 1; with --kill and --crash they make as many as they can."`
	Algorithm catalog.Choice `xor:"what" placeholder:"all" help:"One algorithm, or all of them: ${algorithms}. With --crash, witnessed if not given."`
	Broken    bool           `xor:"what" help:"Run a machine that is wrong on purpose instead, and see it caught."`
	Think     time.Duration  `default:"1ms" least:"100µs" help:"Time between reading the account and writing it, at least 100µs."`
	Kill      bool           `xor:"how" help:"Kill tellers while they work, and start them again, under every algorithm chosen."`
	Crash     bool           `xor:"how" help:"Kill tellers for good while they work, and add new ones. The members of the group are in a file, with a lease."`
	Kills     int            `default:"3" help:"How often tellers are killed with --kill or --crash, or in the last run without them; 0 for no such run."`
	Lease     time.Duration  `placeholder:"2s" help:"With --crash: how long a teller may hold the lock after the file has last shown it as a member; 2s if not given."`
	Store     string         `default:"file" enum:"file,remote" help:"With --crash, where the group's record is: file, by which the processes of one machine prove each other dead, or remote, the same file used like one on another machine."`
	flags

	algorithms catalog.Choice // of the runs without kills
	killed     catalog.Choice // of those with kills
	spell      time.Duration  // for tests: another spell than usual
}

// maxCrew bounds the tellers with --crash, and those that are killed: a new record takes
// one change a second, and the account has room for numbers of two digits.
const maxCrew = 20

// Help is the text of demo tellers --help.
func (Tellers) Help() string {
	return `Every teller reads the balance of one shared account file, thinks, and writes the balance back with 1.00 added. ` +
		`First nothing keeps the tellers apart, and money is lost. Then they hold a lock while they work, once for every algorithm.

The evidence does not come from the lock. Not a cent may be missing from the account. A marker file, created exclusively inside the ` +
		`critical section, shows when two tellers are inside. The account keeps the highest fence, and fences must rise with every ` +
		`deposit, in the order of time. The number of messages must match the paper's formula.

In the last run, and with --kill in every run, tellers are killed and started again while all of them work. In turn, the teller inside the critical section is ` +
		`killed (SIGKILL), a teller leaves and comes back, the NATS server is stopped for a moment (if the demo started it), and all tellers are killed at once. ` +
		`The account has a line for each deposit, written as a whole or not at all, so it shows what a killed teller has done: without its line it has deposited nothing. ` +
		`The balance must be the sum of the lines, and fences must rise from line to line. ` +
		`Without --kill, the last run is under the first algorithm; there is none with --trace or --broken.

With --crash the tellers come and go. They are in no list: a file that they share says who they are. Each takes 20 more locks again and again, for a moment. ` +
		`A teller is killed for good, in turn while it holds the lock of the account and while it holds none, and a new one is added, with a new number. The others exclude ` +
		`the one that was killed, and go on. The table has their longest wait for a lock after a kill, up to the next kill: for those that the dead neither held nor was the home of, ` +
		`for the one that it held, and for those at home with it. With --store=file, which is the default, the file also proves that a process is dead; with --store=remote ` +
		`the others wait until its lease must have ended, as with a record on another machine. The evidence is the same.

Exit status: 0 if every locked run was right; 1 if not; 2 if the command line is wrong; 3 if a run could not be completed.`
}

// Validate refuses what could not be run, or would show nothing.
func (c *Tellers) Validate() error {
	switch {
	case c.Kills < 0 || (c.Kill || c.Crash) && c.Kills == 0:
		return fmt.Errorf("--kills=%d: choose 1 or more", c.Kills)
	case c.Crash && (c.Nodes > maxCrew || c.Kills > maxCrew):
		return fmt.Errorf("--nodes=%d --kills=%d: choose at most %d of each with --crash", c.Nodes, c.Kills, maxCrew)
	case !c.Crash && (c.Lease != 0 || c.Store != "file"):
		return errors.New("--lease and --store are for --crash")
	case c.Lease != 0 && (c.Lease < 100*time.Millisecond || c.Lease > c.Timeout/3):
		return fmt.Errorf("--lease=%v: choose 100ms to a third of --timeout=%v", c.Lease, c.Timeout)
	case c.Timeout <= c.Think:
		return fmt.Errorf("--timeout=%v is not longer than --think=%v", c.Timeout, c.Think)
	}
	if c.Crash {
		c.Lease = cmp.Or(c.Lease, 2*time.Second)
	}
	switch c.algorithms = c.Algorithm; {
	case c.Broken:
		c.algorithms = catalog.Choice{catalog.Broken}
	case c.Algorithm == nil && c.Crash:
		a, _ := catalog.Find("witnessed") // the default with leases
		c.algorithms = catalog.Choice{a}
	case c.Algorithm == nil:
		c.algorithms = catalog.All
	}
	switch {
	case c.Kill || c.Crash:
		c.algorithms, c.killed = nil, c.algorithms
		return c.validate()
	case c.Kills > 0 && c.Trace == "" && !c.Broken:
		c.killed = c.algorithms[:1]
	}
	c.algorithms = append(catalog.Choice{catalog.NoLock}, c.algorithms...)
	return c.validate()
}

// Run makes all runs and reports on them.
func (c *Tellers) Run(con *tool.Console) error {
	p := tool.NewProgress(con.Err, c.Nodes*c.Deposits, "deposits")
	r := result{Lease: c.Lease, Store: c.Store, Link: c.Link, Nodes: c.Nodes, Deposits: c.Deposits, Think: c.Think, Runs: []outcome{}, KillRuns: []killOutcome{}}
	return c.demonstrate(con, p, &r, slices.Concat(c.algorithms, c.killed), func(ctx context.Context, a catalog.Algorithm, s *stage) error {
		if len(r.Runs)+len(r.KillRuns) == 0 {
			p.Say("%d tellers over %s:", c.Nodes, network(c.Link))
		}
		if len(r.Runs) == len(c.algorithms) {
			o, err := c.workUnderKills(ctx, a, s)
			if err != nil {
				return fmt.Errorf("with kills: %w", err)
			}
			next := "started again"
			if c.Crash {
				next = "replaced by new ones"
			}
			p.Say("%-12s %d deposits in %.1f s, while tellers were killed and %s", a.Name, o.Entries, o.Took.Seconds(), next)
			r.KillRuns = append(r.KillRuns, o)
			return nil
		}
		p.Begin(a.Name)
		o, err := c.work(ctx, a, s)
		if err != nil {
			return err
		}
		p.End(o.Took)
		r.Runs = append(r.Runs, o)
		return nil
	})
}

func (c *Tellers) work(ctx context.Context, a catalog.Algorithm, s *stage) (o outcome, err error) {
	g, err := s.group(task{Trade: "teller", Nodes: c.Nodes, Deposits: c.Deposits, Think: c.Think}, a, a.Name, a.New != nil)
	if err != nil {
		return o, err
	}
	defer g.end()
	made := make([]int, c.Nodes)
	advance := func(p *process, n int) { s.progress.At(progressed(made, p, n)) }
	g.sofar = func() string { return fmt.Sprint("deposits made by each: ", made) }
	g.heard = func(p *process, r report) bool {
		if r.Word == wordProgress {
			advance(p, r.Made)
		}
		return r.Word == wordProgress
	}
	w := work{records: make([][]record, c.Nodes)}
	if err := g.begin(ctx); err != nil {
		return o, err
	}
	w.counts, w.took, err = g.finish(ctx, func(p *process, r report) {
		w.records[p.id-1] = r.Records
		advance(p, len(r.Records))
	})
	if err != nil {
		return o, err
	}
	book, err := readPassbook(g.task.Dir)
	return audit(a, c.Nodes, book, w), err
}

// tellerCmd is one teller of the demo, in a process of its own.
type tellerCmd struct{}

// Run works until it is told to leave, or until the demo is gone.
func (tellerCmd) Run(con *tool.Console) error {
	return employ(con, func(ctx context.Context, w *worker) (err error) {
		t := &teller{worker: w, turns: make(map[string]turn)}
		if t.account, err = openAccount(w.task.Dir, w.task.Self); err != nil {
			return err
		}
		defer t.account.file.Close()
		if w.task.Deposits == 0 {
			return t.untilTold(ctx)
		}
		records, err := t.deposits(ctx)
		if err != nil {
			return err
		}
		w.report(report{Word: wordDone, Records: records})
		return nil
	})
}

// untilTold makes deposits until the order to leave, or to rest.
func (t *teller) untilTold(ctx context.Context) error {
	work, end := context.WithCancelCause(ctx)
	defer end(nil)
	var told order
	var all sync.WaitGroup
	all.Go(func() {
		var err error
		told, err = t.next(work)
		end(cmp.Or(err, errDismissed))
	})
	if t.task.Lease != 0 {
		for i := range boxes {
			all.Go(func() { t.visit(work, fmt.Sprint("box/", i+1)) })
		}
	}
	_, err := t.deposits(work)
	end(err)
	all.Wait()
	if told.Word != wordRest {
		return err
	}
	if told.Hold {
		if _, err := t.node.Mutex(accountLock).Acquire(ctx); err != nil {
			return err
		}
		if _, _, err := occupy(t.account.marker, t.account.badge); err != nil {
			return err
		}
	}
	time.Sleep(settle)
	t.report(report{Word: wordResting, Self: t.node.Self()})
	_, err = t.next(ctx) // it is killed
	return err
}

// Besides the lock of the account, tellers with a lease take the locks of boxes again and again,
// each for a moment. Each teller is the home of some.
const (
	accountLock = "account"
	boxes       = 20
	boxEvery    = 20 * time.Millisecond
	settle      = 200 * time.Millisecond // until the last messages of a teller at rest have arrived
)

// visit takes the lock of a box again and again.
func (t *teller) visit(ctx context.Context, box string) {
	for ctx.Err() == nil {
		called := now()
		if held, err := t.node.Mutex(box).Acquire(ctx); err == nil { // else it was lost to the lease, or the work is over
			t.granted(box, called)
			_ = held.Release()
		}
		_ = sleep(ctx, boxEvery)
	}
}

// granted notes that a lock was granted to this teller, which still holds it.
func (t *teller) granted(lock string, called int64) {
	home := t.node.Mutex(lock).Status().Home
	t.taking.Lock()
	defer t.taking.Unlock()
	at := now()
	t.turns[lock] = turn{Granted: at, Wait: max(t.turns[lock].Wait, time.Duration(at-called)), Home: home}
}

// A teller makes deposits.
type teller struct {
	*worker
	account *account

	taking sync.Mutex      // guards turns
	turns  map[string]turn // since the last report
}

// deposits makes the deposits of the task, or as many as it can until ctx ends, and
// reports progress ten times a second.
func (t *teller) deposits(ctx context.Context) (records []record, err error) {
	var told time.Time
	for t.task.Deposits == 0 || len(records) < t.task.Deposits {
		r, err := t.deposit(ctx)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, node.ErrLost) && (t.task.Lease != 0 || t.task.Algorithm == catalog.Broken.Name):
			continue // the store or this machine was too slow for the lease, or a view keeps one of two holders
		case err != nil:
			return nil, fmt.Errorf("deposit %d: %w", len(records)+1, err)
		}
		records = append(records, r)
		if time.Since(told) >= 100*time.Millisecond {
			told = time.Now()
			t.taking.Lock()
			made := report{Word: wordProgress, Made: len(records), Turns: t.turns}
			t.turns = make(map[string]turn)
			t.taking.Unlock()
			t.report(made)
		}
	}
	return records, nil
}

// deposit makes one, under the lock if there is one.
func (t *teller) deposit(ctx context.Context) (r record, err error) {
	r.Called = now()
	if t.node != nil {
		var held lock.Held
		if held, err = t.node.Mutex(accountLock).Acquire(ctx); err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, held.Release()) }()
		if t.task.Lease != 0 {
			t.granted(accountLock, r.Called)
		}
		r.Fence, ctx = held.Fence(), held.Context()
	}
	r.Granted = now()
	err = t.account.pay(ctx, t.task.Self, r.Fence, t.task.Think)
	r.Left = now()
	return r, err
}

func now() int64 { return time.Now().UnixNano() }
