package nodetest

import (
	"maps"
	"slices"
	"testing"

	"github.com/dmutex/dmutex/dmutextest"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/trace"
)

// Matched replays traces that share a clock. It requires that each message that was received was
// sent before, under the same number, and returns the messages that were not received.
func Matched(t *testing.T, traces []*trace.Trace, a dmutex.Algorithm) (lost []string) {
	type way struct { // of a message: it is the seq-th from the one node to the other
		from, to dmutex.NodeID
		seq      uint64
	}
	sent, times := make(map[way]string), make(map[way]int64)
	for _, tr := range traces {
		require.False(t, tr.Cut)
		r, err := dmutextest.Replay(tr, a)
		require.NoError(t, err)
		require.Positive(t, r.Inputs)
		require.Zero(t, r.Skipped)
		last := make(map[string]int64)
		for _, e := range tr.Events {
			require.GreaterOrEqual(t, e.Time, last[e.Lock], "line %d", e.Line)
			last[e.Lock] = e.Time
			for _, m := range e.Out {
				w := way{m.From, m.To, m.Seq}
				require.NotZero(t, m.Seq)
				require.Empty(t, sent[w], "two messages are %v", w)
				sent[w], times[w] = e.Lock+" "+m.String(), tr.Header.Opened+e.Time
			}
		}
	}
	for _, tr := range traces {
		for _, e := range tr.Events {
			if e.What == trace.Handle {
				w := way{e.In.From, e.In.To, e.In.Seq}
				require.Equal(t, sent[w], e.Lock+" "+e.In.String(), "line %d", e.Line)
				require.GreaterOrEqual(t, tr.Header.Opened+e.Time, times[w], "line %d", e.Line)
				delete(sent, w)
			}
		}
	}
	return slices.Collect(maps.Values(sent))
}
