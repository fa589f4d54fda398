package world

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// With DMUTEX_SHRINK=1 and a DMUTEX_SEED that fails, it leaves out one fault after the other for as long as the seed still
// fails, and prints the command with those that are left. A seed does not fail each time, so each is run up to ten times.
// With DMUTEX_SHRINK=stalls it does so in the build with stalls, where it does.
func TestShrink(t *testing.T) {
	if os.Getenv("DMUTEX_SHRINK") == "" {
		t.Skip("set DMUTEX_SHRINK=1 and DMUTEX_SEED")
	}
	program, err := os.Executable()
	require.NoError(t, err)
	again, order := 10, []string(nil)
	if os.Getenv("DMUTEX_SHRINK") == "stalls" {
		b := newBuild(t)
		b.ordered(t)
		b.stalled(t)
		program, again, order = b.program(t), 1, orderly
	}
	fails := func(environment ...string) string {
		for range again {
			cmd := exec.Command(program, "-test.run", "^TestWorld$", "-test.timeout", "2m")
			cmd.Env = append(append(os.Environ(), order...), environment...)
			if out, err := cmd.CombinedOutput(); err != nil {
				return string(out)
			}
		}
		return ""
	}
	out := fails()
	on := regexp.MustCompile(`DMUTEX_FAULTS='(.*)'`).FindStringSubmatch(out)
	require.NotNil(t, on, "the seed does not fail, or it panics: then set DMUTEX_FAULTS: %s", out)
	left := strings.Split(on[1], ";")
	for i := len(left) - 1; i >= 0; i-- {
		less := append(append([]string(nil), left[:i]...), left[i+1:]...)
		if o := fails("DMUTEX_FAULTS=" + strings.Join(less, ";")); o != "" {
			left, out = less, o
		}
	}
	t.Logf("DMUTEX_SEED=%s DMUTEX_FAULTS='%s' go test -run '^TestWorld$'\n%s", os.Getenv("DMUTEX_SEED"), strings.Join(left, ";"), out)
}
