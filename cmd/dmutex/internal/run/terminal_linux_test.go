package run

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
	"github.com/dmutex/dmutex/lock/locktest"
)

// A screen is a terminal with a program that a user talks with.
type screen struct {
	t        *testing.T
	keyboard *os.File
	program  *exec.Cmd
	said     string
	more     chan string
}

// shells are interactive ones, without line editors.
var shells = map[string][]string{
	"bash": {"--norc", "--noprofile", "--noediting", "-i"},
	"dash": {"-i"},
	"zsh":  {"-f", "-i", "+Z"},
}

// eachShell runs a test in each shell that is installed. The command locked is a run under the lock of the
// flags, and hangs is a command that tells its number and that of its parent.
func eachShell(t *testing.T, flags []string, test func(t *testing.T, s *screen)) {
	for name, args := range shells {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(name); err != nil {
				t.Skip(err)
			}
			s := newScreen(t, flags, name, args...)
			s.types("PS1='ready''> '; stty -echo; set -m\n")
			s.until("ready> ")
			test(t, s)
		})
	}
}

// newScreen starts a program on a terminal of its own.
func newScreen(t *testing.T, flags []string, program string, args ...string) *screen {
	t.Helper()
	keyboard, terminal := tooltest.Terminal(t)
	s := &screen{t: t, keyboard: keyboard, program: exec.Command(program, args...), more: make(chan string)}
	s.program.Stdin, s.program.Stdout, s.program.Stderr = terminal, terminal, terminal
	s.program.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	path := t.TempDir()
	run := fmt.Sprintf("#!/bin/sh\nexec %s run %s -- \"$@\"\n", os.Args[0], strings.Join(flags, " "))
	require.NoError(t, os.WriteFile(filepath.Join(path, "locked"), []byte(run), 0o700))
	hangs := fmt.Sprintf("#!/bin/sh\nexec %s child say:hangs pid parent hang\n", os.Args[0])
	require.NoError(t, os.WriteFile(filepath.Join(path, "hangs"), []byte(hangs), 0o700))
	s.program.Env = append(os.Environ(), "PATH="+path+":"+os.Getenv("PATH"), "PS1=", "HISTFILE=", "TERM=dumb")
	require.NoError(t, s.program.Start())
	terminal.Close()
	go func() {
		defer close(s.more)
		some := make([]byte, 4096)
		for {
			n, err := keyboard.Read(some)
			if err != nil {
				return
			}
			select {
			case s.more <- string(some[:n]):
			case <-t.Context().Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		s.program.Process.Kill()
		s.program.Wait()
	})
	return s
}

func (s *screen) types(text string) {
	s.t.Helper()
	_, err := s.keyboard.WriteString(text)
	require.NoError(s.t, err)
}

// until waits until the screen has words of this form, and returns what it has up to their end, and the groups of the form.
func (s *screen) until(form string) []string {
	s.t.Helper()
	words := regexp.MustCompile("(?s)^.*?" + form)
	late := time.After(tooltest.TooLong)
	for {
		if at := words.FindStringSubmatchIndex(s.said); at != nil {
			found := words.FindStringSubmatch(s.said)
			s.said = s.said[at[1]:]
			return found
		}
		select {
		case more, ok := <-s.more:
			require.True(s.t, ok, "it has ended without %q: %q", form, s.said)
			s.said += more
		case <-late:
			require.FailNow(s.t, "it does not say what it should", "%q: %q", form, s.said)
		}
	}
}

// number waits for a line with the number of a process.
func (s *screen) number(of string) int {
	s.t.Helper()
	pid, err := strconv.Atoi(s.until(of + ` (\d+)\r`)[1])
	require.NoError(s.t, err)
	return pid
}

// is waits until a process is in one of these states, such as T.
func (s *screen) is(pid int, states string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return strings.Contains(states, stateOf(pid)) }, tooltest.TooLong, time.Millisecond, "%d is not %s", pid, states)
}

// front waits until the group of one of these processes has the terminal.
func (s *screen) front(pids ...int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		front, err := unix.IoctlGetInt(int(s.keyboard.Fd()), unix.TIOCGPGRP)
		return err == nil && slices.ContainsFunc(pids, func(pid int) bool {
			group, err := syscall.Getpgid(pid)
			return err == nil && group == front
		})
	}, tooltest.TooLong, time.Millisecond, "it does not have the terminal")
}

// stateOf returns the letter for the state of a process, or - if it has gone.
func stateOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "-"
	}
	return strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[0]
}

