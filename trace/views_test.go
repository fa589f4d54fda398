package trace_test

import (
	"bytes"
	"context"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/epochs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A recorded run replays across views: a member crashes and comes back, another
// leaves and comes back, while a lock stays held.
func TestReplayAcrossViews(t *testing.T) {
	for _, a := range algorithms.Some() {
		t.Run(a.Name, func(t *testing.T) {
			traces := changes(t, a.Algorithm)
			require.Len(t, traces, 5)
			for _, tr := range traces {
				done, err := dmutextest.Replay(tr, a.Algorithm)
				require.NoError(t, err)
				require.NotZero(t, done.Inputs)
				require.Zero(t, done.Skipped)
			}

			// The holder records all four views, and in each later one that it has
			// the lock.
			holder := traces[0]
			require.Equal(t, []string{"view [1 2 3]", "ready", "view [1 2 3]", "ready", "view [1 2]", "ready", "view [1 2 3]", "ready"}, views(holder))
			born := 0
			for i, e := range holder.Events {
				if e.What == trace.Born && e.Lock == "held" {
					if born++; born > 1 {
						require.EqualValues(t, 1, e.Holder)
						require.Equal(t, dmutex.Held, e.Phase)
					}
				}
				if e.What == trace.View {
					require.Equal(t, e.N, epochs.Of(holder.Events[i+1+slices.IndexFunc(holder.Events[i+1:], func(e trace.Event) bool { return e.What == trace.Born })].Fence))
				}
			}
			require.Equal(t, 4, born)

			// Replay notices a machine that outlives its view.
			at := slices.IndexFunc(holder.Events, func(e trace.Event) bool { return e.What == trace.Forget })
			_, err := dmutextest.Replay(without(holder, at), a.Algorithm)
			require.ErrorIs(t, err, dmutextest.ErrDiffers)
			require.ErrorContains(t, err, ": view: the machine of lock")

			// If a gap hides a view, Replay skips the machines of that view, and no others.
			at = slices.IndexFunc(holder.Events, func(e trace.Event) bool { return e.What == trace.View })
			gap := without(holder, at)
			gap.Events = slices.Insert(gap.Events, at, trace.Event{What: trace.Gap, N: 1})
			done, err := dmutextest.Replay(gap, a.Algorithm)
			require.NoError(t, err)
			require.NotZero(t, done.Skipped)
			whole, err := dmutextest.Replay(holder, a.Algorithm)
			require.NoError(t, err)
			require.Less(t, done.Machines, whole.Machines)
			require.NotZero(t, done.Machines)
		})
	}
}

func views(tr *trace.Trace) (list []string) {
	for _, e := range tr.Events {
		switch e.What {
		case trace.View:
			words := make([]string, len(e.Members))
			for i, id := range e.Members {
				words[i] = id.String()
			}
			list = append(list, "view ["+strings.Join(words, " ")+"]")
		case trace.Ready:
			list = append(list, "ready")
		}
	}
	return list
}

func without(tr *trace.Trace, at int) *trace.Trace {
	other := *tr
	other.Events = slices.Delete(slices.Clone(tr.Events), at, at+1)
	return &other
}

// changes returns the traces of the lives of a group of three: of nodes 1, 2 and 3,
// then of the second lives of 2 and 3.
func changes(t *testing.T, a dmutex.Algorithm) (traces []*trace.Trace) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{Seed: 1, MinDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond})
		require.NoError(t, err)
		files := make([]bytes.Buffer, 5)
		open := func(id dmutex.NodeID, file *bytes.Buffer) *node.Node {
			n, err := node.OpenStrict(t.Context(), id, []dmutex.NodeID{1, 2, 3}, net.Link(id), node.Config{
				Algorithm: a, Trace: trace.NewRecorder(file),
			})
			require.NoError(t, err)
			return n
		}
		var nodes []*node.Node
		for i := range 3 {
			nodes = append(nodes, open(dmutex.NodeID(i+1), &files[i]))
		}
		enter := func() {
			for _, n := range nodes {
				h, err := n.Mutex("other").Acquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, h.Release())
			}
			time.Sleep(2 * time.Second)
		}
		held, err := nodes[0].Mutex("held").Acquire(t.Context())
		require.NoError(t, err)
		enter()

		_, err = nodes[1].Mutex("held by the crashed").Acquire(t.Context())
		require.NoError(t, err)
		net.Cut(2, 1) // 2 crashes, so it announces nothing
		net.Cut(2, 3)
		gone, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		require.Error(t, nodes[1].Close(gone))
		net.Heal()
		nodes[1] = open(2, &files[3])
		h, err := nodes[2].Mutex("held by the crashed").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Release())
		enter()

		require.NoError(t, nodes[2].Close(t.Context()))
		time.Sleep(2 * time.Second)
		nodes[2] = open(3, &files[4])
		require.NoError(t, nodes[2].Ready(t.Context()))
		enter()
		require.NoError(t, held.Err())
		require.NoError(t, held.Release())
		for _, n := range nodes {
			require.NoError(t, n.Close(t.Context()))
		}
		for i := range files {
			tr, err := trace.Read("f", &files[i])
			require.NoError(t, err)
			traces = append(traces, tr)
		}
	})
	return traces
}
