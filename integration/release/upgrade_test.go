//go:build unix

package release

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// before returns the last release before the present commit, which may be one itself.
func before(repo string) string {
	cmd := exec.Command("git", "-C", repo, "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^")
	cmd.Env = environ()
	out, _ := cmd.Output() // it fails if there is none
	return strings.TrimSpace(string(out))
}

// TestUpgrade replaces the members of a group one after another: members of the last release by
// members of this tree, and back. No client of either build fails meanwhile, and fences rise. Before
// the first release, the last commit stands for it.
func TestUpgrade(t *testing.T) {
	if os.Getenv("DMUTEX_LONG") == "" {
		t.Skip("builds the tool twice: set DMUTEX_LONG=1")
	}
	top := top(t)
	dir := t.TempDir()
	last := cmp.Or(before(top), "HEAD")
	source := filepath.Join(dir, "source")
	require.NoError(t, os.Mkdir(source, 0o755))
	run(t, top, nil, "sh", "-c", `git archive "$1" | tar -x -C "$2"`, "sh", last, source)
	builds := map[string]string{"old": source, "new": top}
	for name, from := range builds {
		builds[name] = filepath.Join(dir, name)
		run(t, from, nil, "go", "build", "-o", builds[name], "./cmd/dmutex")
	}

	members := make([]*member, 3)
	var at []string
	for i := range members {
		members[i] = startMember(t, builds["old"], filepath.Join(dir, "record"), "127.0.0.1:0")
		at = append(at, members[i].address)
	}
	for _, m := range members {
		m.until("view acts")
	}
	fences := filepath.Join(dir, "fences")
	runs := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer cancel()
	for _, build := range []string{"old", "new", "old", "new"} {
		load.Go(func() {
			for {
				out, err := exec.CommandContext(ctx, builds[build], "run", "--at="+strings.Join(at, ","), "--lock=x", "--", "sh", "-c", `echo "$DMUTEX_FENCE" >>"$0"`, fences).CombinedOutput()
				if err != nil {
					err = fmt.Errorf("%s: %w: %s", build, err, out)
				}
				select {
				case runs <- err:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	some := func() { // waits for some runs, and requires that they succeed
		for range 12 {
			require.NoError(t, <-runs)
		}
	}
	some()
	for _, build := range []string{"new", "old"} {
		for i, m := range members {
			require.NoError(t, m.cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, m.cmd.Wait(), m.said)
			members[i] = startMember(t, builds[build], filepath.Join(dir, "record"), m.address)
			members[i].until("view acts")
			some()
		}
	}
	var all []uint64
	for line := range strings.FieldsSeq(read(t, fences)) {
		fence, err := strconv.ParseUint(line, 10, 64)
		require.NoError(t, err)
		all = append(all, fence)
	}
	require.IsIncreasing(t, all)
}

// A member is a process of dmutex serve.
type member struct {
	t       *testing.T
	cmd     *exec.Cmd
	lines   *bufio.Scanner
	said    string
	address string
}

// startMember starts a member, and waits until it listens.
func startMember(t *testing.T, build, record, listen string) *member {
	t.Helper()
	m := &member{t: t, cmd: exec.Command(build, "serve", "--group="+record, "--listen="+listen, "--lease=3s")}
	said, stderr, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, said.SetReadDeadline(time.Now().Add(time.Minute)))
	m.cmd.Stderr = stderr
	require.NoError(t, m.cmd.Start())
	stderr.Close()
	t.Cleanup(func() {
		said.Close()
		if m.cmd.ProcessState == nil {
			m.cmd.Process.Kill()
			m.cmd.Wait()
		}
	})
	m.lines = bufio.NewScanner(said)
	_, m.address, _ = strings.Cut(m.until("clients connect here"), " address=")
	return m
}

// until reads what a member says up to a line with some words. After "view acts" it drops the rest.
func (m *member) until(words string) string {
	m.t.Helper()
	for m.lines.Scan() {
		m.said += m.lines.Text() + "\n"
		if strings.Contains(m.lines.Text(), words) {
			if words == "view acts" {
				go func() {
					for m.lines.Scan() {
					}
				}()
			}
			return m.lines.Text()
		}
	}
	require.Fail(m.t, "not said: "+words, m.said)
	return ""
}