// A command uses the terminal as it does without a run: it reads, sets modes and writes under tostop, in the foreground,
// in a script, in a pipe, and with a pager behind it.
func TestTerminalUse(t *testing.T) {
	eachShell(t, inDir(t), func(t *testing.T, s *screen) {
		for _, line := range []string{
			`locked sh -c 'echo asks; read x; echo "got"=$x'`,
			`locked sh -c 'exec 3</dev/tty; echo asks; read x <&3; echo "got"=$x'`,
			`locked sh -c 'stty -a >/dev/null; stty -echo; echo asks; read x; stty -echo; echo "got"=$x'`,
			`stty tostop; locked sh -c 'echo asks; read x; echo "got"=$x'; stty -tostop`,
			`sh -c 'locked sh -c "echo asks; read x; echo \"got\"=\$x"; true'`,
			`sh -c 'stty tostop; locked sh -c "stty -echo; echo asks; read x; echo \"got\"=\$x"; stty -tostop'`,
			`locked sh -c 'echo asks; read x </dev/tty; echo "got"=$x' | cat`,
			`echo | locked sh -c 'echo asks; read x </dev/tty; echo "got"=$x'`,
			`locked sh -c 'sleep 0.01; echo data' | sh -c 'read d; echo asks; stty -echo </dev/tty; read x </dev/tty; echo "got"=$x'`,
			`locked true; echo asks; read x; echo "got"=$x`,
			`locked sh -c 'trap "" TTOU; echo asks; read x; echo "got"=$x'; locked sh -c 'kill -9 $$'`,
		} {
			s.types(line + "\n")
			s.until("asks")
			s.types("hello\n")
			s.until("got=hello")
			s.until("ready> ")
		}
	})
}

// Ctrl-Z stops the run and its command, all processes of it, and bg and fg continue both.
func TestTerminalStop(t *testing.T) {
	for where, line := range map[string]string{
		"foreground": "locked hangs",
		"pipe":       "locked hangs | cat",
		"script":     `sh -c "locked hangs; true"`,
		"ignores":    `locked sh -c 'echo parent $PPID; (trap "" TSTP; exec hangs); true'`,
	} {
		t.Run(where, func(t *testing.T) {
			eachShell(t, inDir(t), func(t *testing.T, s *screen) {
				s.types(line + "\n")
				run := 0
				if where == "ignores" {
					run = s.number("parent")
				}
				command := s.number("pid")
				if run == 0 {
					run = s.number("parent")
				}
				running := "RSD"
				s.is(command, running)
				for _, resume := range []string{"fg", "fg", "bg"} {
					s.front(run, command)
					s.types("\x1a")
					s.is(command, "T")
					s.is(run, "T")
					s.until("ready> ")
					s.types(resume + "\n")
					s.is(command, running)
					s.is(run, running)
					if resume == "bg" {
						s.until("ready> ")
						s.types("fg\n")
					}
				}
				s.front(run, command)
				s.types("\x03")
				s.until("ready> ")
				s.types("echo status=$?\n")
				s.until("status=130")
				s.is(command, "-")
			})
		})
	}
}

// Ctrl-C ends the loop, the script or the list that the run is in, and not only the run.
func TestTerminalInterrupt(t *testing.T) {
	for name, line := range map[string]string{
		"loop":   "for i in 1 2 3; do locked hangs; done",
		"script": `sh -c "for i in 1 2 3; do locked hangs; done"`,
		"bash":   `bash -c "for i in 1 2 3; do locked hangs; done"`,
		"reads":  `sh -c "for i in 1 2 3; do locked sh -c 'stty -echo; exec hangs'; done"`,
		"list":   "locked hangs && echo hangs again",
	} {
		t.Run(name, func(t *testing.T) {
			eachShell(t, inDir(t), func(t *testing.T, s *screen) {
				s.types(line + "\n")
				s.until(`parent \d+\r`)
				s.types("\x03")
				require.NotContains(t, s.until("ready> ")[0], "hangs")
			})
		})
	}
}

// A command in the background that needs the terminal is stopped together with its run, as every job is, and fg lets it go on.
func TestTerminalBackground(t *testing.T) {
	eachShell(t, inDir(t), func(t *testing.T, s *screen) {
		s.types("locked sh -c 'echo pid $$; echo parent $PPID; read x </dev/tty; echo \"got\"=$x' &\n")
		command, run := s.number("pid"), s.number("parent")
		s.is(command, "T")
		s.is(run, "T")
		for stopped := false; !stopped; { // until the shell knows
			s.types("jobs\n")
			stopped = regexp.MustCompile("(?i)stopped|suspended").MatchString(s.until("ready> ")[0])
		}
		s.types("fg\n")
		s.is(run, "RSD")
		s.until("locked")
		s.types("hello\n")
		s.until("got=")
		s.until("ready> ")
	})
}

// When the terminal hangs up, or its shell dies, the command and the run end, and the lock is free.
func TestTerminalHangup(t *testing.T) {
	flags := inDir(t)
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			eachShell(t, flags, func(t *testing.T, s *screen) {
				s.types("locked hangs\n")
				command, run := s.number("pid"), s.number("parent")
				s.front(command)
				require.NoError(t, s.program.Process.Signal(sig))
				s.is(command, "-")
				s.is(run, "-Z")
				require.NoError(t, tooltest.Acquire(t, lockOf(t, flags)).Release())
			})
		})
	}
}

