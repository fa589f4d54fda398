package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// philosophersCmd shows deadlocks between distributed locks, and their end.
type philosophersCmd struct {
	linkFlags
	Philosophers int           `default:"5" help:"Number of philosophers, and of forks, 2 to 64."`
	Meals        int           `default:"100" help:"Meals that each philosopher wants, at least 1."`
	Algorithm    string        `default:"ricart" help:"One algorithm, or all of them: ${algorithms}."`
	Think        time.Duration `default:"1ms" help:"Time for a meal, and between the forks when a victim tries again; at least 100µs."`
	Detect       time.Duration `default:"50ms" help:"Time that a philosopher waits for a fork before looking for a circle, at least 1ms."`
	Watch        time.Duration `default:"2s" help:"Time for which the table without detection is watched, at least 100ms."`
	Timeout      time.Duration `default:"30s" help:"Give up when nothing at all has happened for this long."`
	Trace        string        `placeholder:"DIR" help:"Record every node's trace of the dinner with detection into DIR/ALGORITHM, a new directory; see trace draw."`
	JSON         bool          `name:"json" help:"Print the result as JSON, and nothing else, on standard output."`
}

// Help is the text of demo philosophers --help.
func (philosophersCmd) Help() string {
	return `Around a table sit philosophers, each a process of its own, with a fork between any two. Every fork is a distributed lock. ` +
		`Each takes the left fork, then the right one, and eats. Left alone they would wait for each other in a circle some day. The demo does not wait ` +
		`for that day: at each meal it lets everybody take the left fork before anybody reaches for the right one.

First nobody looks for circles, and at the first meal each waits for ever for the fork that the next one holds. The demo watches a while and ends ` +
		`the processes. Then the table is laid anew, with node.Config.Deadlock set: at each meal one victim is told of the circle, puts its fork back, and ` +
		`tries again until it has eaten.

Whether a fork is in one hand only is not asked of the lock: who takes one creates a marker file, exclusively. ` +
		`There must be one victim at each meal, no more and no less, and in the end no node may hold a fork or wait for one.

Exit status: 0 if nobody ate without detection and everybody did with it, and all was right; 1 if not; 2 if the command line is wrong; ` +
		`3 if a dinner could not be completed.`
}

// Validate refuses what could not be run, or would show nothing.
func (c *philosophersCmd) Validate() error {
	switch {
	case !isAlgorithm(c.Algorithm):
		return fmt.Errorf("--algorithm=%s: choose all or one of %s", c.Algorithm, algorithmNames())
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
	return c.linkFlags.validate()
}

// Run gives all dinners and reports on them.
func (c *philosophersCmd) Run(con *console) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := newProgress(con.err, c.Philosophers*c.Meals)
	p.unit = "meals"
	r := dinners{
		Link: c.Link, Philosophers: c.Philosophers, Meals: c.Meals,
		Think: c.Think, Detect: c.Detect, Watched: c.Watch, Runs: []tables{},
	}
	err := c.runAll(ctx, p, &r)
	p.clear()
	r.judge(err)
	write := r.writeText
	if c.JSON {
		write = r.writeJSON
	}
	if err := write(con.out); err != nil {
		return err
	}
	switch {
	case err != nil:
		return err
	case !r.OK:
		return errFailed
	}
	return nil
}

func (c *philosophersCmd) runAll(ctx context.Context, p *progress, r *dinners) error {
	if err := traceDirs(c.Trace, chosen(c.Algorithm)); err != nil {
		return err
	}
	stop, err := c.start()
	if err != nil {
		return err
	}
	defer stop()
	dir, err := os.MkdirTemp("", "dmutex-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, alg := range chosen(c.Algorithm) {
		p.say("%-12s %d philosophers, and nobody looks for circles: watched for %v", alg.name, c.Philosophers, c.Watch)
		t := tables{Algorithm: alg.name}
		if t.Without, err = c.dine(ctx, alg, 0, filepath.Join(dir, alg.name+"-without"), p); err != nil {
			return fmt.Errorf("%s: without detection: %w", alg.name, err)
		}
		p.begin(alg.name)
		if t.With, err = c.dine(ctx, alg, c.Detect, filepath.Join(dir, alg.name+"-with"), p); err != nil {
			return fmt.Errorf("%s: with detection: %w", alg.name, err)
		}
		p.end(t.With.Took)
		r.Runs = append(r.Runs, t)
	}
	return nil
}

// dine is one dinner at a fresh table.
func (c *philosophersCmd) dine(ctx context.Context, alg algorithm, detect time.Duration, dir string, p *progress) (evening, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return evening{}, err
	}
	traces := ""
	if c.Trace != "" && detect > 0 {
		traces = filepath.Join(c.Trace, alg.name)
	}
	d := dinner{
		crew: crew{
			task: task{
				Trade:     "philosopher",
				Nodes:     c.Philosophers,
				Algorithm: alg.name,
				Link:      c.Link,
				NatsURL:   c.NatsURL,
				Prefix:    natsPrefix(),
				Dir:       dir,
				Trace:     traces,
				Think:     c.Think,
				Meals:     c.Meals,
				Detect:    detect,
			},
			timeout: c.Timeout,
		},
		watched:  c.Watch,
		progress: p.at,
	}
	err := d.run(ctx)
	return d.evening, err
}
