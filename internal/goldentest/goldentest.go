// Package goldentest compares the output of a test with a file.
package goldentest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/dmutex/dmutex/internal/search"
)

// Compare compares text with a file. If the tests run with a flag -update, it writes
// the file instead; the test package defines the flag.
func Compare(t testing.TB, file, got string) {
	t.Helper()
	if f := flag.Lookup("update"); f != nil && f.Value.String() == "true" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (run the tests with -update to make it)", err)
	}
	if string(want) != got {
		t.Errorf("%s has changed; -update rewrites it. Now it is:\n%s", file, got)
	}
}

// Violation checks that a search has found a violation, of a kind if that is not nil, and
// compares the shortest run to it with a file.
func Violation(t testing.TB, file string, err, kind error) {
	t.Helper()
	v, ok := errors.AsType[*search.Violation](err)
	if !ok || kind != nil && v.Kind != kind {
		t.Fatalf("want a violation: %v; got %v", kind, err)
	}
	Compare(t, file, v.Script)
}

// Line returns two lines of a file: what a message is, and its bytes.
func Line(what string, message []byte) string { return fmt.Sprintf("# %s\n%x\n", what, message) }
