package machinetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// An Edit breaks one rule in a source file: its name, the old words, which must
// occur once, the new words, and the test that must fail then.
type Edit [4]string

// Kill makes each of the edits, one at a time, in a file of the package in the
// working directory, and fails if the test that must fail passes. It needs the go
// command and takes seconds for each edit.
func Kill(t *testing.T, file string, edits []Edit) {
	Long(t)
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range edits {
		name, words, instead, killer := e[0], e[1], e[2], e[3]
		t.Run(name, func(t *testing.T) {
			if n := strings.Count(string(source), words); n != 1 {
				t.Fatalf("%q occurs %d times in %s", words, n, file)
			}
			output := run(t, killer, file, strings.Replace(string(source), words, instead, 1))
			if !strings.Contains(output, "--- FAIL: "+killer) {
				t.Errorf("%s does not kill it:\n%s", killer, output)
			}
		})
	}
}

// run runs one test, in its short form, with the file replaced, and returns its output.
func run(t *testing.T, test, file, source string) string {
	old, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	broken, overlay := filepath.Join(dir, "broken.go"), filepath.Join(dir, "overlay.json")
	for name, content := range map[string]string{broken: source, overlay: fmt.Sprintf(`{"Replace": {%q: %q}}`, old, broken)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-vet=off", "-timeout=1m", "-run", "^"+test+"$", ".")
	command.Env = append(os.Environ(), "DMUTEX_LONG=")
	output, _ := command.CombinedOutput() // it should fail
	return string(output)
}

// Catches runs a part of a test that checks a contract, in a process of its own, and fails
// unless that part fails and says so. The process is told by [Mutant] which rule to break.
func Catches(t *testing.T, test, mutant, check, says, timeout string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$/^"+strings.ReplaceAll(check, " ", "_"), "-test.timeout="+timeout)
	// A process that times out leaves its temporary folders behind, so they are in ours.
	command.Env = append(os.Environ(), "DMUTEX_MUTANT="+mutant, "TMPDIR="+t.TempDir())
	output, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(output), says) {
		t.Errorf("want a failure that says %q, got %v:\n%s", says, err, output)
	}
}

// Mutant returns the rule that this process is to break, or nothing.
func Mutant() string { return os.Getenv("DMUTEX_MUTANT") }
