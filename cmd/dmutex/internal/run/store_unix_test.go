//go:build unix

package run

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
)

// Runs that share only a directory run their commands one at a time, with rising fences, even if
// runs and commands are killed. While the command of a killed run lives, no other command
// runs (L77).
func TestRun(t *testing.T) {
	flags := append(inDir(t), "--lease=1h") // no run waits for it
	inside := filepath.Join(t.TempDir(), "inside")
	var runs []*started
	for range 6 {
		runs = append(runs, start(t, flags, "enter:"+inside, "say:in $DMUTEX_FENCE $DMUTEX_LOCK", "pid", "wait", "leave:"+inside, "say:out"))
	}
	next := listen(runs...)
	fence := uint64(0)
	for turn := range runs {
		w, last := next(), fence
		_, err := fmt.Sscanf(w.line, "in %d door", &fence)
		require.NoError(t, err, "two commands are inside: %s", w.line)
		require.Greater(t, fence, last)
		run := runs[w.run-1]
		pid, err := strconv.Atoi(strings.TrimPrefix(next().line, "pid "))
		require.NoError(t, err)
		switch turn {
		case 1, 3: // kill -9 of run: the command goes on, and keeps the lock
			require.NoError(t, run.cmd.Process.Kill())
			run.cmd.Wait()
			_, err := lockOf(t, flags).TryAcquire(t.Context())
			require.ErrorContains(t, err, "lock is busy")
		case 2: // kill -9 of the command
			require.NoError(t, os.Remove(inside))
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			run.ends(statusSignal + int(syscall.SIGKILL))
			continue
		}
		run.goOn()
		require.Equal(t, word{w.run, "read on"}, next())
		require.Equal(t, word{w.run, "out"}, next())
	}
}

// Runs that start at once run their commands one after the other, and none fails. With
// DMUTEX_LONG=1 there are a hundred runs, and -v shows how long they take.
func TestRunAtOnce(t *testing.T) {
	many := 10
	if os.Getenv("DMUTEX_LONG") != "" {
		many = 100
	}
	for where, open := range map[string]func(t *testing.T) (flags []string){
		"directory": inDir,
		"bucket":    inBucket,
		"group": func(t *testing.T) []string {
			flags, _ := inGroup(t)
			return flags
		},
	} {
		t.Run(where, func(t *testing.T) {
			// With -C, the shell fails if the file is there: then another command is inside, too.
			alone := []string{"--", "sh", "-eC", "-c", `: > "$0"; echo "$DMUTEX_FENCE"; sleep 0.05; rm "$0"`, filepath.Join(t.TempDir(), "inside")}
			said, took := atOnce(t, many, slices.Concat([]string{os.Args[0], "run"}, open(t), alone)...)
			t.Logf("%d at once: %v", many, took)
			slices.Sort(said)
			require.Len(t, slices.Compact(said), many, "each has a fence of its own")
		})
	}
}

// atOnce runs a command n times at once, and requires that none fails. It returns the outputs, and
// how long all of them took.
func atOnce(t *testing.T, n int, command ...string) (said []string, took time.Duration) {
	t.Helper()
	said = make([]string, n)
	begin := time.Now()
	var running sync.WaitGroup
	for i := range said {
		running.Go(func() {
			out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
			if said[i] = string(out); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	running.Wait()
	return said, time.Since(begin)
}

// When the lock is lost the command and its children end, and the status says so.
func TestStoreLost(t *testing.T) {
	flags := append(inDir(t), "--lease=1s")
	s := start(t, flags, "fork", "trap", "say:ready", "caught", "end", "trap", "say:ready", "caught", "exit:0")
	require.Equal(t, "ready", s.line())
	require.Equal(t, "ready", s.line())
	s.signal(syscall.SIGSTOP)
	var how syscall.WaitStatus
	_, err := syscall.Wait4(s.cmd.Process.Pid, &how, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, how.Stopped())
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond) // longer than the lease
	defer cancel()
	_, err = lockOf(t, flags).Acquire(ctx)
	require.Error(t, err, "a stopped process keeps the lock")
	s.signal(syscall.SIGCONT)
	require.Equal(t, "caught terminated", s.line())
	require.Equal(t, "caught terminated", s.line())
	require.Contains(t, s.exits(statusLost), "the command was ended: storelock: lock \"door\": lock was lost")
	require.NoError(t, tooltest.Acquire(t, lockOf(t, flags)).Release())
}

// -n and -w run nothing if the lock is not free in time, and -E sets the exit status. -n prints nothing.
func TestRunGivesUp(t *testing.T) {
	flags := inDir(t)
	holder := start(t, flags, "say:in", "wait")
	require.Equal(t, "in", holder.line())
	for _, how := range [][]string{{"-n"}, {"-w", "0.05"}, {"--wait=0.05"}, {"--nonblock"}} {
		for _, said := range []string{
			start(t, append(flags, how...), "say:never").exits(statusNoLock),
			start(t, append(append(flags, how...), "-E", "75"), "say:never").exits(75),
		} {
			if strings.Contains(how[0], "n") {
				require.Empty(t, said)
			} else {
				require.Regexp(t, "^dmutex run: nothing was run: storelock: lock \"door\": context deadline exceeded.*; it was not free within --wait=0.05\n$", said)
			}
		}
	}
	holder.goOn()
	holder.exits(0)
	s := start(t, append(flags, "-n"), "say:now")
	require.Equal(t, "now", s.line())
	s.exits(0)
}

// inBucket starts a server, and returns flags for runs under a lock in a bucket. The first run makes
// the bucket.
func inBucket(t *testing.T) []string {
	t.Helper()
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
	})
	require.NoError(t, err)
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	require.True(t, ns.ReadyForConnections(tooltest.TooLong))
	return []string{"--store=" + ns.ClientURL() + "/locks", "--lock=my/door"}
}

// Over NATS the record is in a bucket.
func TestStoreNATS(t *testing.T) {
	flags := inBucket(t)
	runs := []*started{start(t, flags, "say:in", "wait", "say:out"), start(t, flags, "say:in", "wait", "say:out")}
	takeTurns(t, runs)
}

// takeTurns requires that the commands of the runs enter one after the other, and leave.
func takeTurns(t *testing.T, runs []*started) {
	t.Helper()
	next := listen(runs...)
	for range runs {
		w := next()
		require.Equal(t, "in", w.line)
		runs[w.run-1].goOn()
		require.Equal(t, word{w.run, "read on"}, next())
		require.Equal(t, word{w.run, "out"}, next())
	}
	for _, s := range runs {
		s.ends(0)
	}
}

// Over NATS a run cannot see whether the holder is alive. So a run that gives up says how long a
// run has to wait to replace a dead holder, and a run that waits so long gets the lock.
func TestStoreNATSCrash(t *testing.T) {
	flags := append(inBucket(t), "--lease=1s")
	holder := start(t, flags, "say:in", "wait")
	require.Equal(t, "in", holder.line())
	require.NoError(t, holder.cmd.Process.Kill())
	_ = holder.cmd.Wait()
	for _, how := range [][]string{{"-n"}, {"-w", "0.05"}} {
		require.Contains(t, start(t, append(flags, how...), "say:never").exits(statusNoLock), "a wait of more than")
	}
	s := start(t, append(flags, "-w", "60"), "say:now")
	require.Equal(t, "now", s.line())
	s.exits(0)
}

// The name of a record has only characters that every store takes.
func TestRecordName(t *testing.T) {
	require.Equal(t, "a-Z_9", recordName("a-Z_9"))
	require.Equal(t, "=2E=2E=2Fa=3D=C3=BC", recordName("../a=\u00fc"))
}
