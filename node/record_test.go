package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport/memlink"
)

// Nodes on a bad network are recorded, with cancels and so many locks that some
// are forgotten. Every machine replays as it was, each message that was received
// is one that was sent, and each number is used once.
func TestTrace(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			bad := memlink.Config{Seed: 1, Loss: 0.1, Duplicate: 0.1, MinDelay: time.Millisecond, MaxDelay: 20 * time.Millisecond}
			var traces []*trace.Trace
			bubble(t, a.Algorithm, bad, func(t *testing.T, g *group) { traces = record(t, g) })

			type way struct {
				from, to dmutex.NodeID
				seq      uint64
			}
			sent := make(map[way]string)
			what := make(map[trace.What]int)
			for _, tr := range traces {
				require.False(t, tr.Cut)
				require.Equal(t, trace.Close, tr.Events[len(tr.Events)-1].What)
				r, err := trace.Replay(tr, a.Algorithm)
				require.NoError(t, err)
				require.Positive(t, r.Inputs)
				require.Zero(t, r.Skipped)
				for _, e := range tr.Events {
					what[e.What]++
					for _, m := range e.Out {
						w := way{m.From, m.To, m.Seq}
						require.NotZero(t, m.Seq)
						require.Empty(t, sent[w], "two messages are %v", w)
						sent[w] = e.Lock + " " + m.String()
					}
				}
			}
			for _, tr := range traces {
				for _, e := range tr.Events {
					if e.What == trace.Handle {
						m := e.In
						require.Equal(t, sent[way{m.From, m.To, m.Seq}], e.Lock+" "+m.String(), "line %d", e.Line)
						delete(sent, way{m.From, m.To, m.Seq})
					}
				}
			}
			require.Empty(t, sent, "these were never received")
			require.Equal(t, 3, what[trace.Ready])
			require.Equal(t, 6, what[trace.Met])
			require.Positive(t, what[trace.Left])
			require.Positive(t, what[trace.Cancel])
			require.Positive(t, what[trace.Resent])
			require.Positive(t, what[trace.Repeated])
			require.Positive(t, what[trace.Early])
			if a.name != "ring" && a.name != "suzukikasami" && a.name != "ricart, Carvalho" {
				require.Positive(t, what[trace.Forget])
			}
		})
	}
}

// record returns the traces of three nodes that were busy for a while.
func record(t *testing.T, g *group) (traces []*trace.Trace) {
	files := make([]bytes.Buffer, 3)
	for i := range files {
		g.members = append(g.members, dmutex.NodeID(i+1))
	}
	for i, id := range g.members {
		n, err := node.Open(t.Context(), node.Config{
			Self: id, Members: g.members, Algorithm: g.algorithm, Link: g.net.Link(id), Group: "recorded",
			Trace: trace.NewRecorder(&files[i]),
		})
		require.NoError(t, err)
		g.nodes[id] = n
	}
	var wg sync.WaitGroup
	for _, id := range g.members {
		for k := range 2 {
			wg.Go(func() {
				for i := range 10 {
					h := g.acquire(id, "busy")
					time.Sleep(time.Millisecond)
					require.NoError(t, h.Release())
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
					if h, err := g.mutex(id, fmt.Sprint("other ", i, k)).Acquire(ctx); err == nil {
						require.NoError(t, h.Release())
					}
					cancel()
				}
			})
		}
	}
	wg.Wait()
	for i := range 600 { // so many that shards forget
		require.NoError(t, g.acquire(dmutex.NodeID(i%3+1), fmt.Sprint("brief ", i)).Release())
	}
	time.Sleep(time.Minute)
	for _, id := range g.members {
		wg.Go(func() { require.NoError(t, g.nodes[id].Close(t.Context())) })
	}
	wg.Wait()
	for i := range files {
		tr, err := trace.Read(fmt.Sprint(i+1), &files[i])
		require.NoError(t, err)
		require.Equal(t, g.members[i], tr.Header.Self)
		require.Equal(t, g.members, tr.Header.Members)
		require.Equal(t, "recorded", tr.Header.Group)
		require.NotEmpty(t, tr.Header.Algorithm)
		require.NotZero(t, tr.Header.Opened)
		require.NotZero(t, tr.Header.Life)
		traces = append(traces, tr)
	}
	return traces
}

// A trace tells of a peer that came back as another, and what became of the
// node then.
func TestTraceOfARestart(t *testing.T) {
	bubble(t, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		var file bytes.Buffer
		g.members = []dmutex.NodeID{1, 2}
		recorder := trace.NewRecorder(&file)
		n, err := node.Open(t.Context(), node.Config{
			Self: 1, Members: g.members, Algorithm: ricart.New, Link: g.net.Link(1), Trace: recorder,
		})
		require.NoError(t, err)
		g.nodes[1] = n
		g.start(2)
		held := g.acquire(1, "x")
		waiting := g.acquireLater(t.Context(), 2, "x")
		g.crash(2)
		require.ErrorIs(t, (<-waiting).err, node.ErrClosed)
		g.start(2)
		time.Sleep(time.Minute)
		require.ErrorIs(t, n.Status().Err, node.ErrRestarted)
		require.NoError(t, held.Release())
		require.NoError(t, n.Close(t.Context()))

		tr, err := trace.Read("1", &file)
		require.NoError(t, err)
		_, err = trace.Replay(tr, ricart.New)
		require.NoError(t, err)
		var lives []uint64
		var down []string
		for _, e := range tr.Events {
			switch e.What {
			case trace.Met, trace.Restarted:
				require.EqualValues(t, 2, e.Peer)
				lives = append(lives, e.Life)
			case trace.Down:
				down = append(down, e.Err)
			case trace.Release:
				require.Len(t, e.Out, 1)
				require.Zero(t, e.Out[0].Seq, "the group is broken: nothing is sent")
			}
		}
		require.Len(t, lives, 2)
		require.NotEqual(t, lives[0], lives[1])
		require.Equal(t, []string{(&node.PeerError{Peer: 2, Err: node.ErrRestarted}).Error()}, down)

		// The recorder was for that node.
		_, err = node.Open(t.Context(), node.Config{
			Self: 1, Members: g.members, Algorithm: ricart.New, Link: g.net.Link(1), Trace: recorder,
		})
		require.ErrorIs(t, err, dmutex.ErrMisuse)
		delete(g.nodes, 1)
	})
}

type stuckWriter struct{ free chan struct{} }

func (w stuckWriter) Write(b []byte) (int, error) {
	<-w.free
	return len(b), nil
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// A writer that is stuck, or fails, holds nobody up; Close says so.
func TestTraceWriterFails(t *testing.T) {
	bubble(t, central.New, memlink.Config{}, func(t *testing.T, g *group) {
		stuck := stuckWriter{make(chan struct{})}
		open := func(r *trace.Recorder) *node.Node {
			n, err := node.Open(t.Context(), node.Config{
				Self: 1, Members: []dmutex.NodeID{1}, Algorithm: central.New, Link: g.net.Link(1), Trace: r,
			})
			require.NoError(t, err)
			for range 10_000 {
				require.NoError(t, n.Mutex(strings.Repeat("x", 200)).Do(t.Context(), func(context.Context, uint64) error { return nil }))
			}
			return n
		}
		r := trace.NewRecorder(stuck)
		n := open(r)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, n.Close(ctx), context.DeadlineExceeded)
		require.Positive(t, r.Lost())
		close(stuck.free)

		n = open(trace.NewRecorder(brokenWriter{}))
		require.ErrorContains(t, n.Close(t.Context()), "disk full")
	})
}
