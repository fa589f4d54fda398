package group

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/internal/wire"
)

var _ = flag.Bool("update", false, "rewrite the files in testdata")

// The bytes of a message of each kind stay as they are: see CONTRIBUTING.md.
func TestGolden(t *testing.T) {
	web, name := "web-1", ""
	message := wire.Write(nil, func(f *wire.Fields) { nameFields(f, &web) })
	text := goldentest.Line("name", message)
	require.NoError(t, wire.Read(message, func(f *wire.Fields) { nameFields(f, &name) }))
	require.Equal(t, web, name)

	view := func(epoch uint64) membership.View {
		return membership.View{Epoch: epoch, Members: []membership.Member{{Node: 1, Life: 77}, {Node: 2, Life: 1 << 40}}}
	}
	past := &membership.Past{
		Former: []membership.Former{{Node: 3, Epoch: 5, Name: "web-3", Parting: &membership.Parting{Lent: []membership.Loan{{Lock: "x", Key: "k"}}}}},
		Words: []membership.Word{{Node: 2, Epoch: 6, Members: []dmutex.NodeID{1, 2}, Of: 4,
			Differs: []membership.Differ{{Lock: "x", Bits: 3}}}},
	}
	for i, what := range []string{"PREPARE", "PROMISE", "REFUSE", "VIEW", "REPORT", "COMPLETE", "CLEARED", "PART", "MOVED"} {
		kind := membership.Kind(i + 1)
		m := &membership.Message{Kind: kind, Round: 9, Leaving: true, Life: 77, Installed: view(6), Completed: view(5), View: view(7),
			Speaks: protocol.Versions{Oldest: 2, Newest: 3}, Cleared: 4, Holds: []membership.Hold{{Lock: "x", Fence: 300}}}
		if kind == membership.Report {
			m.Past = past
		}
		if kind >= membership.Part {
			m.Lent, m.Former = []membership.Loan{{Lock: "x", Key: "k"}}, 3
		}
		parts := Parts(m, 40)
		for _, part := range parts {
			text += goldentest.Line(what+", part", part)
		}
		var whole []byte
		for _, part := range parts {
			whole = append(whole, part[1:]...)
		}
		got, err := readMessage(whole, 3)
		require.NoError(t, err)
		require.Equal(t, m, &got)
	}
	shared := someReport()
	share(shared)
	text += goldentest.Line("REPORT of what is shared", Parts(shared, 1<<20)[0])
	goldentest.Compare(t, "testdata/wire.txt", text)
}
