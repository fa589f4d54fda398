package node

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/chase"
	"github.com/dmutex/dmutex/internal/goldentest"
)

var _ = flag.Bool("update", false, "rewrite the files in testdata")

// The bytes of a message of each kind stay as they are: see CONTRIBUTING.md.
func TestGolden(t *testing.T) {
	text := ""
	for _, x := range []struct {
		what string
		m    message
	}{
		{"leads", message{says: saysLeads, number: 7, name: "e", leads: true}},
		{"probe", message{says: saysProbe, probe: chase.Chase{Began: 300, Checked: 1, Lent: true,
			Path: []chase.Wait{{Node: 1, Txn: 2, Number: 3, Lock: "x"}}, Ask: []dmutex.NodeID{2}}}},
		{"ask", message{says: saysAsk, name: "x"}},
		{"who", message{says: saysWho, number: 7, name: "x"}},
		{"hold", message{says: saysHold, number: 7, fence: 1 << 50, age: 300, waited: 200}},
	} {
		b := x.m.encode()
		text += goldentest.Line(x.what, b)
		got, err := readMessage(b, 3)
		require.NoError(t, err)
		require.Equal(t, &x.m, got)
	}
	goldentest.Compare(t, "testdata/wire.txt", text)
}
