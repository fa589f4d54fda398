//go:build unix

package tool

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit ends this process with the status that Main has returned, or by the signal that ended what its command ran.
//
// The Go runtime handles signals, and offers no way to die of most of them. So a shell replaces this process, and
// does. Without one, and as the first process of a container, which no signal of its own ends, the exit status is 128
// and the signal's number, as a shell says.
func Exit(status int, con *Console) {
	if sig := con.died.Signal; sig != 0 {
		if con.died.Group {
			signal.Notify(make(chan os.Signal, 1), sig) // we die of it below
			_ = syscall.Kill(0, sig)
		}
		var core unix.Rlimit // that of the command is enough
		if unix.Getrlimit(unix.RLIMIT_CORE, &core) == nil {
			core.Cur = min(core.Max, 1) // 0 would still start a program that the system may have for it
			_ = unix.Setrlimit(unix.RLIMIT_CORE, &core)
		}
		_ = syscall.Exec("/bin/sh", []string{"sh", "-c", `kill "-$0" $$; exit "$1"`, fmt.Sprint(int(sig)), fmt.Sprint(status)}, nil)
	}
	os.Exit(status)
}
