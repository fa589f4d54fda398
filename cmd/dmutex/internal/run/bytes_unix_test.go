//go:build unix

package run

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/store/filestore"
	"github.com/dmutex/dmutex/store/storelock"
)

// notUTF8 has a byte of each kind that is not UTF-8: a letter of another encoding, one that continues nothing, a
// surrogate and one that never occurs.
const notUTF8 = "caf\xe9 \x80 \xed\xa0\x80 \xff"

// The command, the name of the lock and the directory have the bytes that the line or the environment has.
func TestBytesThatAreNotUTF8(t *testing.T) {
	if runtime.GOOS == "darwin" {
		t.Skip("the file system takes only UTF-8")
	}
	dir := filepath.Join(t.TempDir(), notUTF8)
	words := []string{"sh", "-c", `printf '%s\n' "$0" "$1" "$DMUTEX_LOCK"`, notUTF8, "a,b\\,\xe9"}
	for where, flags := range map[string][]string{
		"line":        {"--store=" + dir, "--lock", notUTF8},
		"environment": {"--lock=" + notUTF8},
	} {
		t.Run(where, func(t *testing.T) {
			if where == "environment" {
				t.Setenv("DMUTEX_STORE", dir)
			}
			s := startCommand(t, flags, words...)
			for _, want := range []string{notUTF8, "a,b\\,\xe9", notUTF8} {
				require.Equal(t, want, s.line())
			}
			s.exits(0)
			_, err := os.Stat(filepath.Join(dir, tool.RecordName(notUTF8)))
			require.NoError(t, err)
		})
	}
}

// A run excludes a program that holds the lock of the same bytes, and neither excludes one whose name differs in a
// byte that is not UTF-8.
func TestBytesOfNames(t *testing.T) {
	group, n := inGroup(t, 4*time.Second)
	dir := inDir(t)
	require.NoError(t, os.MkdirAll(dir[0][len("--store="):], 0o700))
	open := map[string]func(name string) lock.Mutex{
		"group": func(name string) lock.Mutex { return n.Mutex(name) },
		"directory": func(name string) lock.Mutex {
			s, err := filestore.Open(filepath.Join(dir[0][len("--store="):], tool.RecordName(name)))
			require.NoError(t, err)
			m, err := storelock.New(s, name, 10*time.Second)
			require.NoError(t, err)
			return m
		},
	}
	for where, flags := range map[string][]string{"group": group[:1], "directory": dir[:1]} {
		t.Run(where, func(t *testing.T) {
			held := tooltest.Acquire(t, open[where](notUTF8))
			busy := func(name string) int {
				run := exec.Command(os.Args[0], slices.Concat([]string{"run"}, flags, []string{"-n", "--lock", name, "--", "true"})...)
				said, _ := run.CombinedOutput()
				require.NotContains(t, string(said), "\ufffd")
				return run.ProcessState.ExitCode()
			}
			require.Equal(t, statusBusy, busy(notUTF8))
			require.Equal(t, 0, busy("caf\xe8 \x80 \xed\xa0\x80 \xff"))
			require.Equal(t, 0, busy("caf\ufffd \ufffd \ufffd\ufffd\ufffd \ufffd"))
			require.NoError(t, held.Release())
			require.Equal(t, 0, busy(notUTF8))
		})
	}
}

// A name that cannot be carried as it is, is refused, and the error says what to do.
func TestBytesRefused(t *testing.T) {
	for flag, words := range map[string]string{
		"--store=nats://127.0.0.1:1/caf\xe9":     "--store: a byte of this URL is not UTF-8: choose a name in UTF-8",
		"--store=postgres://127.0.0.1:1/caf\xe9": "--store: a byte of this URL is not UTF-8: choose a name in UTF-8",
		"--store=file:///tmp/caf\xe9":            "--store: a byte of this URL is not UTF-8: choose a name in UTF-8, or write %XX for the byte in file:///directory",
		"--at=nats://127.0.0.1:1/caf\xe9":        "--at: a byte of it is not UTF-8: give hosts and names at NATS in UTF-8",
		"--at=h:1,caf\xe9:1":                     "--at: a byte of it is not UTF-8: give hosts and names at NATS in UTF-8",
	} {
		status, _, said := invoke("run", flag, "--lock=l", "--", "true")
		require.Equal(t, statusNoLock, status, said)
		require.Contains(t, said, words)
	}
}
