//go:build unix

package run

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/nats"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/tcplink"
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
		case "hang":
			<-time.After(tooLong)
		case "die":
			_ = syscall.Kill(os.Getpid(), syscall.Signal(number))
			select {}
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

// tooLong is how long a test waits before it fails.
const tooLong = 30 * time.Second

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
		if signal.Ignored(sig) { // as where the tests run under nohup: let it not be so for what they start
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
	require.NoError(t, r.SetReadDeadline(time.Now().Add(tooLong)))
	return r, w
}

// line reads the next line of the command.
func (s *started) line() string {
	s.t.Helper()
	line, err := s.stdout.ReadString('\n')
	require.NoError(s.t, err)
	return strings.TrimSuffix(line, "\n")
}

// says waits until run itself says what has these words in it.
func (s *started) says(words string) {
	s.t.Helper()
	var said strings.Builder
	for {
		line, err := s.say.ReadString('\n')
		said.WriteString(line)
		require.NoError(s.t, err, "%q in %s", words, said.String())
		if strings.Contains(line, words) {
			return
		}
	}
}

// goOn lets the command that waits for a line go on.
func (s *started) goOn() {
	_, err := io.WriteString(s.stdin, "on\n")
	require.NoError(s.t, err)
}

func (s *started) signal(sig os.Signal) { require.NoError(s.t, s.cmd.Process.Signal(sig)) }

// exits waits until run has ended, and requires that nothing is left of the
// command: a process that is left has the other end of stdout.
func (s *started) exits(status int) (said string) {
	s.t.Helper()
	_, err := io.Copy(io.Discard, s.stdout)
	require.NoError(s.t, err)
	return s.ends(status)
}

// ends waits until run itself has ended.
func (s *started) ends(status int) (said string) {
	s.t.Helper()
	text, err := io.ReadAll(s.say)
	require.NoError(s.t, err)
	s.cmd.Wait()
	require.Equal(s.t, status, s.cmd.ProcessState.ExitCode(), "%s", text)
	return string(text)
}

// single are the flags of a group of one.
var single = []string{"--self=1", "--member=1=127.0.0.1:0"}

var natsURL = sync.OnceValues(func() (string, error) {
	url, _, err := nats.Broker.Serve("") // ends with the tests
	return url, err
})

// group returns the flags of each of n members that meet over NATS.
func group(t *testing.T, n int) func(self int) []string {
	t.Helper()
	url, err := natsURL()
	require.NoError(t, err)
	prefix := "dmutex-test." + rand.Text()
	return func(self int) []string {
		flags := []string{"--nats=" + url, "--prefix=" + prefix, fmt.Sprint("--self=", self)}
		for id := range n {
			flags = append(flags, fmt.Sprint("--member=", id+1))
		}
		return flags
	}
}

// join makes the test itself a member, with the flags that a run would have.
func join(t *testing.T, flags []string) *node.Node {
	t.Helper()
	n, _ := joinAt(t, flags)
	return n
}

// joinAt returns also where the member listens, if it does.
func joinAt(t *testing.T, flags []string) (n *node.Node, address string) {
	t.Helper()
	var line struct {
		Run Cmd `cmd:""`
	}
	_, err := kong.Must(&line).Parse(append(append([]string{"run"}, flags...), "--", "nothing"))
	require.NoError(t, err)
	silent := slog.New(slog.DiscardHandler)
	m, err := line.Run.connect(silent)
	require.NoError(t, err)
	t.Cleanup(m.Close)
	n, err = node.Open(t.Context(), line.Run.config(m, silent))
	require.NoError(t, err)
	t.Cleanup(func() { n.Close(t.Context()) }) // ended by then
	if tcp, ok := m.Link.(*tcplink.Link); ok {
		address = tcp.Addr().String()
	}
	return n, address
}

// acquire acquires the lock of run, unless it takes too long.
func acquire(t *testing.T, n *node.Node) *node.Held {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tooLong)
	defer cancel()
	held, err := n.Mutex("run").Acquire(ctx)
	require.NoError(t, err)
	return held
}

