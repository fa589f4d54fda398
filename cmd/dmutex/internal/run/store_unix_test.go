//go:build unix

package run

import (
	"context"
	"fmt"
	"io"
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

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/lockrecord"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/filestore"
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
			run.ends(died(syscall.SIGKILL))
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
			flags, _ := inGroup(t, 4*time.Second)
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

// A run that is stopped for longer than its lease keeps the lock, since others see that it lives. Its command
// goes on when the run does.
func TestStopped(t *testing.T) {
	flags := append(inDir(t), "--lease=1s")
	s := start(t, flags, "say:ready", "wait", "wait", "exit:3")
	require.Equal(t, "ready", s.line())
	s.signal(syscall.SIGSTOP)
	var how syscall.WaitStatus
	_, err := syscall.Wait4(s.cmd.Process.Pid, &how, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, how.Stopped())
	door := lockOf(t, flags)
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond) // longer than the lease
	defer cancel()
	_, err = door.Acquire(ctx)
	require.ErrorIs(t, err, lock.ErrBusy, "a stopped process keeps the lock")
	_, last, err := recordOf(t, flags).Load(t.Context())
	require.NoError(t, err)
	s.signal(syscall.SIGCONT)
	require.Eventually(t, func() bool {
		_, rev, err := recordOf(t, flags).Load(t.Context())
		return err == nil && rev != last
	}, tooltest.TooLong, time.Millisecond, "it renews")
	_, err = door.TryAcquire(t.Context())
	require.ErrorIs(t, err, lock.ErrBusy)
	s.goOn()
	require.Equal(t, "read on", s.line(), "the command was not ended")
	s.goOn()
	s.exits(3)
	require.NoError(t, tooltest.Acquire(t, door).Release())
}

// recordOf opens the record of the lock of such flags.
func recordOf(t *testing.T, flags []string) store.Store {
	t.Helper()
	s, err := filestore.Open(filepath.Join(strings.TrimPrefix(flags[0], "--store="), "door"))
	require.NoError(t, err)
	return s
}

// A command under several locks keeps each of them when all runs are killed.
func TestNested(t *testing.T) {
	outer, inner := inDir(t), inDir(t)
	s := startArgs(t, slices.Concat([]string{os.Args[0], "run"}, outer, []string{"--", "sh", "-c", `echo $$; exec "$@"`, "sh",
		os.Args[0], "run"}, inner, []string{"--", os.Args[0], "child", "parent", "wait", "say:out"}))
	outer = append(outer, "-n")
	pid, err := strconv.Atoi(s.line()) // of the inner run
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint("parent ", pid), s.line())
	require.NoError(t, s.cmd.Process.Kill())
	_ = s.cmd.Wait()
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	for _, flags := range [][]string{outer, inner} {
		_, err := lockOf(t, flags).TryAcquire(t.Context())
		require.ErrorIs(t, err, lock.ErrBusy, "the command lives")
	}
	s.goOn()
	require.Equal(t, "read on", s.line())
	require.Equal(t, "out", s.line())
	for _, flags := range [][]string{outer, inner} {
		require.NoError(t, tooltest.Acquire(t, lockOf(t, flags)).Release())
	}
}

// If the store proves no death, a run that is killed takes its command with it, all processes of the
// command's group, and also those that have changed their user, if it may.
func TestKilledWithAll(t *testing.T) {
	flags := append(inBucket(t), "--lease=1s")
	commands := map[string][]string{"children": {os.Args[0], "child", "fork", "say:in", "hang", "end", "hang"}}
	if _, err := exec.LookPath("setpriv"); err == nil && os.Getuid() == 0 {
		commands["another user"] = []string{"setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", "echo in; sleep 1000"}
	}
	for name, command := range commands {
		t.Run(name, func(t *testing.T) {
			s := startCommand(t, flags, command...)
			require.Equal(t, "in", s.line())
			require.NoError(t, s.cmd.Process.Kill())
			_, err := s.stdout.ReadString('\n')
			require.Equal(t, io.EOF, err, "all are dead")
		})
	}
}

// Up to --permits commands run at a time, each with a permit of its own. The permit of a run that is killed goes
// with its command in a directory, and elsewhere to the next run after a lease.
func TestPermits(t *testing.T) {
	for where, open := range map[string]func(t *testing.T) (flags []string){
		"directory": inDir,
		"bucket":    inBucket,
		"group": func(t *testing.T) []string {
			flags, _ := inGroup(t, time.Second)
			return flags
		},
	} {
		t.Run(where, func(t *testing.T) {
			flags := append(open(t), "--permits=2", "--lease=1s")
			in := func(s *started) (permit, fence int) {
				_, err := fmt.Sscanf(s.line(), "in %d %d", &permit, &fence)
				require.NoError(t, err)
				return permit, fence
			}
			steps := []string{"say:in $DMUTEX_PERMIT $DMUTEX_FENCE", "wait"}
			a, b := start(t, flags, steps...), start(t, flags, steps...)
			first, old := in(a)
			second, _ := in(b)
			require.ElementsMatch(t, []int{0, 1}, []int{first, second})
			start(t, append(flags, "-n", "-E", "9"), "say:never").exits(9)
			require.NoError(t, a.cmd.Process.Kill())
			if where == "directory" {
				require.Empty(t, start(t, append(flags, "-n", "-E", "9"), "say:never").exits(9), "the command lives")
				a.goOn()
			}
			c := start(t, flags, steps...)
			permit, fence := in(c)
			require.Equal(t, first, permit)
			require.Greater(t, fence, old)
			b.goOn()
			b.exits(0)
			c.goOn()
			c.exits(0)
		})
	}
}

