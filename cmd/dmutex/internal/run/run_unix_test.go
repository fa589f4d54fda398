//go:build unix

package run

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/nats"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/lock/locktest"
	"github.com/dmutex/dmutex/store"
)

type grammar struct {
	Run Cmd `cmd:""`
}

// TestMain makes the test binary also the command that the tests run.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		os.Exit(steps(os.Args[2:]))
	}
	tooltest.Main(m, new(grammar))
}

func invoke(args ...string) (status int, stdout, stderr string) {
	return tooltest.Run(new(grammar), "", args...)
}

// steps is the command that the tests run. It takes its steps in order.
func steps(words []string) (status int) {
	signals := make(chan os.Signal, 16)
	in := bufio.NewReader(os.Stdin)
	for i := 0; i < len(words); i++ {
		step, what, _ := strings.Cut(words[i], ":")
		number, _ := strconv.Atoi(what)
		switch step {
		case "say":
			fmt.Println(os.ExpandEnv(what))
		case "pid":
			fmt.Println("pid", os.Getpid())
		case "parent":
			fmt.Println("parent", os.Getppid())
		case "wait": // for a line, or for the end of the test
			if line, err := in.ReadString('\n'); err == nil {
				fmt.Print("read ", line)
			}
		case "trap":
			signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
		case "caught":
			fmt.Println("caught", <-signals)
		case "enter":
			if file, err := os.OpenFile(what, os.O_CREATE|os.O_EXCL, 0o600); err != nil || file.Close() != nil {
				fmt.Println(err)
				return 99
			}
		case "leave":
			_ = os.Remove(what)
		case "move": // to the group of the run
			group, err := syscall.Getpgid(os.Getppid())
			if err != nil || syscall.Setpgid(0, group) != nil {
				return 99
			}
		case "hang":
			<-time.After(tooltest.TooLong)
		case "die":
			_ = syscall.Kill(os.Getpid(), syscall.Signal(number))
			select {}
		case "pause": // with a SIGCONT that came before
			j := &job{continued: make(chan os.Signal, 1)}
			signal.Notify(j.continued, syscall.SIGCONT)
			j.continued <- syscall.SIGCONT
			paused := make(chan struct{})
			go func() { // on a thread that is not the first
				runtime.LockOSThread()
				j.pause()
				fmt.Println("on")
				close(paused)
			}()
			<-paused
			signal.Stop(j.continued)
		case "orphaned":
			fmt.Println("orphaned", orphaned())
		case "stop":
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			select {}
		case "exit":
			return number
		case "fork", "forkstopped": // a child, which is not waited for, takes the steps up to "end"
			end := i + slices.Index(words[i:], "end")
			cmd := exec.Command(os.Args[0], append([]string{"child"}, words[i+1:end]...)...)
			cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
			if err := cmd.Start(); err != nil {
				return 99
			}
			if step == "forkstopped" {
				var how syscall.WaitStatus
				_, _ = syscall.Wait4(cmd.Process.Pid, &how, syscall.WUNTRACED, nil)
			}
			i = end
		default:
			return 99
		}
	}
	return 0
}

// A started is a run as a process of its own.
type started struct {
	t               *testing.T
	cmd             *exec.Cmd
	stdin, out, err *os.File // our ends
	stdout, say     *bufio.Reader
}

// start runs a command of steps.
func start(t *testing.T, flags []string, steps ...string) *started {
	t.Helper()
	return startCommand(t, flags, append([]string{os.Args[0], "child"}, steps...)...)
}

func startCommand(t *testing.T, flags []string, command ...string) *started {
	t.Helper()
	return startArgs(t, slices.Concat([]string{os.Args[0], "run"}, flags, []string{"--"}, command))
}

