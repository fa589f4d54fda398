//go:build unix

package filestore_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/store"
)

// A swap keeps the mode of the record, and one by root the owner, too. New files belong to the owner of the
// directory, and to its group if that may write in it.
func TestOwner(t *testing.T) {
	for _, shared := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "dir")
		owner, mode := os.Getuid(), fs.FileMode(0o600)
		require.NoError(t, os.Mkdir(dir, 0o700))
		if owner == 0 {
			owner = 4321
			require.NoError(t, os.Chown(dir, owner, owner))
		}
		if shared {
			require.NoError(t, os.Chmod(dir, 0o770))
			mode = 0o660
		}
		path := filepath.Join(dir, "group")
		s := open(t, path).(store.Prover)
		require.NoError(t, increment(t.Context(), s))
		l, err := s.Live(t.Context())
		require.NoError(t, err)
		like := func(path string, mode fs.FileMode) {
			t.Helper()
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.EqualValues(t, owner, info.Sys().(*syscall.Stat_t).Uid)
			require.Equal(t, mode, info.Mode().Perm(), path)
		}
		like(path, mode)
		like(path+".lock", mode)
		like(filepath.Join(dir, ".lives", "group."+l.Name()), mode)
		like(filepath.Join(dir, ".lives"), mode|0o100|mode&0o020>>1)
		require.NoError(t, l.Close())

		require.NoError(t, os.Chmod(path, 0o644))
		if owner = os.Getuid(); owner == 0 {
			owner = 1234
			require.NoError(t, os.Chown(path, owner, owner))
		}
		require.NoError(t, increment(t.Context(), s))
		like(path, 0o644)
	}
}