// Every member runs its command once, one at a time, with fences that rise and
// are above --fence, also if only one machine gives it (L77).
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	flags := group(t, 3)
	inside := filepath.Join(t.TempDir(), "inside")
	var runs []*started
	hours := time.Since(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)) + 9*time.Hour
	fence := membership.FirstFence(uint64(hours.Milliseconds())) + 1000 // above the clocks
	least := fence
	for self := 1; self <= 3; self++ {
		its := append(flags(self), "--lock=door")
		if self == 2 {
			its = append(its, fmt.Sprint("--fence=", fence))
		}
		runs = append(runs, start(t, its,
			"enter:"+inside, "say:in $DMUTEX_NODE $DMUTEX_FENCE $DMUTEX_LOCK", "wait", "leave:"+inside, "say:out"))
	}
	next := listen(runs...)
	var order []int
	for range 3 {
		w := next()
		last := fence
		_, err := fmt.Sscanf(w.line, fmt.Sprintf("in %d %%d door", w.run), &fence)
		require.NoError(t, err, w.line)
		require.Greater(t, membership.EpochOf(fence), membership.EpochOf(least))
		require.Greater(t, fence, last)
		runs[w.run-1].goOn()
		require.Equal(t, word{w.run, "read on"}, next())
		require.Equal(t, word{w.run, "out"}, next())
		order = append(order, w.run)
	}
	require.ElementsMatch(t, []int{1, 2, 3}, order)
	for _, s := range runs {
		require.NoError(t, s.cmd.Wait())
	}
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

// A machine leaves when its command has ended, also the one that grants the lock,
// and even if its output is not read. The others continue without it.
func TestRunLeaves(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprint("deaf=", deaf), func(t *testing.T) {
			t.Parallel()
			flags := group(t, 3)
			two, three := join(t, flags(2)), join(t, flags(3))
			one := start(t, flags(1), "say:in", "wait", "exit:5")
			require.Equal(t, "in", one.line())
			if deaf {
				one.err.Close()
			}
			one.goOn()
			if deaf {
				one.cmd.Wait()
				require.Equal(t, 5, one.cmd.ProcessState.ExitCode(), one.cmd.ProcessState)
			} else {
				require.Empty(t, one.exits(5))
			}
			held := acquire(t, two)
			require.Equal(t, []dmutex.NodeID{2, 3}, two.Status().View.Members)
			require.NoError(t, held.Release())
			require.NoError(t, acquire(t, three).Release())
		})
	}
}

// While the command of a killed run may live on, no other machine gets the lock.
// When the run is started again it rejoins, and all runs finish.
func TestRunAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	for _, killed := range []int{1, 2} { // the machine that grants the lock, and another
		t.Run(fmt.Sprint("killed=", killed), func(t *testing.T) {
			t.Parallel()
			flags := group(t, 3)
			member := join(t, flags(3-killed))
			run := start(t, flags(killed), "say:$DMUTEX_FENCE", "wait", "say:out")
			waiter := join(t, flags(3))
			last := run.fence()
			require.NoError(t, run.cmd.Process.Kill())
			run.cmd.Wait()
			granted := make(chan *node.Held, 1)
			go func() {
				held, _ := waiter.Mutex("run").Acquire(t.Context())
				granted <- held
			}()
			run.goOn()
			require.Equal(t, "read on", run.line())
			require.Equal(t, "out", run.line())
			if killed == 2 {
				_, err := member.Mutex("run").TryAcquire(t.Context())
				require.ErrorIs(t, err, node.ErrBusy)
			}
			require.Empty(t, granted)

			run = start(t, flags(killed), "say:$DMUTEX_FENCE", "exit:3")
			held := <-granted
			require.NotNil(t, held)
			require.Greater(t, held.Fence(), last)
			require.NoError(t, held.Release())
			require.Greater(t, run.fence(), last)
			run.exits(3)
			held = acquire(t, member)
			require.Greater(t, held.Fence(), last)
		})
	}
}

// fence reads the fence that the command says next.
func (s *started) fence() uint64 {
	s.t.Helper()
	fence, err := strconv.ParseUint(s.line(), 10, 64)
	require.NoError(s.t, err)
	return fence
}

