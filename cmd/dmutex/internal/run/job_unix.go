//go:build unix

package run

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmutex/dmutex/lock"
)

// A job is a command that is started in a process group of its own, with all the
// processes of that group. One goroutine both waits for it and signals it, so a
// signal never goes to the number of a process that has ended.
//
// For the terminal a job is what a job is to a shell. Its group gets the terminal when it needs it and ours has it, and
// when it stops, we stop.
type job struct {
	group   int // its number, and that of the command
	ended   bool
	status  syscall.WaitStatus // of the command, once it has ended
	stopped syscall.Signal     // what has stopped the command, until we have followed it
	kill    <-chan time.Time   // when to send SIGKILL, once the job has to end

	alone   bool // the signal that stops it has stopped our group, too
	told    bool // it was passed a signal that ends commands
	fronted bool // it had the terminal when it ended

	terminal  *terminal
	control   chan os.Signal // what the terminal and shells tell our group
	continued chan os.Signal // SIGCONT
	unit      *unit
	grace     time.Duration
	say       func(format string, args ...any)
}

// startJob starts the command. front says to give it the terminal at once, if that is ours. The error is that of
// exec.Cmd.Start.
func startJob(cmd *exec.Cmd, front bool) (*job, error) {
	adopt()
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	j := &job{
		group: cmd.Process.Pid, terminal: openTerminal(),
		control: make(chan os.Signal, 16), continued: make(chan os.Signal, 1),
	}
	_ = cmd.Process.Release() // reap waits for it
	notify(j.control, append(stops, syscall.SIGWINCH)...)
	signal.Notify(j.continued, syscall.SIGCONT)
	if front && j.terminal.foreground() == syscall.Getpgrp() {
		j.give(j.group)
	}
	return j, nil
}

// wait passes signals on until nothing is left of the job. When the command has
// ended, or when the lock is lost, what is left gets SIGTERM, and after the grace
// SIGKILL.
func (j *job) wait(held lock.Held, signals <-chan os.Signal) {
	defer func() {
		signal.Stop(j.control)
		signal.Stop(j.continued)
		j.terminal.close()
	}()
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)
	lost := held.Context().Done()
	for !j.reap() {
		alone, undecided := j.unit.decide()
		for _, sig := range alone {
			j.signal(sig)
		}
		if sig := j.stopped; sig != 0 {
			j.stopped = 0
			j.follow(sig, held)
		}
		var look <-chan time.Time
		if j.ended {
			j.end()
			look = time.After(lookAgain) // the rest may be children of another process, which alone gets a signal
		}
		select {
		case sig := <-signals:
			ending := slices.Contains(ends, sig)
			j.told = j.told || ending
			switch {
			case j.unit.await(sig):
			case ending:
				j.signal(sig.(syscall.Signal))
			default:
				j.send(sig.(syscall.Signal))
			}
		case sig := <-j.control:
			j.obey(sig.(syscall.Signal))
		case <-j.continued:
			if held.Err() == nil { // else it continues with a SIGTERM
				j.send(syscall.SIGCONT)
			}
		case <-lost:
			lost = nil
			j.end()
		case <-j.kill:
			j.signal(syscall.SIGKILL)
		case <-children:
		case <-look:
		case sig := <-j.unit.says:
			j.unit.hear(sig)
		case <-undecided:
		}
	}
	if j.fronted = j.terminal.foreground() == j.group; j.fronted {
		j.give(syscall.Getpgrp())
	}
}

// end lets the job end.
func (j *job) end() {
	if j.kill == nil {
		j.kill = time.After(j.grace)
		j.signal(syscall.SIGTERM)
	}
}

// give gives the terminal to a process group. A process in the background is stopped when it does so, unless it ignores
// SIGTTOU.
func (j *job) give(group int) {
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(j.terminal.fd, unix.TIOCSPGRP, group)
	notify(j.control, syscall.SIGTTOU)
}