// Once a day a run removes the files of locks that are free and were not used for a day.
func TestTidy(t *testing.T) {
	dir := t.TempDir()
	old, late := epochs.Fence(time.Now().Add(-25*time.Hour).UnixNano()), epochs.Fence(time.Now().Add(-23*time.Hour).UnixNano())
	leave := func(name string, fence uint64, holder string) {
		s, err := filestore.Open(filepath.Join(dir, name))
		require.NoError(t, err)
		record := lockrecord.Record{Lock: name, Fence: fence, Lease: 1e9, Holder: holder}
		_, err = s.Swap(t.Context(), record.AppendText(nil), "")
		require.NoError(t, err)
	}
	left := func() (names []string) {
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, f := range files {
			if !strings.HasPrefix(f.Name(), ".") {
				names = append(names, f.Name())
			}
		}
		return names
	}
	leave("free", old, "")
	leave("held", old, "X")
	leave("late", late, "")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "free.queue"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other"), []byte("precious"), 0o600))
	flags := []string{"--store=" + dir, "--lock=door"}
	start(t, flags, "say:in").exits(0)
	kept := []string{"door", "door.lock", "door.queue", "held", "held.lock", "late", "late.lock", "other"}
	require.Equal(t, kept, left())
	leave("again", old, "")
	start(t, flags, "say:in").exits(0)
	require.Equal(t, append([]string{"again", "again.lock"}, kept...), left(), "it was done today")
	yesterday := time.Now().Add(-25 * time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(dir, ".tidied"), yesterday, yesterday))
	start(t, flags, "say:in").exits(0)
	require.Equal(t, kept, left())
}

// A link in the place of the mark of that day is not followed: it could name any file of the user of the run.
func TestTidyFollowsNoLink(t *testing.T) {
	flags := inDir(t)
	precious := filepath.Join(t.TempDir(), "precious")
	require.NoError(t, os.WriteFile(precious, []byte("precious"), 0o600))
	yesterday := time.Now().Add(-25 * time.Hour)
	require.NoError(t, os.Chtimes(precious, yesterday, yesterday))
	start(t, flags, "say:in").exits(0)
	mark := filepath.Join(strings.TrimPrefix(flags[0], "--store="), ".tidied")
	require.NoError(t, os.Remove(mark))
	require.NoError(t, os.Symlink(precious, mark))
	start(t, flags, "say:in").exits(0)
	text, err := os.ReadFile(precious)
	require.NoError(t, err)
	require.Equal(t, "precious", string(text))
	info, err := os.Lstat(mark)
	require.NoError(t, err)
	require.True(t, info.Mode().IsRegular(), "it was done")
}

// If it is not a holder that keeps the lock away, run says so, once, and -E is not its exit status.
func TestTrouble(t *testing.T) {
	t.Parallel()
	flags := []string{"--at=127.0.0.1:1", "--lock=door"}
	require.Contains(t, start(t, append(flags, "-w", "0.1", "-E", "9"), "say:never").exits(statusNoLock), "no session: member 127.0.0.1:1: ")
	s := start(t, append(flags, "-w", "3"), "say:never")
	said := s.exits(statusNoLock)
	require.Regexp(t, "^dmutex run: still waiting: no session: member 127.0.0.1:1: .*\ndmutex run: nothing was run: .*\n$", said)
}

// -n and -w run nothing if the lock is not free in time, and -E sets the exit status. -n prints nothing.
func TestRunGivesUp(t *testing.T) {
	flags := inDir(t)
	holder := start(t, flags, "say:in", "wait")
	require.Equal(t, "in", holder.line())
	for _, how := range [][]string{{"-n"}, {"-w", "0.05"}, {"--wait=0.05"}, {"--nonblock"}, {"-w", "0"}} {
		for _, said := range []string{
			start(t, append(flags, how...), "say:never").exits(statusBusy),
			start(t, append(append(flags, how...), "-E", "75"), "say:never").exits(75),
		} {
			if strings.Contains(how[0], "n") || how[len(how)-1] == "0" {
				require.Empty(t, said)
			} else {
				require.Regexp(t, "^dmutex run: nothing was run: storelock: lock \"door\": context deadline exceeded.*/[0-9]* has held it for [0-9]*s; it was not free within --wait=0.05\n$", said)
			}
		}
	}
	t.Setenv("DMUTEX_WAIT", "0")
	require.Empty(t, start(t, flags, "say:never").exits(statusBusy))
	os.Unsetenv("DMUTEX_WAIT")
	holder.goOn()
	holder.exits(0)
	s := start(t, append(flags, "-n"), "say:now")
	require.Equal(t, "now", s.line())
	s.exits(0)
}

