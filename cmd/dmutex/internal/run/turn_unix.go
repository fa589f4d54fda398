//go:build unix

package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/lock/semaphore"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/filestore"
	"github.com/dmutex/dmutex/store/storelock"
)

const (
	lookAgain = 50 * time.Millisecond // at what sends no notice of a change
	speakUp   = 2 * time.Second       // of trouble that keeps the lock away
	reach     = 10 * time.Second      // how long --nonblock waits for a member to answer
	lastLook  = time.Second           // before the end of --wait

	gather        = 250 * time.Millisecond // how long a signal to all processes takes to reach us after others
	heardFirst    = time.Second            // and others before us
	releaseAtOnce = 500 * time.Millisecond // signals in this time do not give a release up: some come twice
)

// Run runs the command under the lock.
func (c *Cmd) Run(con *tool.Console) error {
	r := &runner{Cmd: c, con: con, signals: make(chan os.Signal, 16), refused: make(chan error, 1)}
	notify(r.signals, append(ends, others...)...)
	defer signal.Stop(r.signals)
	// The reader of our output may go away. That must not kill us while we hold
	// the lock. Ignoring the signal would make the command ignore it as well.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	var door door
	var stop func()
	var err error
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		door, stop, err = c.door(r.refuse)
	}()
	select {
	case <-opened:
	case sig := <-r.signals: // it ends the process, and the connections with it
		r.say("nothing was run: %v", sig)
		return tool.Died{Signal: sig.(syscall.Signal)}
	}
	if err != nil {
		r.say("nothing was run: %v", err)
		return tool.Status(statusNoLock)
	}
	result := r.turn(door)
	r.finish(stop)
	return result
}

// A runner is one run.
type runner struct {
	*Cmd
	con     *tool.Console
	signals chan os.Signal
	refused chan error      // why there is no way to the group, if waiting does not mend that
	told    bool            // a signal that asks to end has come
	waiting <-chan struct{} // closed when the call for the lock has returned
	held    lock.Held       // what it returned, also after a signal
	ran     bool            // the command
}

// refuse ends the wait for the lock.
func (r *runner) refuse(err error) {
	select {
	case r.refused <- err:
	default:
	}
}

// finish gives the lock back, also one that was granted after a signal has ended the wait, and closes the connections. A
// second signal that asks to end gives that up, if it was not done at once.
func (r *runner) finish(stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-r.waiting
		if r.held != nil {
			r.release()
		}
		stop()
		if r.Store != nil && r.Store.Path != "" {
			tidy(r.Store.Path)
		}
	}()
	var atOnce <-chan time.Time
	begin := time.Now()
	for {
		select {
		case <-done:
			return
		case sig := <-r.signals:
			switch {
			case !slices.Contains(ends, sig):
			case r.told:
				atOnce = time.After(releaseAtOnce - time.Since(begin))
			case r.ran:
				r.told = true
				r.say("%v: the lock is being released; a second signal gives up", sig)
			default:
				r.told = true
			}
		case <-atOnce:
			if r.ran {
				r.say("gave up: the release of the lock is not confirmed; without it others get the lock as if this machine had crashed")
			} else {
				r.say("gave up: nobody has said whether the lock was granted; if it was, others get the lock as if this machine had crashed")
			}
			return
		}
	}
}

// release gives the lock back. It fails if the lock is lost, which work reports, or if the store could not be told.
func (r *runner) release() {
	if r.held.Release() != nil {
		return
	}
	held := r.held
	if p, ok := held.(*semaphore.Permit); ok {
		held = p.Held
	}
	if err := storelock.Unreleased(held); err != nil {
		r.say("%v", err)
	}
}

func (r *runner) say(format string, args ...any) {
	fmt.Fprintf(r.con.Err, "dmutex run: "+format+"\n", args...)
}

