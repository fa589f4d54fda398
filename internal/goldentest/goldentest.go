// Package goldentest compares the output of a test with a file.
package goldentest

import (
	"flag"
	"fmt"
	"os"
	"testing"
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

// Line returns two lines of a file: what a message is, and its bytes.
func Line(what string, message []byte) string { return fmt.Sprintf("# %s\n%x\n", what, message) }
