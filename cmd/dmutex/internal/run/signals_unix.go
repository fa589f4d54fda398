//go:build unix

package run

import (
	"os"
	"os/signal"
	"syscall"
)

// ends are the signals that ask a process to end. others are those that end a process that does not expect them.
var (
	ends   = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
	others = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM}
)

// ignored has the signals that this process was started to ignore, as under nohup. A shell without job control starts
// what is in the background without SIGINT and SIGQUIT, and Go remembers only the first.
var ignored = func() map[os.Signal]bool {
	mask, is := ignoredMask(), make(map[os.Signal]bool)
	for sig := syscall.Signal(1); sig < 32; sig++ {
		is[sig] = signal.Ignored(sig) || mask&(1<<(sig-1)) != 0
	}
	if is[syscall.SIGINT] {
		is[syscall.SIGQUIT] = true
	}
	return is
}()

// notify is signal.Notify for those of the signals that are not ignored. The command ignores the same ones.
func notify(c chan<- os.Signal, signals ...os.Signal) {
	for _, sig := range signals {
		if ignored[sig] {
			signal.Ignore(sig)
		} else {
			signal.Notify(c, sig)
		}
	}
}
