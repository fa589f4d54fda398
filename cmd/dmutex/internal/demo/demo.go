// Package demo shows the locks at work on processes of the operating system.
//
// A demonstration runs one group of processes after another, and judges them by evidence
// that does not come from the lock. group.go runs a group, and has what it and its processes say;
// worker.go is such a process, seen from inside.
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

	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// Cmd is dmutex demo.
type Cmd struct {
	Tellers      Tellers      `cmd:"" default:"withargs" help:"Bank tellers share one account: first without a lock, then under every algorithm. demo alone runs this."`
	Philosophers Philosophers `cmd:"" help:"Dining philosophers wait for each other in a cycle: first forever, then with deadlock detection."`

	Teller      tellerCmd      `cmd:"" hidden:"" help:"One teller of the demo, which starts it."`
	Philosopher philosopherCmd `cmd:"" hidden:"" help:"One philosopher of the demo, which starts it."`
}

// Help is the text of demo --help.
func (Cmd) Help() string {
	return `demo alone takes the flags of demo tellers, such as --kill, which kills and restarts tellers under every algorithm, and ` +
		`--crash, which kills them for good and adds new ones: see dmutex demo tellers --help.`
}

// flags are those of all demonstrations.
type flags struct {
	Link    string        `default:"tcp" enum:"tcp,nats" help:"Network between the processes: tcp (loopback, free ports) or nats (starts a server unless --nats-url names one)."`
	NatsURL string        `name:"nats-url" placeholder:"URL" help:"Use this NATS server; with --link nats."`
	Timeout time.Duration `default:"30s" help:"Give up when nothing at all has happened for this long."`
	Trace   string        `placeholder:"DIR" help:"Record the trace of every node into DIR/ALGORITHM, a new directory; see trace draw."`
	JSON    bool          `name:"json" help:"Print the result as JSON, and nothing else, on standard output."`
}

func (f *flags) validate() error {
	switch {
	case f.NatsURL != "" && f.Link != "nats":
		return errors.New("--nats-url needs --link=nats")
	case f.Link == "nats" && tool.NATS == nil:
		return fmt.Errorf("--link=nats: %w", tool.ErrNoNATS)
	}
	return nil
}

// A finding is what a demonstration found out.
type finding interface {
	judge(err error) (ok bool) // err is why not every run was completed
	writeText(io.Writer)
}

// A verdict is the judgment on a whole demonstration.
type verdict struct {
	OK    bool   `json:"ok"` // all runs were completed, and all locks were right
	Error string `json:"error,omitempty"`
}

func newVerdict(err error) verdict {
	if err != nil {
		return verdict{Error: err.Error()}
	}
	return verdict{OK: true}
}

// demonstrate does one run after the other, each under an algorithm, and prints
// what they have found.
func (f *flags) demonstrate(con *tool.Console, p *tool.Progress, found finding, algorithms []catalog.Algorithm, run func(context.Context, catalog.Algorithm, *stage) error) error {
	ctx, stop := tool.Interruptible()
	defer stop()
	err := f.runAll(ctx, p, algorithms, run)
	p.Clear()
	ok := found.judge(err)
	if f.JSON {
		_ = tool.PrintJSON(con, found)
	} else {
		found.writeText(con)
	}
	if err == nil && !ok {
		return tool.ErrFailed
	}
	return err
}

func (f *flags) runAll(ctx context.Context, p *tool.Progress, algorithms []catalog.Algorithm, run func(context.Context, catalog.Algorithm, *stage) error) error {
	s := &stage{flags: f, url: f.NatsURL, progress: p}
	for _, a := range algorithms {
		if f.Trace != "" && a.New != nil {
			if _, err := tool.TraceDir(f.Trace, a.Name); err != nil {
				return err
			}
		}
	}
	defer func() {
		if s.stopServer != nil {
			s.stopServer()
		}
	}()
	if f.Link == "nats" {
		if err := s.reachNATS(); err != nil {
			return err
		}
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "dmutex-demo-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	for _, a := range algorithms {
		if err := run(ctx, a, s); err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	return nil
}

// A stage is what the groups of a demonstration share.
type stage struct {
	*flags
	url      string // of the NATS server, if there is one
	dir      string // for their files
	progress *tool.Progress

	stopServer func() // nil unless the NATS server is the demo's own
}

// serve starts a NATS server, again where it was if there was one.
func (s *stage) serve() (err error) {
	s.url, s.stopServer, err = tool.NATS.Serve(s.url)
	return err
}

// reachNATS starts a server unless there is one. A server that cannot be reached
// is reported here, before any run.
func (s *stage) reachNATS() error {
	if s.url == "" {
		if err := s.serve(); err != nil {
			return err
		}
	}
	_, disconnect, err := connect(&task{Link: "nats", NatsURL: s.url, Self: 1, Prefix: natsPrefix()})
	if err == nil {
		disconnect()
	}
	return err
}

// group returns a group that is to do a task under an algorithm, with an empty
// directory of this name for its files. It must be ended. A group that is traced must be
// the only one of its algorithm.
func (s *stage) group(t task, a catalog.Algorithm, name string, traced bool) (*group, error) {
	t.Algorithm, t.Link, t.NatsURL, t.Prefix = a.Name, s.Link, s.url, natsPrefix()
	t.Dir = filepath.Join(s.dir, name)
	if s.Trace != "" && traced {
		t.Trace = filepath.Join(s.Trace, a.Name)
	}
	return &group{task: t, timeout: s.Timeout, news: make(chan news), over: make(chan struct{})}, os.Mkdir(t.Dir, 0o700)
}

// network is the name of the link for people.
func network(link string) string { return strings.ToUpper(link) }