func startArgs(t *testing.T, args []string) *started {
	t.Helper()
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if signal.Ignored(sig) { // as under nohup; the processes that the tests start must not ignore it
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	s := &started{t: t, cmd: exec.Command(args[0], args[1:]...)}
	in, stdin := pipe(t)
	out, stdout := pipe(t)
	says, stderr := pipe(t)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = in, stdout, stderr
	s.stdin, s.out, s.err = stdin, out, says
	s.stdout, s.say = bufio.NewReader(out), bufio.NewReader(says)
	require.NoError(t, s.cmd.Start())
	for _, theirs := range []*os.File{in, stdout, stderr} {
		theirs.Close()
	}
	t.Cleanup(func() {
		s.stdin.Close()
		s.out.Close()
		s.err.Close()
		if s.cmd.ProcessState == nil {
			s.cmd.Process.Kill()
			s.cmd.Wait()
		}
	})
	return s
}

// pipe returns a pipe whose reader times out.
func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.SetReadDeadline(time.Now().Add(tooltest.TooLong)))
	return r, w
}

// line reads the next line of the command.
func (s *started) line() string {
	s.t.Helper()
	line, err := s.stdout.ReadString('\n')
	require.NoError(s.t, err)
	return strings.TrimSuffix(line, "\n")
}

// goOn lets the command that waits for a line go on.
func (s *started) goOn() {
	_, err := io.WriteString(s.stdin, "on\n")
	require.NoError(s.t, err)
}

func (s *started) signal(sig os.Signal) { require.NoError(s.t, s.cmd.Process.Signal(sig)) }

// exits waits until run has ended, and requires that nothing is left of the
// command: a process that is left would keep stdout open.
func (s *started) exits(status int) (said string) {
	s.t.Helper()
	_, err := io.Copy(io.Discard, s.stdout)
	require.NoError(s.t, err)
	return s.ends(status)
}

// died is the status of a run that a signal has ended, for exits and ends.
func died(sig syscall.Signal) (status int) { return -int(sig) }

// ends waits until run itself has ended.
func (s *started) ends(status int) (said string) {
	s.t.Helper()
	text, err := io.ReadAll(s.say)
	require.NoError(s.t, err)
	s.cmd.Wait()
	if how := s.cmd.ProcessState.Sys().(syscall.WaitStatus); how.Signaled() {
		require.Equal(s.t, status, died(how.Signal()), "%s", text)
		require.False(s.t, how.CoreDump())
	} else {
		require.Equal(s.t, status, how.ExitStatus(), "%s", text)
	}
	return string(text)
}

// inDir returns the flags of runs that share a lock in a new directory.
func inDir(t *testing.T) []string {
	t.Helper()
	return []string{"--store=" + filepath.Join(t.TempDir(), "locks"), "--lock=door"}
}

// lockOf opens the lock of such flags.
func lockOf(t *testing.T, flags []string) lock.Mutex {
	t.Helper()
	var line struct {
		Run Cmd `cmd:""`
	}
	_, err := kong.Must(&line).Parse(append(append([]string{"run"}, flags...), "--", "nothing"))
	require.NoError(t, err)
	open, stop, err := line.Run.locks(func(err error) { t.Error(err) })
	require.NoError(t, err)
	t.Cleanup(stop)
	mutex, err := open(line.Run.Lock)
	require.NoError(t, err)
	return mutex
}

// A word is a line that the command of a run has said.
type word struct {
	run  int // from 1
	line string
}

// listen returns a function that waits for the next line of any command of the runs.
func listen(runs ...*started) (next func() word) {
	words := make(chan word, 16)
	var reading sync.WaitGroup
	for i, s := range runs {
		reading.Go(func() {
			for {
				line, err := s.stdout.ReadString('\n')
				if err != nil {
					return
				}
				words <- word{i + 1, strings.TrimSuffix(line, "\n")}
			}
		})
	}
	go func() {
		reading.Wait()
		close(words)
	}()
	return func() word {
		w, ok := <-words
		require.True(runs[0].t, ok, "all have ended")
		return w
	}
}