// A machine that leaves waits for one that was killed. A signal cuts that short.
func TestRunSignalWhileLeaving(t *testing.T) {
	coordinator, holder, waiter := contend(t)
	has := coordinator.Mutex("run").Status().Holder
	require.NoError(t, waiter.cmd.Process.Kill())
	holder.goOn()
	require.Eventually(t, func() bool { return coordinator.Mutex("run").Status().Holder != has }, tooLong, time.Millisecond)
	holder.signal(syscall.SIGTERM)
	require.Contains(t, holder.exits(0), "ended before the group agreed")
}

// While a run is alive, a second one with its number runs nothing.
func TestRunNumberTaken(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for some seconds")
	}
	t.Parallel()
	flags := group(t, 2)
	join(t, flags(1))
	two := start(t, flags(2), "say:in", "wait")
	require.Equal(t, "in", two.line())
	require.Contains(t, start(t, flags(2), "say:never").exits(statusNoLock), "nothing was run: node: "+node.ErrNumberTaken.Error())
	two.goOn()
	two.exits(0)
}

// Before all have met no member depends on it: a signal ends it at once, and it
// may start again.
func TestRunSignalBeforeAllHaveMet(t *testing.T) {
	flags := group(t, 3)
	two := join(t, flags(2))
	one := start(t, flags(1), "say:never")
	require.Eventually(t, func() bool { return two.Status().Peers[0].Met }, tooLong, time.Millisecond)
	one.signal(syscall.SIGINT)
	require.Contains(t, one.exits(statusSignal+int(syscall.SIGINT)), "nothing was run: interrupt")
	one = start(t, flags(1), "say:in")
	join(t, flags(3))
	require.Equal(t, "in", one.line())
}

// A signal that is ignored, as under nohup, is not passed on.
func TestRunIgnoredSignal(t *testing.T) {
	args := []string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh", os.Args[0], "run"}
	s := startArgs(t, append(append(args, single...), "--", os.Args[0], "child", "trap", "say:ready", "caught", "exit:2"))
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
		{"as ours", step("exit:125"), 125, ""},
		{"signal", step("die:9"), 137, ""},
		{"not found", []string{"no-such-command"}, statusNotFound, `"no-such-command": executable file not found`},
		{"not there", []string{script + "s"}, statusNotFound, "no such file"},
		{"not executable", []string{script}, statusNotExecutable, "permission denied"},
		{"no command", []string{os.TempDir()}, statusNotExecutable, "permission denied"},
	} {
		t.Run(c.name, func(t *testing.T) {
			said := startCommand(t, single, c.command...).exits(c.status)
			require.Contains(t, said, c.said)
			require.Equal(t, c.said == "", said == "", said)
		})
	}
}

