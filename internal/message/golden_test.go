package message

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/goldentest"
)

var _ = flag.Bool("update", false, "rewrite the files in testdata")

// The bytes of a message of each kind stay as they are: see CONTRIBUTING.md.
func TestGolden(t *testing.T) {
	text := ""
	for kind := dmutex.Request; int(kind) < dmutex.Kinds; kind++ {
		m := dmutex.Message{Kind: kind, Attempt: 7, Clock: 300, Fence: 1 << 50}
		if kind == dmutex.Token {
			m.Numbers, m.Nodes = []uint64{1, 2}, []dmutex.NodeID{3}
		}
		b := Append(nil, "lock", m)
		text += goldentest.Line(m.String(), b)
		name, got, err := new(Decoder).Decode(b)
		require.NoError(t, err)
		require.Equal(t, "lock", string(name))
		require.Equal(t, m, got)
	}
	goldentest.Compare(t, "testdata/wire.txt", text)
}