// A signal that is ignored, as under nohup, is not passed on.
func TestRunIgnoredSignal(t *testing.T) {
	args := []string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh", os.Args[0], "run"}
	s := startArgs(t, append(append(args, inDir(t)...), "--", os.Args[0], "child", "trap", "say:ready", "caught", "exit:2"))
	require.Equal(t, "ready", s.line())
	s.signal(syscall.SIGHUP)
	s.signal(syscall.SIGTERM)
	require.Equal(t, "caught terminated", s.line())
	s.exits(2)
}

// The exit status says how the command ended, or why it did not run (L76).
func TestRunExitStatus(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o600))
	step := func(step string) []string { return []string{os.Args[0], "child", step} }
	for _, c := range []struct {
		name    string
		command []string
		status  int
		said    string
	}{
		{"success", step("exit:0"), 0, ""},
		{"failure", step("exit:7"), 7, ""},
		{"same as no lock", step("exit:125"), 125, ""},
		{"signal", step("die:9"), died(syscall.SIGKILL), ""},
		{"signal that dumps core", []string{"sh", "-c", "kill -QUIT $$"}, died(syscall.SIGQUIT), ""},
		{"signal of the command", []string{"sh", "-c", "kill -USR1 $$"}, died(syscall.SIGUSR1), ""},
		{"status like a signal", step("exit:130"), 130, ""},
		{"not found", []string{"no-such-command"}, statusNotFound, `"no-such-command": executable file not found`},
		{"not there", []string{script + "s"}, statusNotFound, "no such file"},
		{"not executable", []string{script}, statusNotExecutable, "permission denied"},
		{"a directory", []string{os.TempDir()}, statusNotExecutable, "permission denied"},
	} {
		t.Run(c.name, func(t *testing.T) {
			said := startCommand(t, inDir(t), c.command...).exits(c.status)
			require.Contains(t, said, c.said)
			require.Equal(t, c.said == "", said == "", said)
		})
	}
}

