// Package quicktest says whether tests are to be quick.
package quicktest

import "os"

// On reports whether tests are to be quick: where neither CI is set, as it is for .ci/run, nor DMUTEX_LONG. Slow tests
// skip some of what they do then.
func On() bool { return os.Getenv("CI") == "" && os.Getenv("DMUTEX_LONG") == "" }