// acquire waits for the lock, which it sets in held. A signal, which it returns, ends the wait. Then, finish waits for the rest.
func (r *runner) acquire(d door) (sig os.Signal, err error) {
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
	r.waiting = done
	var failed error
	go func() {
		defer close(done)
		if r.Nonblock {
			r.held, failed = d.TryAcquire(ctx)
		} else {
			var leave func()
			r.held, leave = r.queue(ctx, d)
			defer leave()
			if r.held == nil {
				r.held, failed = d.Acquire(ctx)
			}
		}
	}()
	look := time.NewTicker(speakUp)
	defer look.Stop()
	for {
		select {
		case <-done:
			return nil, failed
		case sig := <-r.signals:
			return sig, nil
		case err := <-r.refused:
			return nil, err
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
// does not wake all of them, however long the hold lasts. It returns when it is this one's turn. It is no more than a
// courtesy: if nobody changes the record for a lease, as the holder does, and the process that has its turn, a process that waits
// tries the lock, which it returns if it was granted. So one that is stopped while it has its turn delays the
// others, and does not keep them. Near the end of their --wait they all look, so that they can tell who has the lock.
func (r *runner) queue(ctx context.Context, d door) (held lock.Held, leave func()) {
	if r.Store == nil || r.Store.Path == "" || r.Permits > 1 {
		return nil, func() {}
	}
	path := filepath.Join(r.Store.Path, tool.RecordName(r.Lock))
	f, err := os.OpenFile(path+".queue", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, func() {}
	}
	fd, left := int(f.Fd()), new(atomic.Bool)
	leave = func() { left.Store(true); f.Close() }
	record, err := filestore.Open(path)
	if err != nil {
		return nil, leave
	}
	turn := make(chan struct{})
	go func() {
		defer close(turn)
		for !left.Load() && unix.Flock(fd, unix.LOCK_EX) == unix.EINTR {
		}
	}()
	var last <-chan time.Time
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		last = time.After(left - min(lastLook, left/2))
	}
	_, seen, err := record.Load(ctx)
	for err == nil {
		select {
		case <-turn:
			return nil, leave
		case <-last:
			return nil, leave
		case <-ctx.Done():
			return nil, leave
		case <-time.After(r.Lease + rand.N(r.Lease)/2): // not all at once
		}
		before := seen
		if _, seen, err = record.Load(ctx); err != nil || seen != before {
			continue
		}
		held, failed := d.TryAcquire(ctx)
		if failed == nil {
			return held, leave
		}
		if !errors.Is(failed, lock.ErrBusy) || errors.Is(failed, store.ErrNoProof) { // only a wait replaces the holder
			break
		}
	}
	return nil, leave
}

// turn waits for the lock, and runs the command.
func (r *runner) turn(d door) error {
	sig, err := r.acquire(d)
	switch {
	case sig != nil:
		r.told = slices.Contains(ends, sig)
		r.say("nothing was run: %v", sig)
		return tool.Died{Signal: sig.(syscall.Signal)}
	case errors.Is(err, lock.ErrBusy):
		switch { // otherwise say nothing, as flock
		case !r.Nonblock:
			r.say("nothing was run: %v; it was not free within --wait=%v", err, *r.Wait)
		case errors.Is(err, store.ErrNoProof):
			r.say("nothing was run: %v; see --wait", err)
		}
		return tool.Status(r.Code)
	case err != nil:
		r.say("nothing was run: %v", err)
		return tool.Status(statusNoLock)
	}
	r.ran = true
	return r.work(r.held)
}

func (r *runner) work(held lock.Held) error {
	permit := 0
	if p, ok := held.(*semaphore.Permit); ok {
		held, permit = p.Held, p.Number
	}
	cmd := exec.Command(r.Command[0], r.Command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r.con.In, r.con.Out, r.con.Err
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
	unit := startUnit()
	defer unit.dismiss()
	// A job of a shell that is alone in the foreground gives the terminal to its command at once, since programs look who
	// has it. Otherwise a script, or a pager at the end of a pipe, may be using it.
	front := os.Getpid() == syscall.Getpgrp() && isTerminal(r.con.In) && isTerminal(r.con.Out)
	if err := held.Err(); err != nil { // this process, or the machine, has slept since the grant
		r.say("nothing was run: %v", err)
		return tool.Status(statusNoLock)
	}
	job, err := startJob(cmd, front)
	if err == nil {
		keep(job.group)
	}
	runtime.KeepAlive(cmd) // its files would be closed
	if err != nil {
		r.say("%v", err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return tool.Status(statusNotFound)
		}
		return tool.Status(statusNotExecutable)
	}
	job.unit, job.grace, job.say = unit, r.Grace, r.say
	job.wait(held, r.signals)
	r.told = job.told
	if err := held.Err(); err != nil {
		r.say("the command was ended: %v", err)
		return tool.Status(statusLost)
	}
	if !job.status.Signaled() {
		return tool.Status(job.status.ExitStatus())
	}
	sig := job.status.Signal()
	return tool.Died{Signal: sig, Group: job.fronted && (sig == syscall.SIGINT || sig == syscall.SIGQUIT)}
}
