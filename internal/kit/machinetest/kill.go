package machinetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An Edit breaks one rule in a source file: its name, the old words, which must
// occur once, the new words, and the test that must fail then.
type Edit [4]string

// Kill makes each of the edits, one at a time, in a file of the package in the
// working directory, and fails if the test that must fail passes. It needs the go
// command and takes seconds for each edit, so that is its long form, in which tests run as where CI is set. The short form
// fails if the old words do not occur once.
func Kill(t *testing.T, file string, edits []Edit) {
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	path, err := filepath.Abs(file)
	require.NoError(t, err)
	for _, e := range edits {
		name, words, instead, killer := e[0], e[1], e[2], e[3]
		t.Run(name, func(t *testing.T) {
			require.Equal(t, 1, strings.Count(string(source), words), "%q in %s", words, file)
			Long(t)
			dir := t.TempDir()
			broken, overlay := filepath.Join(dir, "broken.go"), filepath.Join(dir, "overlay.json")
			require.NoError(t, os.WriteFile(broken, []byte(strings.Replace(string(source), words, instead, 1)), 0o600))
			require.NoError(t, os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace": {%q: %q}}`, path, broken), 0o600))
			command := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-vet=off", "-timeout=5m", "-run", "^"+killer+"$", ".")
			command.Env = append(os.Environ(), "DMUTEX_LONG=", "CI=true") // the form that lands
			output, _ := command.CombinedOutput()                         // it should fail
			require.Contains(t, string(output), "--- FAIL: "+killer)
		})
	}
}

// Catches runs a subtest that checks a contract, in a process of its own, and fails unless
// the subtest fails and prints says. There [Mutant] returns the rule to break.
func Catches(t *testing.T, test, mutant, check, says, timeout string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$/^"+strings.ReplaceAll(check, " ", "_"), "-test.timeout="+timeout)
	// A process that times out leaves its temporary folders behind, so they are in ours.
	command.Env = append(os.Environ(), "DMUTEX_MUTANT="+mutant, "TMPDIR="+t.TempDir())
	output, err := command.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(output), says)
}

// Mutant returns the rule that this process is to break, or nothing.
func Mutant() string { return os.Getenv("DMUTEX_MUTANT") }
