//go:build unix

package servers

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// BuildTool builds dmutex with a tag, and returns where it is.
func BuildTool(t *testing.T, tag string) string {
	t.Helper()
	tool := filepath.Join(t.TempDir(), "dmutex")
	out, err := exec.Command("go", "build", "-tags", tag, "-o", tool, "github.com/dmutex/dmutex/cmd/dmutex").CombinedOutput()
	require.NoError(t, err, string(out))
	return tool
}

// ServeAt has two members of a group with its record at this URL serve clients. The second one goes on when the first was
// killed.
func ServeAt(t *testing.T, tool, group string) {
	t.Helper()
	member := func() (cmd *exec.Cmd, address string) {
		cmd = exec.Command(tool, "serve", "--group="+group, "--meet=127.0.0.1:0", "--listen=127.0.0.1:0", "--lease=1s")
		log, err := cmd.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		lines := bufio.NewScanner(log)
		for said := ""; address == ""; said += lines.Text() + "\n" {
			require.True(t, lines.Scan(), "it ends: %s", said)
			if strings.Contains(lines.Text(), "clients connect here") {
				_, address, _ = strings.Cut(lines.Text(), " address=")
			}
		}
		go func() { // else it would wait for a reader of its log
			for lines.Scan() {
			}
		}()
		return cmd, address
	}
	one, first := member()
	two, second := member()
	run := func(at string) {
		t.Helper()
		out, err := exec.Command(tool, "run", "--at="+at, "--lock=door", "-w", "60", "--", "echo", "in").CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "in\n")
	}
	run(first)
	run(second)
	require.NoError(t, one.Process.Kill())
	run(first + "," + second)
	require.NoError(t, two.Process.Signal(syscall.SIGTERM))
	require.NoError(t, two.Wait())
}