// A wrong command line has a status that commands seldom use, and the error does not quote a
// password.
func TestRunUsage(t *testing.T) {
	for _, c := range []struct{ line, words string }{
		{"-- x", "give either --store=URL or --at=HOST:PORT"},
		{"--store={} -- x", "give --lock=NAME"},
		{"--lock=l -- x", "give either --store=URL or --at=HOST:PORT"},
		{"--store={} --at=h:1 --lock=l -- x", "give either --store=URL or --at=HOST:PORT"},
		{"--at=consul://h:1 --lock=l -- x", "--at: this tool has no store for consul://"},
		{"--at=file:///f --lock=l -- x", "--at: give HOST:PORT or nats://HOST:PORT/NAME"},
		{"--at=nats://secret@h:1 --lock=l -- x", "--at: it is not nats://HOST:PORT/NAME"},
		{"--at=nats://127.0.0.1:1,nats://secret@127.0.0.1:1/n --lock=l -w 0.5 -- x", "nats server at nats://127.0.0.1:1"},
		{"--at=h:1 --cert=c --key=k --authority=/no/such --lock=l -- x", "no such file"},
		{"--store={} --lock=l", "give a command, after --"},
		{"--store={} --lock=l --", "give a command, after --"},
		{"--store={} --lock= -- x", "give --lock=NAME"},
		{"--store={} --lock=" + strings.Repeat("l", 201) + " -- x", "the name of a lock has at most 200 letters"},
		{"--store= --lock=l -- x", "give a path"},
		{"--store=file://host/path --lock=l -- x", "file:///path with three slashes"},
		{"--store=postgres://u:secret@h/d --lock=l -- x", "--store: this dmutex was built without postgres://: add -tags postgres"},
		{"--at=postgres://u:secret@h/d --lock=l -- x", "--at: give HOST:PORT or nats://HOST:PORT/NAME, not a store"},
		{"--store=etcd://h/k --lock=l -- x", "this dmutex was built without etcd://: add -tags etcd"},
		{"--store=consul://h/k --lock=l -- x", "this tool has no store for consul://"},
		{"--store=kube://locks --lock=l -- x", "--store: this process runs in no pod: end the URL with ?server="},
		{"--store=kube://?server=http://h --lock=l -- x", "it is not kube://NAMESPACE"},
		{"--store=kube://u:secret@locks --lock=l -- x", "kube:// takes no user, port or fragment"},
		{"--store=kube://locks?server=h --lock=l -- x", `"h" is no URL of an API server`},
		{"--store=s3://locks --lock=l -- x", "--store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"},
		{"--store=s3://locks?end=x --lock=l -- x", `s3:// has no "end"`},
		{"--store=s3://locks?bucket=x --lock=l -- x", `s3:// has no "bucket": only endpoint and region may follow`},
		{"--store=nats://secret@h:1 --lock=l -- x", "it is not nats://HOST:PORT/NAME"},
		{"--store=nats://secret@h:1/b/key --lock=l -- x", "it is not nats://HOST:PORT/NAME"},
		{"--store=nats://secret@127.0.0.1:1/b --lock=l -w 0.5 -- x", "nats server at nats://127.0.0.1:1"},
		{"--store={} --lock=l --lease=1ms -- x", "--lease=1ms: choose 100ms to 1h"},
		{"--store={} --lock=l --grace=-1s -- x", "--grace=-1s: choose 0s or more"},
		{"--store={} --lock=l --wait=-1 -- x", "--wait=-1: choose 0 to 9e9 seconds"},
		{"--store={} --lock=l -E 256 -- x", "--conflict-exit-code=256: choose 0 to 255"},
		{"--store={} --lock=l -n -w 1 -- x", "--nonblock and --wait can't be used together"},
		{"--store={} --lock=l --permits=0 -- x", "--permits=0: choose 1 to 64"},
		{"--store={} --lock=l --shared -- x", "--shared needs --at"},
		{"--at=a:1 --lock=l --shared --permits=2 -- x", "--shared and --permits exclude each other"},
		{"--store={} --lock=l --permits=65 -- x", "--permits=65: choose 1 to 64"},
		{"--store={} --lock=l -n -w 0 -- x", "--nonblock and --wait can't be used together"},
		{"--store={} --lock=l --nkey=k -- x", "--creds, --nkey and --inbox are for NATS"},
		{"--at=h:1 --lock=l --authority=a -- x", "--cert, --key and --authority belong together"},
		{"--store={} --lock=l --cert=c --key=k --authority=a -- x", "are for NATS and --at, not for another store"},
		{"--store=/no/such/directory/f --lock=l -- x", "no such file or directory"},
		{"--store={} --lock=l --nonblok -- x", "unknown flag --nonblok"},
		{"--store={} --lock=l -x", "unknown flag -x"},
	} {
		t.Run(c.line, func(t *testing.T) {
			line := strings.ReplaceAll(c.line, "{}", filepath.Join(t.TempDir(), "f"))
			status, stdout, stderr := invoke(strings.Fields("run " + line)...)
			require.Equal(t, statusNoLock, status, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, c.words)
			require.NotContains(t, stderr, "secret")
		})
	}
	status, stdout, _ := invoke("run", "--help")
	require.Equal(t, tool.StatusOK, status)
	require.Contains(t, stdout, "Exit status: the command's.")
	tool.NATS = nil
	defer func() { tool.NATS = nats.Broker }()
	_, _, stderr := invoke("run", "--store=nats://h/b", "--lock=l", "--", "x")
	require.Contains(t, stderr, "--store: "+tool.ErrNoNATS.Error())
}

// A signal goes to the command and to its children (L76).
func TestRunPassesSignalsOn(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			s := start(t, inDir(t), "fork", "trap", "say:ready", "caught", "end", "trap", "say:ready", "caught", "caught", "exit:6")
			require.Equal(t, "ready", s.line())
			require.Equal(t, "ready", s.line())
			s.signal(sig)
			require.Equal(t, fmt.Sprint("caught ", sig), s.line())
			require.Equal(t, fmt.Sprint("caught ", sig), s.line())
			s.signal(syscall.SIGTERM)
			require.Equal(t, "caught terminated", s.line())
			s.exits(6)
		})
	}
}

