package tcplink

import (
	"bytes"
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/goldentest"
)

var _ = flag.Bool("update", false, "rewrite the files in testdata")

// The bytes of a greeting stay as they are: see CONTRIBUTING.md.
func TestGolden(t *testing.T) {
	text := ""
	for what, g := range map[string]greeting{"greeting": {From: 2, To: 1, Life: 77, Taken: 300}} {
		text += goldentest.Line(what, g.bytes())
		var got greeting
		require.NoError(t, got.read(bytes.NewReader(g.bytes())))
		require.Equal(t, g, got)
	}
	goldentest.Compare(t, "testdata/wire.txt", text)
}
