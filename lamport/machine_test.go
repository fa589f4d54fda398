package lamport

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

func TestMachine(t *testing.T) { dmutextest.TestMachine(t, New) }

func TestMachineOmitReplies(t *testing.T) { dmutextest.TestMachine(t, OmitReplies) }

func FuzzMachine(f *testing.F) { dmutextest.FuzzMachine(f, New) }

func FuzzMachineOmitReplies(f *testing.F) { dmutextest.FuzzMachine(f, OmitReplies) }

func BenchmarkMachine(b *testing.B) { dmutextest.BenchmarkMachine(b, New) }

func BenchmarkMachineOmitReplies(b *testing.B) { dmutextest.BenchmarkMachine(b, OmitReplies) }

// A request waits for those ahead of it and for the peers that have sent nothing
// later, but not for those behind it in the queue.
func TestWaitsForNobodyBehind(t *testing.T) {
	m, err := New(dmutex.Start{Self: 2, Members: dmutextest.Nodes(4), Clock: 4})
	require.NoError(t, err)
	out, err := m.Request()
	require.NoError(t, err)
	ours := out[0].Attempt
	for _, theirs := range []struct {
		from dmutex.NodeID
		at   uint64
	}{{1, ours - 1}, {3, ours + 10}} {
		_, err = m.Handle(dmutex.Message{Kind: dmutex.Request, From: theirs.from, To: 2, Attempt: theirs.at, Clock: theirs.at})
		require.NoError(t, err)
	}
	waits := func() []dmutex.NodeID { return m.WaitsFor(nil) }
	require.Equal(t, []dmutex.NodeID{1, 4}, waits(), "1 is ahead, 3 behind, 4 silent")
	_, err = m.Handle(dmutex.Message{Kind: dmutex.Reply, From: 4, To: 2, Attempt: ours, Clock: ours + 20})
	require.NoError(t, err)
	require.Equal(t, []dmutex.NodeID{1}, waits())
}