// A signal that ends the command shows in the exit status, and reaches stopped
// processes as well.
func TestRunEndsStoppedProcesses(t *testing.T) {
	s := start(t, inDir(t), "forkstopped", "stop", "end", "say:ready", "wait")
	require.Equal(t, "ready", s.line())
	s.signal(syscall.SIGTERM)
	s.exits(died(syscall.SIGTERM))
}

// The processes that the command leaves behind get a signal to end, and run releases
// the lock when they have ended (L76).
func TestRunReleasesWhenAllHaveEnded(t *testing.T) {
	flags := inDir(t)
	door := lockOf(t, flags)
	two := start(t, flags, "fork", "trap", "say:ready", "caught", "wait", "end", "wait", "exit:3")
	require.Equal(t, "ready", two.line())
	two.goOn()
	require.Equal(t, "read on", two.line(), "the command ends")
	require.Equal(t, "caught terminated", two.line())
	_, err := door.TryAcquire(t.Context())
	require.ErrorIs(t, err, lock.ErrBusy)
	two.goOn()
	require.Equal(t, "read on", two.line())
	held := tooltest.Acquire(t, door)
	two.exits(3)
	require.NoError(t, held.Release())
}

// A process that does not end is killed after the grace.
func TestRunKillsAfterGrace(t *testing.T) {
	s := start(t, append(inDir(t), "--grace=1ms"), "fork", "trap", "say:ready", "hang", "end", "wait", "exit:4")
	require.Equal(t, "ready", s.line())
	s.goOn()
	s.exits(4)
}

// When the lock is lost the command and its children end, and the status says so
// (L77).
func TestRunActsOnLoss(t *testing.T) {
	for _, how := range []string{"ends", "is killed"} {
		t.Run(how, func(t *testing.T) {
			flags := append(inDir(t), "--lease=1s")
			held := tooltest.Acquire(t, lockOf(t, flags))
			in, stdin := pipe(t)
			stdout, out := pipe(t)
			said, says := pipe(t)
			r := &runner{Cmd: &Cmd{Lock: "door", Grace: tooltest.TooLong}, con: &tool.Console{In: in, Out: out, Err: says}}
			steps := []string{"fork", "trap", "say:ready", "caught", "end", "trap", "say:ready", "caught", "exit:0"}
			if how == "is killed" {
				steps[3], steps[7], r.Grace = "hang", "hang", time.Millisecond
			}
			r.Command = append([]string{os.Args[0], "child"}, steps...)
			status := make(chan error)
			go func() { status <- r.work(held) }()
			lines := bufio.NewReader(stdout)
			for range 2 {
				line, err := lines.ReadString('\n')
				require.NoError(t, err)
				require.Equal(t, "ready\n", line)
			}
			for record, err := recordOf(t, flags), store.ErrConflict; err != nil; { // while the holder renews
				require.ErrorIs(t, err, store.ErrConflict)
				_, rev, failed := record.Load(t.Context())
				require.NoError(t, failed)
				_, err = record.Swap(t.Context(), nil, rev)
			}
			require.Equal(t, tool.Status(statusLost), <-status)
			out.Close()
			says.Close()
			rest, err := io.ReadAll(lines)
			require.NoError(t, err)
			if how == "ends" {
				require.Equal(t, strings.Repeat("caught terminated\n", 2), string(rest))
			}
			why, err := io.ReadAll(said)
			require.NoError(t, err)
			require.Contains(t, string(why), "the command was ended: storelock: lock \"door\": lock was lost")
			for _, f := range []*os.File{in, stdin, stdout, said} {
				f.Close()
			}
		})
	}
}

