package tool

import (
	"errors"
	"fmt"
	"io/fs"
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

// CreateTrace creates the file for a trace of a node. If the node was started before, it is
// another one.
func CreateTrace(dir string, id dmutex.NodeID) (*os.File, error) {
	name := fmt.Sprintf("%d.trace", id)
	for n := 2; ; n++ {
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return file, err
		}
		name = fmt.Sprintf("%d-%d.trace", id, n)
	}
}
