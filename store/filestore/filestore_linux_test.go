package filestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/filestore"
)

// If the lock file is removed, a Swap that waits for its lock waits for that of the new file instead.
func TestLockRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "group")
	waiter, other := open(t, path), open(t, path)
	old := filestore.Lock(t, other)
	swapped := make(chan error, 1)
	go func() {
		_, err := waiter.Swap(t.Context(), []byte("1"), "")
		swapped <- err
	}()
	await := func(files int) { // until this process has the lock file open so many times
		for n := 0; n < files; runtime.Gosched() {
			select {
			case err := <-swapped:
				require.Fail(t, "two have the lock", "%v", err)
			default:
			}
			n = 0
			open, err := os.ReadDir("/proc/self/fd")
			require.NoError(t, err)
			for _, fd := range open {
				if name, _ := os.Readlink(fmt.Sprint("/proc/self/fd/", fd.Name())); name == path+".lock" {
					n++
				}
			}
		}
	}
	await(2) // the holder's and the waiter's
	require.NoError(t, os.Remove(path+".lock"))
	holder := filestore.Lock(t, other)
	require.NoError(t, old.Close())
	await(2) // of the new file
	require.NoError(t, holder.Close())
	require.NoError(t, <-swapped)
}

// If the lock file is removed while a process is inside its Swap, another process can swap
// meanwhile. Then the first Swap fails, and the record is that of the second.
func TestLockRemovedInside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "group")
	first, second := open(t, path), open(t, path)
	rev, err := first.Swap(t.Context(), []byte("old"), "")
	require.NoError(t, err)
	filestore.BeforeSync(func() {
		require.NoError(t, os.Remove(path+".lock"))
		_, err := second.Swap(t.Context(), []byte("second"), rev)
		require.NoError(t, err)
	})
	_, err = first.Swap(t.Context(), []byte("first"), rev)
	require.ErrorContains(t, err, "group.lock was removed during a swap")
	value, _, err := first.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, "second", string(value))
}

// A process that waits for many lives has few threads, and learns of the end of each.
func TestFewThreads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	s := open(t, path).(store.Prover)
	threads := func() int {
		list, err := os.ReadDir("/proc/self/task")
		require.NoError(t, err)
		return len(list)
	}
	lives, names := make([]store.Life, 300), ""
	for i := range lives {
		var err error
		lives[i], err = s.Live(t.Context())
		require.NoError(t, err)
		names += lives[i].Name()
	}
	_, err := s.Swap(t.Context(), []byte(names), "")
	require.NoError(t, err)
	var over sync.WaitGroup
	before := threads()
	for _, l := range lives {
		over.Go(func() { require.NoError(t, s.Over(t.Context(), l.Name())) })
	}
	require.Eventually(t, func() bool { return filestore.Waits() == 64 }, time.Minute, time.Millisecond)
	t.Log(before, threads())
	// Those that do not wait look, and on a slow disk many are in a call of the system for a moment, each on a thread.
	require.Less(t, threads(), before+64+len(lives)/2)
	for _, l := range lives {
		require.NoError(t, l.Close())
	}
	over.Wait()
}

// A record is removed only from its last revision, with its lock file. Then a Swap from that revision fails.
func TestRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	s := open(t, path)
	remove := s.(interface {
		Remove(context.Context, store.Revision) error
	}).Remove
	rev, err := s.Swap(t.Context(), []byte("1"), "")
	require.NoError(t, err)
	require.ErrorIs(t, remove(t.Context(), "old"), store.ErrConflict)
	require.NoError(t, remove(t.Context(), rev))
	require.NoFileExists(t, path)
	require.NoFileExists(t, path+".lock")
	_, err = s.Swap(t.Context(), []byte("2"), rev)
	require.ErrorIs(t, err, store.ErrConflict)
	_, err = s.Swap(t.Context(), []byte("2"), "")
	require.NoError(t, err)
}

// No call keeps a file open.
func TestNothingStaysOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "group")
	s := open(t, path)
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(list)
	}
	before := files()
	rev := store.Revision("")
	for range 20 {
		var err error
		rev, err = s.Swap(t.Context(), []byte("a"), rev)
		require.NoError(t, err)
		_, _, err = s.Load(t.Context())
		require.NoError(t, err)
		_, err = s.Swap(t.Context(), []byte("a"), "old")
		require.ErrorIs(t, err, store.ErrConflict)
	}
	require.Less(t, files(), before+10, "other files of the process may come and go")
}