// A command that is stopped with its run for longer than the session writes nothing after another got the lock, and is
// ended when the shell continues the run (L77).
func TestTerminalStopLosesLock(t *testing.T) {
	flags, n := inGroup(t, 2*time.Second)
	eachShell(t, flags, func(t *testing.T, s *screen) {
		file := filepath.Join(t.TempDir(), "written")
		writers := "while :; do echo x >>" + file + "; done" // so many that one runs between two signals
		s.types("locked sh -c 'echo pid $$; echo parent $PPID; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do " + writers + " & done; " + writers + "'\n")
		command, run := s.number("pid"), s.number("parent")
		require.Eventually(t, func() bool { _, err := os.Stat(file); return err == nil }, tooltest.TooLong, time.Millisecond, "it writes")
		s.front(command)
		s.types("\x1a")
		s.is(command, "T")
		s.is(run, "T")
		s.until("ready> ")
		held := tooltest.Acquire(t, n.Mutex("my/door"))
		before, err := os.Stat(file)
		require.NoError(t, err)
		s.types("fg\n")
		s.until("the command was ended: ")
		s.until("ready> ")
		s.is(command, "-")
		after, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, before.Size(), after.Size())
		s.types("echo status=$?\n")
		s.until("status=124")
		require.NoError(t, held.Release())
	})
}

// A signal to all processes of a unit, in whatever order and however often, reaches the command once each time.
func TestRunUnit(t *testing.T) {
	t.Setenv("INVOCATION_ID", "a unit of systemd")
	for _, first := range []string{"the run", "its children"} {
		t.Run(first, func(t *testing.T) {
			s := start(t, inDir(t), "trap", "say:ready", "caught", "caught", "caught", "caught", "exit:6")
			require.Equal(t, "ready", s.line())
			for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGTERM} {
				var all []string
				for len(all) != 2 { // the kernel may leave one out while others begin or end, and a thread may end
					all = nil
					threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.cmd.Process.Pid))
					require.NoError(t, err)
					require.NotEmpty(t, threads)
					for _, file := range threads {
						children, _ := os.ReadFile(file)
						all = append(all, strings.Fields(string(children))...)
					}
				}
				if first == "the run" {
					s.signal(sig)
				}
				for _, child := range all {
					pid, err := strconv.Atoi(child)
					require.NoError(t, err)
					require.NoError(t, syscall.Kill(pid, sig))
				}
				if first != "the run" {
					s.signal(sig)
				}
				require.Equal(t, fmt.Sprint("caught ", sig), s.line())
			}
			s.signal(syscall.SIGINT)
			require.Equal(t, "caught interrupt", s.line(), "and not SIGTERM again")
			s.exits(6)
		})
	}
}

// While it is not known yet whether a signal has reached all of a unit, the command of a lock that is lost is ended.
func TestRunUnitLoses(t *testing.T) {
	t.Setenv("INVOCATION_ID", "a unit of systemd")
	l := locktest.New("door")
	held := tooltest.Acquire(t, l)
	stdout, out := pipe(t)
	cmd := exec.Command(os.Args[0], "child", "trap", "say:ready", "caught", "exit:6")
	cmd.Stdout, cmd.SysProcAttr = out, new(syscall.SysProcAttr)
	j, err := startJob(cmd, false)
	require.NoError(t, err)
	out.Close()
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	j.unit, j.grace = startUnit(), tooltest.TooLong
	defer j.unit.dismiss()
	j.unit.patience = time.Hour
	signals := make(chan os.Signal)
	over := make(chan struct{})
	go func() {
		defer close(over)
		j.wait(held, signals)
	}()
	signals <- syscall.SIGHUP
	l.Lose(errors.New("the test takes it"))
	line, err = lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "caught terminated\n", line)
	<-over
	stdout.Close()
}

// A signal that only the run gets is passed on also in a unit.
func TestRunUnitAlone(t *testing.T) {
	t.Setenv("INVOCATION_ID", "a unit of systemd")
	s := start(t, inDir(t), "trap", "say:ready", "caught", "exit:6")
	require.Equal(t, "ready", s.line())
	s.signal(syscall.SIGTERM)
	require.Equal(t, "caught terminated", s.line())
	s.exits(6)
}

// A run that stops itself stays stopped until a SIGCONT that comes after that, whatever came before.
func TestPause(t *testing.T) {
	s := startArgs(t, []string{os.Args[0], "child", "say:ready", "pause", "pause", "pause", "pause", "exit:3"})
	require.Equal(t, "ready", s.line())
	for range 4 {
		require.Eventually(t, func() bool { return stateOf(s.cmd.Process.Pid) == "T" }, tooltest.TooLong, time.Millisecond)
		_ = s.out.SetReadDeadline(time.Now())
		_, err := s.stdout.ReadByte()
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it went on before it was stopped")
		_ = s.out.SetReadDeadline(time.Now().Add(tooltest.TooLong))
		s.signal(syscall.SIGCONT)
		require.Equal(t, "on", s.line())
	}
	s.exits(3)
}