// A run whose --wait ends while another waits ahead of it has looked, too, who holds the lock.
func TestRunGivesUpInQueue(t *testing.T) {
	flags := inDir(t)
	require.Equal(t, "in", start(t, flags, "say:in", "wait").line())
	start(t, flags, "say:never")
	require.Eventually(t, func() bool {
		queue, err := os.Open(filepath.Join(strings.TrimPrefix(flags[0], "--store="), "door.queue"))
		if err != nil {
			return false
		}
		defer queue.Close()
		return syscall.Flock(int(queue.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == syscall.EWOULDBLOCK
	}, tooltest.TooLong, time.Millisecond, "it waits")
	said := start(t, append(flags, "-w", "1"), "say:never").exits(statusBusy)
	require.Contains(t, said, "it was not free within --wait=1")
}

// inBucket starts a server, and returns flags for runs under a lock in a bucket. The first run makes
// the bucket.
func inBucket(t *testing.T) []string {
	t.Helper()
	flags, _ := startBucket(t)
	return flags
}

// startBucket also returns how to stop that server.
func startBucket(t *testing.T) (flags []string, shutdown func()) {
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
	return []string{"--store=" + ns.ClientURL() + "/locks", "--lock=my/door"}, ns.Shutdown
}

// A release to a store that does not answer is given up at the second signal.
func TestReleaseGivenUp(t *testing.T) {
	flags, shutdown := startBucket(t)
	s := start(t, append(flags, "--lease=1h"), "pid", "wait", "exit:5")
	pid, err := strconv.Atoi(strings.TrimPrefix(s.line(), "pid "))
	require.NoError(t, err)
	shutdown()
	s.goOn()
	require.Equal(t, "read on", s.line())
	require.Eventually(t, func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH }, tooltest.TooLong, time.Millisecond, "it has ended")
	s.signal(syscall.SIGINT)
	said, err := s.say.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, said, "interrupt: the lock is being released; a second signal gives up")
	s.signal(syscall.SIGINT)
	require.Contains(t, s.ends(5), "gave up: ")
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
		require.Contains(t, start(t, append(flags, how...), "say:never").exits(statusBusy), "a wait of more than")
	}
	s := start(t, append(flags, "-w", "60"), "say:now")
	require.Equal(t, "now", s.line())
	s.exits(0)
}

// The name of a record has only characters that every store takes.
func TestRecordName(t *testing.T) {
	require.Equal(t, "a-Z_9", tool.RecordName("a-Z_9"))
	require.Equal(t, "=2E=2E=2Fa=3D=C3=BC", tool.RecordName("../a=\u00fc"))
}

// Runs that wait in one directory are served in their order, also behind a hold that lasts many leases, and with a --wait.
func TestOrder(t *testing.T) {
	flags := append(inDir(t), "--lease=300ms", "--wait=60")
	holder := start(t, flags, "say:in", "wait")
	require.Equal(t, "in", holder.line())
	queue, err := os.Stat(filepath.Join(strings.TrimPrefix(flags[0], "--store="), "door.queue"))
	require.NoError(t, err)
	inode := fmt.Sprint(queue.Sys().(*syscall.Stat_t).Ino)
	queues := func(s *started) bool {
		locks, err := os.ReadFile("/proc/locks")
		if err != nil {
			t.Skip(err)
		}
		return slices.ContainsFunc(strings.Split(string(locks), "\n"), func(line string) bool {
			return strings.Contains(line, fmt.Sprintf(" %d ", s.cmd.Process.Pid)) && strings.Contains(line, ":"+inode+" ")
		})
	}
	var runs []*started
	for range 8 {
		s := start(t, flags, "say:in")
		runs = append(runs, s)
		require.Eventually(t, func() bool { return queues(s) }, tooltest.TooLong, time.Millisecond)
	}
	time.Sleep(1500 * time.Millisecond) // five leases
	next := listen(runs...)
	holder.goOn()
	holder.exits(0)
	for i := range runs {
		require.Equal(t, word{i + 1, "in"}, next())
	}
	for _, s := range runs {
		s.ends(0)
	}
}

// A run that is stopped while it has its turn delays the others by no more than two leases.
func TestStoppedInTurn(t *testing.T) {
	flags := append(inDir(t), "--lease=1s")
	holder := start(t, flags, "say:in", "wait")
	require.Equal(t, "in", holder.line())
	first := start(t, flags, "say:in")
	queue := filepath.Join(strings.TrimPrefix(flags[0], "--store="), "door.queue")
	require.Eventually(t, func() bool {
		f, err := os.Open(queue)
		if err != nil {
			return false
		}
		defer f.Close()
		return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == syscall.EWOULDBLOCK
	}, tooltest.TooLong, time.Millisecond, "it has its turn")
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGSTOP))
	second := start(t, flags, "say:in")
	holder.goOn()
	holder.exits(0)
	require.Equal(t, "in", second.line())
	second.exits(0)
	first.signal(syscall.SIGCONT)
	require.Equal(t, "in", first.line())
	first.exits(0)
}