// stops are the signals of a terminal, and of shells, that stop a job.
var stops = []os.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}

// obey does what a signal of the terminal to our own group asks for.
func (j *job) obey(sig syscall.Signal) {
	switch {
	case sig == syscall.SIGTSTP:
		j.alone = true
		j.send(sig)
	case sig == syscall.SIGWINCH:
		j.send(sig)
	case j.terminal.foreground() == j.group: // another process of our group needs the terminal, such as a pager
		j.give(syscall.Getpgrp())
		_ = syscall.Kill(0, syscall.SIGCONT)
	default: // a process of our group does, and has stopped the group, which has no terminal
		j.alone = true
		j.send(sig)
	}
}

// follow gives the job that a signal has stopped what it needs, or stops this process as well, until a shell continues
// it. A session or a lease may run out then, so nothing of the job may go on meanwhile.
func (j *job) follow(sig syscall.Signal, held lock.Held) {
	alone := j.alone
	j.alone = false
	ours, front := syscall.Getpgrp(), j.terminal.foreground()
	needs := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
	switch {
	case needs && (front == ours || front == j.group):
		j.give(j.group)
		j.send(syscall.SIGCONT)
		return
	case j.kill != nil, sig == syscall.SIGSTOP && front != j.group: // somebody has stopped the command, and not its job
		return
	}
	j.send(syscall.SIGSTOP) // also those that do not heed sig
	if front == j.group {
		j.give(ours)
	}
	switch {
	case !orphaned():
		if !alone { // our group has to stop, as the terminal would have done it
			signal.Ignore(stops...)
			if sig == syscall.SIGSTOP {
				sig = syscall.SIGTSTP // SIGSTOP would also stop those that prepare for it
			}
			_ = syscall.Kill(0, sig)
			notify(j.control, stops...)
		}
		j.pause()
	case needs:
		j.say("the command needs the terminal, which another job has, and no shell can give it: the command is ended")
		j.end()
		return
	}
	if held.Err() != nil {
		return // it continues with a SIGTERM
	}
	if (needs || front == j.group) && j.terminal.foreground() == ours {
		j.give(j.group)
	}
	j.send(syscall.SIGCONT)
}

// pause stops this process until a shell continues it.
func (j *job) pause() {
	select {
	case <-j.continued: // one that came before the stop
	default:
	}
	stopSelf() // by SIGSTOP: Go has no way back to what the others do by default
	<-j.continued
}

// reap collects all children that have ended, also orphans that have left the group, and reports whether
// the command has ended and nothing is left of its group.
func (j *job) reap() (gone bool) {
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WUNTRACED, nil); {
		case err == syscall.EINTR:
		case err != nil || pid == 0: // no other child has ended
			return j.ended && syscall.Kill(-j.group, 0) == syscall.ESRCH
		case pid == j.group && status.Stopped():
			j.stopped = status.StopSignal()
		case pid == j.group:
			j.ended, j.status, j.stopped = true, status, 0
		default:
			j.unit.ended(pid, status)
		}
	}
}

// signal sends a signal to all processes of the job, and continues the stopped
// ones so that they notice it.
func (j *job) signal(sig syscall.Signal) {
	j.send(sig)
	if sig != syscall.SIGKILL {
		j.send(syscall.SIGCONT)
	}
}

// send sends a signal to all processes of the job.
func (j *job) send(sig syscall.Signal) {
	_ = syscall.Kill(-j.group, sig)
	if in, err := syscall.Getpgid(j.group); !j.ended && err == nil && in != j.group {
		_ = syscall.Kill(j.group, sig) // the command has left its group
	}
}

// inherited returns copies of the files that this process has inherited at the numbers from 3 on, up to the
// first that is free: those of flock and of other runs. The command inherits them at the same numbers.
func inherited() (files []*os.File) {
	for fd := 3; ; fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 { // Go has opened it
			return files
		}
		copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return files
		}
		files = append(files, os.NewFile(uintptr(copied), ""))
	}
}

