package maekawa

import (
	"flag"
	"testing"

	"github.com/dmutex/dmutex/dmutextest"
)

var _ = flag.Bool("update", false, "rewrite the golden files")

func TestScripts(t *testing.T) {
	everybody := rows{{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}}
	for _, c := range []struct {
		name    string
		quorums rows
	}{
		{"deadlock", pairs},
		{"grid", grid},
		{"once", everybody},
		{"cancel", pairs},
		{"carried", pairs},
	} {
		t.Run(c.name, func(t *testing.T) {
			dmutextest.TestScript(t, With(c.quorums.of), "testdata/"+c.name+".txt")
		})
	}
}
