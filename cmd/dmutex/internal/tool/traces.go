package tool

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/dmutex/dmutex"
)

// TraceDir makes a directory for the traces of one run, in which there must be
// no files yet.
func TraceDir(elements ...string) (string, error) {
	dir := filepath.Join(elements...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	old, err := os.ReadDir(dir)
	if err == nil && len(old) > 0 {
		err = fmt.Errorf("%s is not empty: traces of different runs do not mix, choose another directory", dir)
	}
	return dir, err
}

// TraceFile is the name of a node's trace.
func TraceFile(dir string, id dmutex.NodeID) string {
	return filepath.Join(dir, fmt.Sprintf("%d.trace", id))
}
