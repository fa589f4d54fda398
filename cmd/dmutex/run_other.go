//go:build !unix

package main

import (
	"fmt"
	"runtime"
)

// Run refuses: there are no process groups here.
func (*runCmd) Run(con *console) error {
	fmt.Fprintln(con.err, "dmutex run: nothing was run: it needs the process groups of Unix, which there are not on", runtime.GOOS)
	return commandStatus(statusNoLock)
}
