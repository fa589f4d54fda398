package run

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A run that cannot write in its directory says so at once, however it waits. One whose release cannot be written
// ends with its command, with the status of that, and the next run has the lock at once.
func TestFull(t *testing.T) {
	places := map[string]func(t *testing.T) (dir string, full func(s *started), free func()){
		"limit": func(t *testing.T) (string, func(s *started), func()) { // of the size of a process's files
			return t.TempDir(), func(s *started) {
				require.NoError(t, unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 0, Max: unix.RLIM_INFINITY}, nil))
			}, func() {}
		},
	}
	if os.Getuid() == 0 {
		for name, options := range map[string]string{"disk": "size=64k", "inodes": "nr_inodes=24"} {
			places[name] = func(t *testing.T) (string, func(s *started), func()) {
				dir := t.TempDir()
				if err := syscall.Mount("none", dir, "tmpfs", 0, options); err != nil {
					t.Skip(err)
				}
				t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
				rest := filepath.Join(dir, "rest")
				return dir, func(*started) {
					require.NoError(t, os.MkdirAll(rest, 0o700))
					for i := 0; ; i++ {
						f, err := os.Create(filepath.Join(rest, strings.Repeat("f", i+1)))
						if err != nil {
							break
						}
						if name == "disk" {
							_, err = f.Write(make([]byte, 1<<20))
						}
						f.Close()
						if err != nil {
							break
						}
					}
				}, func() { require.NoError(t, os.RemoveAll(rest)) }
			}
		}
	}
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			dir, full, free := place(t)
			flags := []string{"--store=" + filepath.Join(dir, "locks"), "--lock=door"}
			holder := start(t, flags, "say:in", "wait", "exit:7")
			require.Equal(t, "in", holder.line())
			full(holder)
			begin := time.Now()
			holder.goOn()
			require.Regexp(t, `^dmutex run: storelock: lock "door": the record was not changed by the release, but the others see that the hold is over: .*(no space left on device|file too large)\n$`, holder.exits(7))
			require.Less(t, time.Since(begin), 3*time.Second)

			for _, how := range [][]string{{"-n"}, {"-w", "20"}, {}, {"--permits=2"}, {"--permits=2", "-n"}} {
				args := append([]string{os.Args[0], "run"}, append(flags, how...)...)
				args = append(args, "--", os.Args[0], "child", "say:never")
				if name == "limit" {
					args = append([]string{"sh", "-c", `ulimit -f 0; exec "$@"`, "sh"}, args...)
				}
				begin := time.Now()
				said := startArgs(t, args).exits(statusNoLock)
				require.Regexp(t, "no space left on device|file too large", said, "%v", how)
				require.Less(t, time.Since(begin), 3*time.Second, "%v", how)
			}
			free()
			next := start(t, append(flags, "-n"), "say:in")
			require.Equal(t, "in", next.line())
			next.exits(0)
		})
	}
}