// A wrong command line has a status that commands seldom use.
func TestRunUsage(t *testing.T) {
	for _, c := range []struct{ line, words string }{
		{"-- x", "give --store=URL, or --self=N and --member"},
		{"--self=1 -- x", "give --store=URL, or --self=N and --member"},
		{"--member=1=:1 -- x", "give --store=URL, or --self=N and --member"},
		{"--self=1 --member=1=:1", "give a command, after --"},
		{"--self=1 --member=1=:1 --", "give a command, after --"},
		{"--self=1 --member=1 -- x", "--member=1: give its address, as in 1=HOST:PORT"},
		{"--self=1 --member=one=:1 -- x", `"one=:1" is not a member`},
		{"--self=1 --member=0=:1 -- x", `"0=:1" is not a member`},
		{"--self=3 --member=1=:1 --member=2=:2 -- x", "--self=3 is not one of the members"},
		{"--self=1 --member=1=:1 --member=1=:2 -- x", "--member=1 is given twice"},
		{"--self=1 --member=1=:1 --grace=-1s -- x", "--grace=-1s: choose 0s or more"},
		{"--self=1 --member=1=:1 --cert=c -- x", "--cert and --key and --authority must be used together"},
		{"--self=1 --member=1=:1 --cert=c --key=k --authority=a --plain -- x", "can't be used together"},
		{"--self=1 --member=1=:1 --nats=nats://h --prefix=p -- x", "over NATS a member has no address"},
		{"--self=1 --member=1 --nats=nats://h -- x", "--nats and --prefix must be used together"},
		{"--self=1 --member=1 --nats=nats://h --prefix=p --plain -- x", "--plain is for TCP"},
		{"--self=1 --member=1 --nats=nats://h --prefix=p --listen=:1 -- x", "--listen is for TCP"},
		{"--self=1 --member=1=:1 --lease=1s -- x", "--lease is for --store"},
		{"--self=1 --member=1=:1 --advertise=h:1 -- x", "--advertise is for --store"},
		{"--self=1 --member=1=192.0.2.1:1 -- x", "Config.AllowPlain is --plain"},
		{"--self=1 --member=1=127.0.0.1:0 --lock= -- x", "the name of a lock has 1 to"},
		{"--self=1 --member=1=127.0.0.1:0 --cert=c --key=k --authority=a -- x", "open c: no such file"},
	} {
		t.Run(c.line, func(t *testing.T) {
			status, stdout, stderr := invoke(strings.Fields("run " + c.line)...)
			require.Equal(t, statusNoLock, status, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, c.words)
		})
	}
	status, stdout, _ := invoke("run", "--help")
	require.Equal(t, tool.StatusOK, status)
	require.Contains(t, stdout, "Exit status: the command's,")
}

// A signal goes to the command and to its children (L76).
func TestRunPassesSignalsOn(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			s := start(t, single, "fork", "trap", "say:ready", "caught", "end", "trap", "say:ready", "caught", "caught", "exit:6")
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
func TestRunEndsWhatIsStopped(t *testing.T) {
	s := start(t, single, "forkstopped", "stop", "end", "say:ready", "wait")
	require.Equal(t, "ready", s.line())
	s.signal(syscall.SIGTERM)
	s.exits(statusSignal + int(syscall.SIGTERM))
}

// The processes that the command leaves behind get a signal to end, and the lock is
// released when they have (L76).
func TestRunReleasesWhenAllHaveEnded(t *testing.T) {
	flags := group(t, 2)
	one := join(t, flags(1))
	two := start(t, flags(2), "fork", "trap", "say:ready", "caught", "wait", "end", "wait", "exit:3")
	require.Equal(t, "ready", two.line())
	two.goOn()
	require.Equal(t, "read on", two.line(), "the command ends")
	require.Equal(t, "caught terminated", two.line())
	_, err := one.Mutex("run").TryAcquire(t.Context())
	require.ErrorIs(t, err, node.ErrBusy)
	two.goOn()
	require.Equal(t, "read on", two.line())
	acquire(t, one)
	two.exits(3)
}

// A process that does not end is killed after the grace.
func TestRunKillsAfterGrace(t *testing.T) {
	s := start(t, append(single, "--grace=1ms"), "fork", "trap", "say:ready", "hang", "end", "wait", "exit:4")
	require.Equal(t, "ready", s.line())
	s.goOn()
	s.exits(4)
}

// When the lock is lost the command and its children end, and the status says so
// (L77).
func TestRunActsOnLoss(t *testing.T) {
	for _, how := range []string{"ends", "is killed"} {
		t.Run(how, func(t *testing.T) {
			n := join(t, single)
			held := acquire(t, n)
			in, stdin := pipe(t)
			stdout, out := pipe(t)
			said, says := pipe(t)
			r := &runner{Cmd: &Cmd{Lock: "run", Grace: tooLong}, node: n, con: &tool.Console{In: in, Out: out, Err: says}}
			steps := []string{"fork", "trap", "say:ready", "caught", "end", "trap", "say:ready", "caught", "exit:0"}
			if how == "is killed" {
				steps[3], steps[7], r.Grace = "hang", "hang", time.Millisecond
			}
			r.Command = append([]string{os.Args[0], "child"}, steps...)
			status := make(chan int)
			go func() { status <- r.work(held) }()
			lines := bufio.NewReader(stdout)
			for range 2 {
				line, err := lines.ReadString('\n')
				require.NoError(t, err)
				require.Equal(t, "ready\n", line)
			}
			require.NoError(t, n.Close(t.Context()))
			require.Equal(t, statusLost, <-status)
			out.Close()
			says.Close()
			rest, err := io.ReadAll(lines)
			require.NoError(t, err)
			if how == "ends" {
				require.Equal(t, strings.Repeat("caught terminated\n", 2), string(rest))
			}
			why, err := io.ReadAll(said)
			require.NoError(t, err)
			require.Contains(t, string(why), "the command was ended: node: lock was lost")
			for _, f := range []*os.File{in, stdin, stdout, said} {
				f.Close()
			}
		})
	}
}

// A signal ends the wait: nothing runs, and no other machine loses its turn.
func TestRunSignalWhileWaiting(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			coordinator, holder, waiter := contend(t)
			waiter.signal(sig)
			waiter.says("nothing was run: " + sig.String())
			require.Empty(t, waiter.exits(statusSignal+int(sig)))
			holder.goOn()
			holder.exits(0)
			acquire(t, coordinator)
		})
	}
}

