package ring

import (
	"flag"
	"testing"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

var _ = flag.Bool("update", false, "rewrite the golden files")

func TestScripts(t *testing.T) {
	for _, tt := range []struct {
		file      string
		algorithm dmutex.Algorithm
	}{
		{"parked.txt", New},
		{"late.txt", New},
		{"cancel.txt", Order(2, 3, 1)},
		{"circulating.txt", Circulate(2)},
	} {
		t.Run(tt.file, func(t *testing.T) { dmutextest.TestScript(t, tt.algorithm, "testdata/"+tt.file) })
	}
}
