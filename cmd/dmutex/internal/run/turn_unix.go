//go:build unix

package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/lock/semaphore"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/storelock"
)

const (
	lookAgain = 50 * time.Millisecond // at what sends no notice of a change
	speakUp   = 5 * time.Second       // of trouble that keeps the lock away
	reach     = 10 * time.Second      // how long --nonblock waits for a member to answer
)

// Run runs the command under the lock.
func (c *Cmd) Run(con *tool.Console) error {
	r := &runner{Cmd: c, con: con, signals: make(chan os.Signal, 16)}
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(sig) { // as under nohup
			signal.Notify(r.signals, sig)
		}
	}
	defer signal.Stop(r.signals)
	// The reader of our output may go away. That must not kill us while we hold
	// the lock. Ignoring the signal would make the command ignore it as well.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	door, stop, err := c.door()
	if err != nil {
		r.say("nothing was run: %v", err)
		return tool.Status(statusNoLock)
	}
	defer stop()
	if c.Store != nil && c.Store.Path != "" {
		defer tidy(c.Store.Path)
	}
	return tool.Status(r.turn(door))
}

// A runner is one run.
type runner struct {
	*Cmd
	con     *tool.Console
	signals chan os.Signal
}

func (r *runner) say(format string, args ...any) {
	fmt.Fprintf(r.con.Err, "dmutex run: "+format+"\n", args...)
}

// acquire waits for the lock. A signal, which it returns, ends the wait.
func (r *runner) acquire(d door) (held lock.Held, sig os.Signal, err error) {
	var trouble atomic.Pointer[hold.Trouble]
	ctx, cancel := context.WithCancel(hold.Watch(context.Background(), &trouble))
	defer cancel()
	switch {
	case r.Nonblock:
		ctx, cancel = context.WithTimeout(ctx, reach)
		defer cancel()
	case r.Wait != nil:
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*r.Wait*float64(time.Second)))
		defer cancel()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if r.Nonblock {
			held, err = d.TryAcquire(ctx)
		} else {
			defer r.queue(ctx)()
			held, err = d.Acquire(ctx)
		}
	}()
	look := time.NewTicker(speakUp)
	defer look.Stop()
	for {
		select {
		case <-done:
			return held, sig, err
		case sig = <-r.signals:
			cancel()
			<-done
			return held, sig, err
		case <-look.C:
			t := trouble.Load()
			if t == nil {
				break
			}
			if err := t.Err(); err != nil && !errors.Is(err, lock.ErrBusy) {
				r.say("still waiting: %v", err)
				look.Stop()
			}
		}
	}
}

// queue lets the waiting processes of one machine look at the record in turns, so that a release
// does not wake all of them. It is no more than a courtesy: a process that is stopped while it
// has its turn keeps the others for a lease, and for half of what is left of their --wait at most.
func (r *runner) queue(ctx context.Context) (leave func()) {
	if r.Store == nil || r.Store.Path == "" || r.Permits > 1 {
		return func() {}
	}
	path := filepath.Join(r.Store.Path, recordName(r.Lock)+".queue")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return func() {}
	}
	turn := make(chan struct{})
	go func() {
		defer close(turn)
		for unix.Flock(int(f.Fd()), unix.LOCK_EX) == unix.EINTR {
		}
	}()
	patience := r.Lease
	if end, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(end)/2) // else it would give up without having looked
	}
	select {
	case <-turn:
	case <-time.After(patience):
	case <-ctx.Done():
	}
	return func() { f.Close() }
}

// turn waits for the lock, runs the command and gives the lock back.
func (r *runner) turn(d door) (status int) {
	held, sig, err := r.acquire(d)
	if held != nil {
		defer func() { _ = held.Release() }() // it fails only if the lock is lost, which work reports
	}
	switch {
	case sig != nil:
		r.say("nothing was run: %v", sig)
		return statusSignal + int(sig.(syscall.Signal))
	case errors.Is(err, lock.ErrBusy):
		switch { // otherwise say nothing, as flock
		case !r.Nonblock:
			r.say("nothing was run: %v; it was not free within --wait=%v", err, *r.Wait)
		case errors.Is(err, store.ErrNoProof):
			r.say("nothing was run: %v; see --wait", err)
		}
		return r.Code
	case err != nil:
		r.say("nothing was run: %v", err)
		return statusNoLock
	}
	return r.work(held)
}

func (r *runner) work(held lock.Held) (status int) {
	permit := 0
	if p, ok := held.(*semaphore.Permit); ok {
		held, permit = p.Held, p.Number
	}
	cmd := exec.Command(r.Command[0], r.Command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r.con.In, r.con.Out, r.con.Err
	if isTerminal(r.con.In) {
		cmd.Stdin = nil // a read from it would stop the command for good
	}
	cmd.Env = append(os.Environ(),
		fmt.Sprint("DMUTEX_FENCE=", held.Fence()),
		"DMUTEX_LOCK="+r.Lock,
		fmt.Sprint("DMUTEX_PERMIT=", permit),
	)
	// If this process is killed, the command keeps the lock by the file, or dies as well. The
	// system kills it when the thread that has started it ends, unless it has changed its user: then
	// the keeper does.
	cmd.SysProcAttr = new(syscall.SysProcAttr)
	keep := func(int) {}
	if file := storelock.File(held); file != nil {
		cmd.ExtraFiles = append(inherited(), file)
	} else {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		dieWithParent(cmd.SysProcAttr)
		var release func()
		keep, release = startKeeper()
		defer release()
	}
	job, err := startJob(cmd)
	if err == nil {
		keep(job.group)
	}
	runtime.KeepAlive(cmd) // its files would be closed
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