// contend returns a coordinator and two runs. One has the lock, and its command
// waits; the other waits for the lock.
func contend(t *testing.T) (coordinator *node.Node, holder, waiter *started) {
	t.Helper()
	flags := group(t, 3)
	coordinator = join(t, flags(1))
	holder, waiter = start(t, flags(2), "wait"), start(t, flags(3), "wait")
	require.Eventually(t, func() bool { return coordinator.Status().Received[dmutex.Request] == 2 }, tooLong, time.Millisecond)
	if coordinator.Mutex("run").Status().Holder == 3 {
		holder, waiter = waiter, holder
	}
	return coordinator, holder, waiter
}

// A member that names another lock does not meet the others.
func TestRunLocksDiffer(t *testing.T) {
	flags := group(t, 2)
	join(t, flags(1))
	two := start(t, append(flags(2), "--lock=other"), "say:in")
	two.says("these differ: Group")
	two.signal(syscall.SIGINT)
	require.Contains(t, two.exits(statusSignal+int(syscall.SIGINT)), "nothing was run: interrupt")
}

// Over TCP, with TLS and without.
func TestRunTCP(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("secure=", secure), func(t *testing.T) {
			var security [3][]string
			if secure {
				security = certificates(t)
			}
			one, address := joinAt(t, append(security[1], "--self=1", "--member=1=127.0.0.1:0", "--member=2=127.0.0.1:1")) // the other one dials
			two := start(t, append(security[2], "--self=2", "--member=1="+address+",2=192.0.2.1:1", "--listen=127.0.0.1:0"), "say:in", "wait")
			if !secure {
				require.Contains(t, two.exits(statusNoLock), "beyond loopback")
				two = start(t, []string{"--self=2", "--member=1=" + address + ",2=192.0.2.1:1", "--listen=127.0.0.1:0", "--plain"}, "say:in", "wait")
			}
			require.Equal(t, "in", two.line())
			_, err := one.Mutex("run").TryAcquire(t.Context())
			require.ErrorIs(t, err, node.ErrBusy)
			two.goOn()
			acquire(t, one)
			require.Empty(t, two.exits(0))
		})
	}
}

// certificates makes an authority and a certificate for nodes 1 and 2, and
// returns the flags with which these use them.
func certificates(t *testing.T) (flags [3][]string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte, err error) string {
		require.NoError(t, err)
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return name
	}
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	keyFile := write("key.pem", "PRIVATE KEY", key, err)
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, authority, authority, public, private)
	authorityFile := write("authority.pem", "CERTIFICATE", der, err)
	for id := 1; id <= 2; id++ {
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
			URIs:        []*url.URL{{Scheme: "dmutex", Opaque: fmt.Sprint("node:", id)}},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, leaf, authority, public, private)
		file := write(fmt.Sprint("node", id, ".pem"), "CERTIFICATE", der, err)
		flags[id] = []string{"--cert=" + file, "--key=" + keyFile, "--authority=" + authorityFile}
	}
	return flags
}
