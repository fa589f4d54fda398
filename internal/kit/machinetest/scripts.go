package machinetest

import (
	"flag"
	"testing"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

// The flag of every test program that imports this package: see package goldentest.
var _ = flag.Bool("update", false, "rewrite the golden files")

// Scripts runs scripts of an algorithm, each from testdata/NAME.txt.
func Scripts(t *testing.T, algorithm dmutex.Algorithm, names ...string) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) { dmutextest.TestScript(t, algorithm, "testdata/"+name+".txt") })
	}
}
