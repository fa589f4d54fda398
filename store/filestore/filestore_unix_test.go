//go:build unix

package filestore_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/filestore"
	"github.com/dmutex/dmutex/store/storetest"
)

// Nothing that a symbolic link points to is written, created or taken for the record. The
// same holds for a pipe, which would keep a reader waiting.
func TestLinks(t *testing.T) {
	kinds := map[string]func(path, other string) error{
		"link":          func(path, other string) error { return os.Symlink(other, path) },
		"dangling link": func(path, other string) error { return os.Symlink(other+".none", path) },
		"link within":   func(path, other string) error { return os.Symlink(filepath.Base(path)+".none", path) },
		"pipe":          func(path, other string) error { return syscall.Mkfifo(path, 0o600) },
	}
	for name, make := range kinds {
		for _, suffix := range []string{"", ".lock", ".new"} {
			t.Run(name+suffix, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "group")
				other := filepath.Join(t.TempDir(), "other")
				s := open(t, path)
				require.NoError(t, os.RemoveAll(path+".lock"))
				require.NoError(t, os.WriteFile(other, []byte("precious"), 0o600))
				require.NoError(t, make(path+suffix, other))
				switch suffix {
				case "":
					storetest.Unusable(t, s, "")
				case ".lock":
					_, err := s.Swap(t.Context(), []byte("a"), "")
					require.ErrorIs(t, err, store.ErrUnusable)
				case ".new":
					require.NoError(t, increment(t.Context(), s))
				}
				if suffix != ".new" {
					_, err := filestore.Open(path)
					require.ErrorIs(t, err, store.ErrUnusable)
					require.ErrorContains(t, err, "is not a regular file")
				}
				content, err := os.ReadFile(other)
				require.NoError(t, err)
				require.Equal(t, "precious", string(content))
				require.NoFileExists(t, other+".none")
				require.NoFileExists(t, path+suffix+".none")
			})
		}
	}
}

// A link or a pipe in the place of a life's file is no proof, and nobody opens it.
func TestLifeLinks(t *testing.T) {
	path, other := filepath.Join(t.TempDir(), "group"), filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.WriteFile(other, []byte("precious"), 0o600))
	link, pipe := strings.Repeat("L", 26), strings.Repeat("P", 26)
	file := func(name string) string { return filepath.Join(filepath.Dir(path), ".lives", "group."+name) }
	require.NoError(t, os.Mkdir(filepath.Dir(file("")), 0o700))
	require.NoError(t, os.Symlink(other, file(link)))
	require.NoError(t, syscall.Mkfifo(file(pipe), 0o600))
	s := open(t, path).(store.Prover)
	for _, name := range []string{link, pipe} {
		require.ErrorIs(t, s.Over(t.Context(), name), store.ErrNoProof)
	}
	_, err := s.Living(t.Context())
	require.ErrorIs(t, err, store.ErrNoProof)
	l, err := s.Live(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.FileExists(t, other)
}

// A process that opens the record again and again, and gives up waiting for a life each time,
// keeps one thread for that life.
func TestOneThreadForALife(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	l, err := open(t, path).(store.Prover).Live(t.Context())
	require.NoError(t, err)
	waits := func(n int) {
		require.Eventually(t, func() bool { return filestore.Waits() == n }, time.Minute, time.Millisecond)
	}
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		require.ErrorIs(t, open(t, path).(store.Prover).Over(ctx, l.Name()), context.DeadlineExceeded)
		cancel()
	}
	waits(1)
	require.NoError(t, l.Close())
	waits(0)
	// What the goroutine of that thread has read, the next tests change. This Over comes after it, which waits does
	// not tell the race detector. It has seen that goroutine's answer, or finds the file of the life gone.
	if err := open(t, path).(store.Prover).Over(t.Context(), l.Name()); err != nil {
		require.ErrorIs(t, err, store.ErrNoProof)
	}
}

// A disk, a quota or a limit that takes no more is unusable at once, and a Swap leaves nothing on it.
func TestFull(t *testing.T) {
	for _, err := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		t.Run(err.Error(), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "group")
			s := open(t, path)
			filestore.Fail(t, "sync", &fs.PathError{Op: "write", Path: path, Err: err})
			_, failed := s.Swap(t.Context(), []byte("a"), "")
			require.ErrorIs(t, failed, store.ErrUnusable)
			require.ErrorIs(t, failed, err)
			require.NoFileExists(t, path+".new")
		})
	}
}
