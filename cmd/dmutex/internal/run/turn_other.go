//go:build !unix

package run

import (
	"fmt"
	"runtime"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// Run refuses: there are no process groups here.
func (*Cmd) Run(con *tool.Console) error {
	fmt.Fprintln(con.Err, "dmutex run: nothing was run: it needs the process groups of Unix, which this system does not have:", runtime.GOOS)
	return tool.Status(statusNoLock)
}
