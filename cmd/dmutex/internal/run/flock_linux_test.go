package run

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAgainstFlock compares a hundred runs at once with a hundred of flock(1), and one run with one
// flock. It needs DMUTEX_LONG=1, and -v shows the times.
func TestAgainstFlock(t *testing.T) {
	if os.Getenv("DMUTEX_LONG") == "" {
		t.Skip("takes long: set DMUTEX_LONG=1")
	}
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	tool := filepath.Join(dir, "dmutex")
	out, err := exec.Command("go", "build", "-o", tool, "github.com/dmutex/dmutex/cmd/dmutex").CombinedOutput()
	require.NoError(t, err, "%s", out)
	at := func(n int, command ...string) time.Duration {
		_, took := atOnce(t, n, command...)
		return took
	}
	run := []string{tool, "run", "--store=" + filepath.Join(dir, "locks"), "--lock=job", "--"}
	flock := []string{"flock", filepath.Join(dir, "flock")}
	for range 3 {
		theirs := at(100, append(flock, "sleep", "0.05")...)
		ours := at(100, append(run, "sleep", "0.05")...)
		t.Logf("100 at once: flock %v, dmutex run %v, %.2f times", theirs, ours, float64(ours)/float64(theirs))
	}
	for range 5 {
		t.Logf("one alone, true: flock %v, dmutex run %v", at(1, append(flock, "true")...), at(1, append(run, "true")...))
	}
}