// startKeeper starts a shell that waits for the end of this process, and then kills a process group: that of
// keep. release ends the shell first. It has a session of its own, so that no signal to ours ends it.
func startKeeper() (keep func(group int), release func()) {
	const wait = `trap "" HUP INT QUIT TERM; read -r group || exit; read -r released || kill -9 "-$group"`
	cmd := exec.Command("/bin/sh", "-c", wait)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil { // a system without a shell
		return func(int) {}, func() {}
	}
	keep = func(group int) { fmt.Fprintln(in, group) }
	release = func() {
		fmt.Fprint(in, "\n\n")
		_ = in.Close()
		_ = cmd.Wait()
	}
	return keep, release
}

// A unit tells a signal to all processes of a unit of systemd, which the job has already, from one to this process alone. It
// has a witness: a process outside of our process group and of that of the job, which says what it gets.
type unit struct {
	patience time.Duration // how long a signal takes to reach all
	witness  int           // the number of the process, 0 if there is none
	says     <-chan syscall.Signal
	heard    []arrival // signals that the witness got, and we have not yet
	came     []arrival // and the other way around
	dismiss  func()    // ends the witness, as our end does
}

type arrival struct {
	sig syscall.Signal
	at  time.Time
}

// startUnit starts the witness if systemd has started this process or one that it descends from.
func startUnit() *unit {
	u := &unit{patience: gather, dismiss: func() {}}
	if os.Getenv("INVOCATION_ID") == "" {
		return u
	}
	const witness = `trap "echo TERM" TERM; trap "echo HUP" HUP; { trap "" TERM HUP; read end; } <&3 & while kill -0 $!; do wait $!; done 2>/dev/null`
	cmd := exec.Command("/bin/sh", "-c", witness)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	end, left, err := os.Pipe()
	if err != nil {
		return u
	}
	defer end.Close()
	cmd.ExtraFiles = []*os.File{end}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil { // a system without a shell
		left.Close()
		return u
	}
	says := make(chan syscall.Signal, 16)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			says <- unix.SignalNum("SIG" + lines.Text())
		}
	}()
	u.witness, u.says, u.dismiss = cmd.Process.Pid, says, func() { left.Close() }
	_ = cmd.Process.Release() // reap waits for it
	return u
}

// ended takes note of a child that has ended. Without a witness, signals are passed on at once.
func (u *unit) ended(pid int, status syscall.WaitStatus) {
	if pid == u.witness {
		u.witness = 0
		if status.Signaled() { // before it could say so
			u.hear(status.Signal())
		}
	}
}

// hear takes note of what the witness got.
func (u *unit) hear(sig syscall.Signal) { u.heard = append(u.heard, arrival{sig, time.Now()}) }

// await reports whether a signal to us may have reached all. decide tells then.
func (u *unit) await(sig os.Signal) bool {
	if sig != syscall.SIGTERM && sig != syscall.SIGHUP || u.witness == 0 && len(u.heard) == 0 {
		return false
	}
	u.came = append(u.came, arrival{sig.(syscall.Signal), time.Now()})
	return true
}

// decide returns the signals that have come to us alone, and when to ask again, if that is not known of others yet.
func (u *unit) decide() (alone []syscall.Signal, again <-chan time.Time) {
	u.heard = slices.DeleteFunc(u.heard, func(h arrival) bool { return time.Since(h.at) > heardFirst })
	var open []arrival
	for _, c := range u.came {
		same := func(h arrival) bool { return h.sig == c.sig }
		switch i := slices.IndexFunc(u.heard, same); {
		case i >= 0:
			u.heard = slices.Delete(u.heard, i, i+1)
		case time.Since(c.at) >= u.patience:
			alone = append(alone, c.sig)
		default:
			open = append(open, c)
		}
	}
	if u.came = open; len(open) > 0 {
		again = time.After(time.Until(open[0].at.Add(u.patience)))
	}
	return alone, again
}
