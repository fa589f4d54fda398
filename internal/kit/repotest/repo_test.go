// Package repotest holds tests about this repository itself: that imports point down and
// the machines are pure, that the pages' snippets, links and tables are right, that each
// lesson has its tests, that the files in deploy fit each other, and that the workflows are
// complete.
package repotest

import (
	"log"
	"os"
	"testing"
)

// The tests run in the root of the repository.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil {
		log.Fatal(err)
	}
	os.Exit(m.Run())
}
