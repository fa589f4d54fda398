package lamport

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
		{"conversation.txt", New},
		{"replies-omitted.txt", OmitReplies},
	} {
		t.Run(tt.file, func(t *testing.T) { dmutextest.TestScript(t, tt.algorithm, "testdata/"+tt.file) })
	}
}
