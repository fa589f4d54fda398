package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// demoCmd is the main job of the project, shown on real processes.
type demoCmd struct {
	linkFlags
	Nodes     int           `default:"5" help:"Number of tellers, 2 to 64."`
	Deposits  int           `default:"100" help:"Deposits that each teller makes, at least 1."`
	Algorithm string        `xor:"what" placeholder:"all" help:"One algorithm, or all of them: ${algorithms}."`
	Broken    bool          `xor:"what" help:"Run a machine that is wrong on purpose instead, and see it caught."`
	Think     time.Duration `default:"1ms" help:"Time between reading the account and writing it, at least 100µs."`
	Timeout   time.Duration `default:"30s" help:"Give up when nothing at all has happened for this long."`
	Trace     string        `placeholder:"DIR" help:"Record every node's trace into DIR/ALGORITHM, a new directory; see trace draw."`
	JSON      bool          `name:"json" help:"Print the result as JSON, and nothing else, on standard output."`
}

// Help is the text of demo tellers --help.
func (demoCmd) Help() string {
	return `Every teller reads the balance of one shared account file, thinks, and writes the balance back with 1.00 added. ` +
		`First nothing keeps them apart, and money is lost. Then they hold a lock meanwhile, once for every algorithm.

Whether the lock works is not asked of the lock. The account must have every cent. A marker file that is created exclusively ` +
		`inside the critical section tells when two are inside. The account keeps the highest fence, which must rise with every ` +
		`deposit, and also in the order of time. The messages sent must be as many as the paper's formula says.

Exit status: 0 if every locked run was right; 1 if not; 2 if the command line is wrong; 3 if a run could not be completed.`
}

// Validate refuses what could not be run, or would show nothing.
func (c *demoCmd) Validate() error {
	if c.Algorithm == "" {
		c.Algorithm = "all"
	}
	switch {
	case c.Algorithm != "all" && !slices.ContainsFunc(algorithms, func(a algorithm) bool { return a.name == c.Algorithm }):
		return fmt.Errorf("--algorithm=%s: choose all or one of %s", c.Algorithm, algorithmNames())
	case c.Nodes < 2 || c.Nodes > 64:
		return fmt.Errorf("--nodes=%d: choose 2 to 64 tellers", c.Nodes)
	case c.Deposits < 1:
		return fmt.Errorf("--deposits=%d: choose at least 1", c.Deposits)
	case c.Think < 100*time.Microsecond:
		return fmt.Errorf("--think=%v: choose at least 100µs, or the tellers hardly meet", c.Think)
	case c.Timeout <= c.Think:
		return fmt.Errorf("--timeout=%v is not longer than --think=%v", c.Timeout, c.Think)
	}
	return c.linkFlags.validate()
}

// Run makes all runs and reports on them.
func (c *demoCmd) Run(con *console) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := newProgress(con.err, c.Nodes*c.Deposits)
	p.unit = "deposits"
	result := result{Link: c.Link, Nodes: c.Nodes, Deposits: c.Deposits, Think: c.Think, Runs: []outcome{}}
	err := c.runAll(ctx, p, &result)
	p.clear()
	result.judge(err)
	write := result.writeTable
	if c.JSON {
		write = result.writeJSON
	}
	if err := write(con.out); err != nil {
		return err
	}
	switch {
	case err != nil:
		return err
	case !result.OK:
		return errFailed
	}
	return nil
}

// algorithms returns what to run, in order.
func (c *demoCmd) algorithms() []algorithm {
	runs := []algorithm{noLock}
	if c.Broken {
		return append(runs, broken)
	}
	for _, a := range algorithms {
		if c.Algorithm == "all" || c.Algorithm == a.name {
			runs = append(runs, a)
		}
	}
	return runs
}

func (c *demoCmd) runAll(ctx context.Context, p *progress, r *result) error {
	if err := traceDirs(c.Trace, c.algorithms()); err != nil {
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
	p.say("%d tellers over %s, %d deposits each:", c.Nodes, strings.ToUpper(c.Link), c.Deposits)
	for _, alg := range c.algorithms() {
		p.begin(alg.name)
		o, err := c.runOne(ctx, alg, filepath.Join(dir, alg.name), p.at)
		if err != nil {
			return fmt.Errorf("%s: %w", alg.name, err)
		}
		p.end(o.Took)
		r.Runs = append(r.Runs, o)
	}
	return nil
}

// runOne is one shift with a fresh account in a fresh directory.
func (c *demoCmd) runOne(ctx context.Context, alg algorithm, dir string, at func(made int)) (outcome, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return outcome{}, err
	}
	if err := createAccount(dir); err != nil {
		return outcome{}, err
	}
	traces := ""
	if c.Trace != "" && alg.make != nil {
		traces = filepath.Join(c.Trace, alg.name)
	}
	s := shift{
		crew: crew{
			task: task{
				Trade:     "teller",
				Nodes:     c.Nodes,
				Algorithm: alg.name,
				Link:      c.Link,
				NatsURL:   c.NatsURL,
				Prefix:    natsPrefix(),
				Dir:       dir,
				Trace:     traces,
				Deposits:  c.Deposits,
				Think:     c.Think,
			},
			timeout: c.Timeout,
		},
		progress: at,
	}
	w, err := s.run(ctx)
	if err != nil {
		return outcome{}, err
	}
	account, err := openAccount(dir)
	if err != nil {
		return outcome{}, err
	}
	defer account.file.Close()
	balance, _, err := account.read()
	return audit(alg, c.Nodes, balance, w), err
}
