package filestore

import (
	"io"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/store"
)

// Lock takes the lock of the file, as a process does in a Swap.
func Lock(t *testing.T, file store.Store) io.Closer {
	s := file.(*record)
	dir, err := os.OpenRoot(s.dir)
	require.NoError(t, err)
	defer dir.Close()
	lock, err := s.lock(t.Context(), dir, s.name+".lock")
	require.NoError(t, err)
	return lock
}

// Fail makes a step on the file system fail, until the test ends.
func Fail(t *testing.T, step string, err error) {
	before := [...]any{readAll, syncFile, rename, syncDir, isLocal}
	t.Cleanup(func() {
		readAll, syncFile = before[0].(func(io.Reader) ([]byte, error)), before[1].(func(*os.File) error)
		rename, syncDir = before[2].(func(*os.Root, string, string) error), before[3].(func(*os.Root) error)
		isLocal = before[4].(func(*os.Root) (bool, error))
	})
	switch step {
	case "read":
		readAll = func(io.Reader) ([]byte, error) { return nil, err }
	case "sync":
		syncFile = func(*os.File) error { return err }
	case "rename":
		rename = func(*os.Root, string, string) error { return err }
	case "sync the directory":
		syncDir = func(*os.Root) error { return err }
	case "look at the file system":
		isLocal = func(*os.Root) (bool, error) { return false, err }
	}
}

// StickReads makes reads wait until the channel is closed, and counts them.
func StickReads(t *testing.T, until <-chan struct{}) *atomic.Int32 {
	read := readAll
	t.Cleanup(func() { readAll = read })
	var reads atomic.Int32
	readAll = func(r io.Reader) ([]byte, error) {
		reads.Add(1)
		<-until
		return read(r)
	}
	return &reads
}

// AfterRead runs f after the next read, before its caller knows what was read.
func AfterRead(f func()) {
	before := readAll
	readAll = func(r io.Reader) ([]byte, error) {
		readAll = before
		content, err := readAll(r)
		f()
		return content, err
	}
}

// SpellOtherwise makes directories list their files under other names, until the test ends. The
// original names still open the files, as on a file system that ignores case.
func SpellOtherwise(t *testing.T, spell func(name string) string) {
	before := list
	t.Cleanup(func() { list = before })
	list = func(dir *os.File, n int) ([]string, error) {
		names, err := before(dir, n)
		for i := range names {
			names[i] = spell(names[i])
		}
		return names, err
	}
}

// BeforeSync runs f in the middle of the next Swap, before it syncs what it has written.
func BeforeSync(f func()) {
	before := syncFile
	syncFile = func(file *os.File) error {
		syncFile = before
		f()
		return syncFile(file)
	}
}

// Waits returns how many threads wait for the ends of lives.
func Waits() int { return len(threads) }
