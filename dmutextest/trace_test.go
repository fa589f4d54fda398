package dmutextest_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/suzukikasami"
	"github.com/dmutex/dmutex/trace"
)

// Scripts of the algorithms make traces that replay, and have the entries of the
// script.
func TestTraceScripts(t *testing.T) {
	pairs := map[dmutex.NodeID][]dmutex.NodeID{1: {1, 2}, 2: {2, 3}, 3: {1, 3}}
	for file, algorithm := range map[string]dmutex.Algorithm{
		"../ricart/testdata/textbook.txt":           ricart.New,
		"../ricart/testdata/cancel.txt":             ricart.New,
		"../ricart/testdata/carried-over.txt":       ricart.New,
		"../lamport/testdata/conversation.txt":      lamport.New,
		"../maekawa/testdata/deadlock.txt":          maekawa.With(func(site dmutex.NodeID) []dmutex.NodeID { return pairs[site] }),
		"../maekawa/testdata/cancel.txt":            maekawa.With(func(site dmutex.NodeID) []dmutex.NodeID { return pairs[site] }),
		"../suzukikasami/testdata/conversation.txt": suzukikasami.New,
	} {
		script, err := os.ReadFile(file)
		require.NoError(t, err)
		traces, err := dmutextest.TraceScript(algorithm, string(script))
		require.NoError(t, err, file)
		replay(t, algorithm, traces)
		entries := 0
		for _, tr := range traces {
			was := dmutex.Idle
			for _, e := range tr.Events {
				if e.Phase == dmutex.Held && e.What == trace.Handle && was != dmutex.Held {
					require.Contains(t, string(script), fmt.Sprintf("%v held fence=%d\n", tr.Header.Self, e.Fence))
					entries++
				}
				was = e.Phase
			}
		}
		require.Positive(t, entries, file)
	}
}

// replay writes, reads and replays traces, and compares each message that was received
// with the one that was sent.
func replay(t *testing.T, algorithm dmutex.Algorithm, traces []*trace.Trace) {
	type number struct {
		from, to dmutex.NodeID
		seq      uint64
	}
	sent := make(map[number]string)
	key := func(m trace.Message) number { return number{m.From, m.To, m.Seq} }
	for i, tr := range traces {
		var file bytes.Buffer
		require.NoError(t, tr.Write(&file))
		again, err := trace.Read(tr.Name, &file)
		require.NoError(t, err)
		_, err = dmutextest.Replay(again, algorithm)
		require.NoError(t, err)
		for _, e := range tr.Events {
			for _, m := range e.Out {
				require.NotContains(t, sent, key(m))
				sent[key(m)] = m.String()
			}
		}
		traces[i] = again
	}
	for _, tr := range traces {
		for _, e := range tr.Events {
			if e.What == trace.Handle {
				require.Equal(t, sent[key(e.In)], e.In.String())
			}
		}
	}
}

func TestTraceSimulate(t *testing.T) {
	for _, algorithm := range []dmutex.Algorithm{ricart.New, maekawa.New, ring.Circulate(1)} {
		traces := make([]*trace.Trace, 4)
		for i, id := range dmutextest.Nodes(4) {
			traces[i] = &trace.Trace{Name: id.String(), Header: trace.Header{Self: id, Members: dmutextest.Nodes(4)}}
		}
		config := dmutextest.SimConfig{
			Algorithm: algorithm, Members: dmutextest.Nodes(4), Delay: dmutextest.Exponential, Entries: 40, Seed: 1, Think: 2, Hold: 1, Tick: 3,
		}
		want, err := dmutextest.Simulate(config)
		require.NoError(t, err)
		messages := 0
		config.Trace = func(self dmutex.NodeID, e *trace.Event) {
			kept := *e
			kept.Out = nil
			for _, m := range e.Out {
				kept.Out = append(kept.Out, trace.Message{Seq: m.Seq, Message: m.Clone()})
				messages++
			}
			traces[self-1].Events = append(traces[self-1].Events, kept)
		}
		got, err := dmutextest.Simulate(config)
		require.NoError(t, err)
		require.Equal(t, want, got, "it is the same run")
		require.Equal(t, want.Messages, messages)
		replay(t, algorithm, traces)
	}
}

// The run of a violation makes traces, too, with both that hold the lock.
func TestTraceOfAViolation(t *testing.T) {
	_, err := dmutextest.Explore(dmutextest.Config{
		Algorithm: lamport.New, Members: dmutextest.Nodes(2), Requests: []int{1}, Network: dmutextest.Network{Unordered: true},
	})
	var v *dmutextest.Violation
	require.ErrorAs(t, err, &v)
	traces, err := dmutextest.TraceScript(lamport.New, v.Script)
	require.ErrorIs(t, err, dmutextest.ErrMutualExclusion)
	require.Len(t, traces, 2)
	for _, tr := range traces {
		require.Equal(t, dmutex.Held, tr.Events[len(tr.Events)-1].Phase)
	}
	dir := filepath.Join(t.TempDir(), "run")
	require.NoError(t, dmutextest.SaveTrace(dir, lamport.New, v.Script))
	for _, tr := range traces {
		file, err := os.ReadFile(filepath.Join(dir, tr.Name+".trace"))
		require.NoError(t, err)
		again, err := trace.Read(tr.Name, bytes.NewReader(file))
		require.NoError(t, err)
		require.Len(t, again.Events, len(tr.Events))
	}

	_, err = dmutextest.TraceScript(lamport.New, "dance")
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	require.ErrorIs(t, dmutextest.SaveTrace(dir, lamport.New, "dance"), dmutex.ErrMisuse)
	require.Error(t, dmutextest.SaveTrace(filepath.Join(dir, "1.trace"), lamport.New, v.Script), "a file is there")
}
