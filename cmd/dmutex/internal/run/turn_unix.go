//go:build unix

package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/node"
)

const (
	lookAgain = 50 * time.Millisecond // at what sends no notice of a change
	patience  = 10 * time.Second      // before saying what the wait is for
)

// Run takes part in the group until the command has had its turn here.
func (c *Cmd) Run(con *tool.Console) error {
	r := &runner{Cmd: c, con: con, signals: make(chan os.Signal, 16)}
	r.connecting.Set(slog.LevelWarn)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(sig) { // as under nohup
			signal.Notify(r.signals, sig)
		}
	}
	defer signal.Stop(r.signals)
	// The reader of our output may go away. That must not kill us while we hold
	// the lock. Ignoring the signal would make the command ignore it as well.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	m, err := c.connect(r.log(&r.connecting))
	if err == nil {
		defer m.Close()
		r.node, err = node.Open(context.Background(), c.config(m, r.log(slog.LevelWarn)))
	}
	if err != nil {
		r.say("nothing was run: %v", err)
		return tool.Status(statusNoLock)
	}
	status := r.turn()
	r.leave()
	return tool.Status(status)
}

// A runner is one run.
type runner struct {
	*Cmd
	con     *tool.Console
	signals chan os.Signal
	node    *node.Node

	connecting slog.LevelVar // of the link's log
}

func (r *runner) log(level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewTextHandler(r.con.Err, &slog.HandlerOptions{Level: level}))
}

func (r *runner) say(format string, args ...any) {
	fmt.Fprintf(r.con.Err, "dmutex run: "+format+"\n", args...)
}

// untilSignal runs f with a context that ends with the next signal, and returns
// that as well, nil if none came.
func (r *runner) untilSignal(f func(context.Context) error) (os.Signal, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	select {
	case err := <-done:
		return nil, err
	case sig := <-r.signals:
		cancel()
		return sig, <-done
	}
}

// turn waits for the lock, runs the command and gives the lock back.
func (r *runner) turn() (status int) {
	defer time.AfterFunc(patience, func() {
		if missing := r.node.Status().View.Missing; len(missing) > 0 && r.Store == nil {
			r.say("waiting for members %v: start dmutex run there, again if it has crashed", missing)
		}
	}).Stop()
	var held *node.Held
	sig, err := r.untilSignal(func(ctx context.Context) (err error) {
		if err := r.node.Ready(ctx); err != nil {
			return err
		}
		r.connecting.Set(slog.LevelError) // members that have left cannot be reached, and need not be
		held, err = r.node.Mutex(r.Lock).Acquire(ctx)
		return err
	})
	if held != nil {
		defer func() { _ = held.Release() }() // it fails only if the lock is lost, which work reports
	}
	switch {
	case sig != nil:
		r.say("nothing was run: %v", sig)
		return statusSignal + int(sig.(syscall.Signal))
	case err != nil:
		if r.Store != nil && errors.Is(err, node.ErrConfig) {
			err = fmt.Errorf("%w: give the --lease that the others have, or use another record", err)
		}
		r.say("nothing was run: %v", err)
		return statusNoLock
	}
	return r.work(held)
}

// work runs the command under the lock.
func (r *runner) work(held *node.Held) (status int) {
	argv := r.command()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r.con.In, r.con.Out, r.con.Err
	if isTerminal(r.con.In) {
		cmd.Stdin = nil // a read from it would stop the command for good
	}
	cmd.Env = append(os.Environ(),
		fmt.Sprint("DMUTEX_FENCE=", held.Fence()),
		"DMUTEX_LOCK="+r.Lock,
		fmt.Sprint("DMUTEX_NODE=", r.node.Self()),
	)
	job, err := startJob(cmd)
	if err != nil {
		r.say("%v", err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return statusNotFound
		}
		return statusNotExecutable
	}
	job.wait(held.Context().Done(), r.signals, r.Grace)
	if err := held.Err(); err != nil {
		r.say("the command was ended: %v", err)
		return statusLost
	}
	if job.status.Signaled() {
		return statusSignal + int(job.status.Signal())
	}
	return job.status.ExitStatus()
}

// leave leaves the group, so that the others do not wait for this machine. A
// signal cuts that short, and so does the end of a lease, after which it has been
// excluded.
func (r *runner) leave() {
	if r.Store != nil {
		_, err := r.untilSignal(func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, r.lease())
			defer cancel()
			return r.node.Close(ctx)
		})
		if err != nil { // the node has logged it
			r.say("ended before the store had taken this machine out of the record: the next may have to wait for about one and a half leases")
		}
		return
	}
	defer time.AfterFunc(patience, func() {
		r.say("waiting for members %v before it leaves; a signal cuts that short", r.node.Status().View.Missing)
	}).Stop()
	if _, err := r.untilSignal(r.node.Close); err != nil { // the node has logged it
		r.say("ended before the group agreed: the others wait until dmutex run is started here again")
	}
}