// A lock that was lost before its command could start, as when the machine slept after the grant, runs nothing.
func TestLostBeforeTheCommand(t *testing.T) {
	door := locktest.New("door")
	held := tooltest.Acquire(t, door)
	door.Lose(errors.New("the machine has slept"))
	var said strings.Builder
	r := &runner{Cmd: &Cmd{Lock: "door", Command: []string{"true"}}, con: &tool.Console{Err: &said}}
	require.Equal(t, tool.Status(statusNoLock), r.work(held))
	require.Contains(t, said.String(), "nothing was run: ")
	require.Contains(t, said.String(), "the machine has slept")
}

// A process group is orphaned if no process of it has a parent in another group of the session.
func TestOrphaned(t *testing.T) {
	ask := os.Args[0] + " child orphaned"
	for line, want := range map[string]string{
		ask:                         "orphaned false",
		"sh -c '" + ask + "; true'": "orphaned false",
		"trap '' TERM; sh -c '" + ask + "'; true": "orphaned false",
	} {
		for where, attr := range map[string]*syscall.SysProcAttr{"group": {Setpgid: true}, "session": {Setsid: true}} {
			cmd := exec.Command("sh", "-c", line)
			cmd.SysProcAttr = attr
			out, err := cmd.Output()
			require.NoError(t, err)
			want := want
			if where == "session" {
				want = "orphaned true"
			}
			require.Equal(t, want+"\n", string(out), "%s: %s", where, line)
		}
	}
}

// A patientDoor grants the lock, or not, some time after its caller has given up.
type patientDoor struct {
	lock.Mutex
	late time.Duration
}

func (d patientDoor) Acquire(ctx context.Context) (lock.Held, error) {
	<-ctx.Done()
	time.Sleep(d.late)
	return d.Mutex.Acquire(context.WithoutCancel(ctx))
}

// A run that a signal has ended while it waits gives back what it is granted since, and so it does if the signal
// comes twice, or with another one. A later second signal that asks to end gives up, and no other does.
func TestSignalsWhileWaiting(t *testing.T) {
	type sent struct {
		after time.Duration
		sig   syscall.Signal
	}
	for name, c := range map[string]struct {
		late    time.Duration // the answer after the first signal
		signals []sent
		takes   time.Duration
		freed   bool
	}{
		"one":                {400 * time.Millisecond, []sent{{0, syscall.SIGTERM}}, 400 * time.Millisecond, true},
		"one hangup":         {400 * time.Millisecond, []sent{{0, syscall.SIGHUP}, {0, syscall.SIGHUP}}, 400 * time.Millisecond, true},
		"another":            {5 * time.Second, []sent{{0, syscall.SIGTERM}, {0, syscall.SIGUSR1}, {time.Second, syscall.SIGALRM}}, 5 * time.Second, true},
		"one that no end is": {5 * time.Second, []sent{{0, syscall.SIGUSR1}, {0, syscall.SIGTERM}}, 5 * time.Second, true},
		"twice at once":      {5 * time.Second, []sent{{0, syscall.SIGTERM}, {0, syscall.SIGTERM}}, releaseAtOnce, false},
		"twice":              {5 * time.Second, []sent{{0, syscall.SIGTERM}, {2 * time.Second, syscall.SIGINT}}, 2 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := locktest.New("door")
				var said strings.Builder
				r := &runner{Cmd: new(Cmd), con: &tool.Console{Err: &said}, signals: make(chan os.Signal, 16), refused: make(chan error)}
				go func() {
					for _, s := range c.signals {
						time.Sleep(s.after)
						r.signals <- s.sig
					}
				}()
				begin := time.Now()
				err := r.turn(patientDoor{l, c.late})
				require.Equal(t, tool.Died{Signal: c.signals[0].sig}, err)
				r.finish(func() {})
				require.Equal(t, c.takes, time.Since(begin))
				require.Equal(t, c.freed, !strings.Contains(said.String(), "gave up"), said.String())
				time.Sleep(c.late) // what was given up is given back by a process that goes on
				held, err := l.TryAcquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, held.Release())
			})
		})
	}
}
