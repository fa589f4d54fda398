//go:build unix

package run

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A job is a command that is started in a process group of its own, with all the
// processes of that group. One goroutine both waits for it and signals it, so a
// signal never goes to the number of a process that has ended.
type job struct {
	group  int // its number, and that of the command
	ended  bool
	status syscall.WaitStatus // of the command, once it has ended
}

// startJob starts the command. The error is that of exec.Cmd.Start.
func startJob(cmd *exec.Cmd) (*job, error) {
	adopt()
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	j := &job{group: cmd.Process.Pid}
	_ = cmd.Process.Release() // reap waits for it
	return j, nil
}

// wait passes signals on until nothing is left of the job. When the command has
// ended, or when lost is closed, what is left gets SIGTERM, and after the grace
// SIGKILL.
func (j *job) wait(lost <-chan struct{}, signals <-chan os.Signal, grace time.Duration) {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)
	var kill <-chan time.Time
	end := func() {
		if kill == nil {
			kill = time.After(grace)
			j.signal(syscall.SIGTERM)
		}
	}
	for !j.reap() {
		var look <-chan time.Time
		if j.ended {
			end()
			look = time.After(lookAgain) // the rest may be children of another process, which alone gets a signal
		}
		select {
		case sig := <-signals:
			j.signal(sig.(syscall.Signal))
		case <-lost:
			lost = nil
			end()
		case <-kill:
			j.signal(syscall.SIGKILL)
		case <-children:
		case <-look:
		}
	}
}

// reap collects all children that have ended, also orphans that have left the group, and reports whether
// the command has ended and nothing is left of its group.
func (j *job) reap() (gone bool) {
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); {
		case err == syscall.EINTR:
		case err != nil || pid == 0: // no other child has ended
			return j.ended && syscall.Kill(-j.group, 0) == syscall.ESRCH
		case pid == j.group:
			j.ended, j.status = true, status
		}
	}
}

// signal sends a signal to all processes of the job, and continues the stopped
// ones so that they notice it.
func (j *job) signal(sig syscall.Signal) {
	to := []int{-j.group}
	if in, err := syscall.Getpgid(j.group); !j.ended && err == nil && in != j.group {
		to = append(to, j.group) // the command has left its group
	}
	for _, pid := range to {
		_ = syscall.Kill(pid, sig)
		if sig != syscall.SIGKILL {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
}

// isTerminal reports whether in is the terminal that controls this process.
func isTerminal(in io.Reader) bool {
	file, ok := in.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetInt(int(file.Fd()), unix.TIOCGPGRP)
	return err == nil
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
