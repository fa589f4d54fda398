// Package quicktest says whether tests are to be quick.
package quicktest

import (
	"os"
	"runtime/debug"
)

// The tests make millions of small values. So garbage is collected less often in them, unless GOGC says how often.
func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// On reports whether tests are to be quick: where neither CI is set, as it is for .ci/run, nor DMUTEX_LONG. Slow tests
// skip some of what they do then.
func On() bool { return os.Getenv("CI") == "" && os.Getenv("DMUTEX_LONG") == "" }
