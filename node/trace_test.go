package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport/memlink"
)

// Nodes on a bad network are recorded, with cancels and so many locks that some are forgotten.
// Every machine replays, each message that was received was sent, and each number is used once.
func TestTrace(t *testing.T) {
	for _, a := range algorithms.Some() {
		t.Run(a.Name, func(t *testing.T) {
			bad := memlink.Config{Seed: 1, Loss: 0.1, Duplicate: 0.1, MinDelay: time.Millisecond, MaxDelay: 20 * time.Millisecond}
			var traces []*trace.Trace
			bubble(t, strict, a.Algorithm, bad, func(t *testing.T, g *group) { traces = record(t, g) })

			unheard := matched(t, traces, a.Algorithm)
			require.Empty(t, unheard, "these were never received")
			what := make(map[trace.What]int)
			for _, tr := range traces {
				require.Equal(t, trace.Close, tr.Events[len(tr.Events)-1].What)
				for _, e := range tr.Events {
					what[e.What]++
				}
			}
			require.GreaterOrEqual(t, what[trace.View], 3)
			require.GreaterOrEqual(t, what[trace.Ready], 3)
			require.Equal(t, 6, what[trace.Met])
			require.Positive(t, what[trace.Left])
			require.Positive(t, what[trace.Cancel])
			if a.Forgets {
				require.Positive(t, what[trace.Forget])
			}
		})
	}
}

// recorded starts a node with a recorder; its trace is in the file when the node
// is closed.
func (g *group) recorded(id dmutex.NodeID) *bytes.Buffer {
	file := g.record()
	g.startWith(id, node.Config{Algorithm: g.algorithm, Group: "recorded", Trace: g.trace})
	g.trace = nil
	return file
}

// record makes the next process record. Its trace is in the file when it has closed.
func (g *group) record() (file *bytes.Buffer) {
	file = new(bytes.Buffer)
	g.trace = trace.NewRecorder(file)
	g.recorders = append(g.recorders, g.trace)
	return file
}

// closeAll closes all nodes at once and reads what they have recorded.
func (g *group) closeAll(files []*bytes.Buffer) (traces []*trace.Trace) {
	time.Sleep(time.Minute)
	var wg sync.WaitGroup
	for _, id := range g.members {
		wg.Go(func() { require.NoError(g.t, g.node(id).Close(g.t.Context())) })
	}
	wg.Wait()
	for i, file := range files {
		tr, err := trace.Read(fmt.Sprint(i+1), file)
		require.NoError(g.t, err)
		traces = append(traces, tr)
	}
	return traces
}

// Messages keep their numbers even if they come before their receiver is ready.
func TestTraceEarly(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2, 3}
		files := []*bytes.Buffer{nil, g.recorded(2), g.recorded(3)}
		time.Sleep(time.Second)
		g.net.Cut(3, 2) // they have met, but 2 will not hear that 3 has met 1
		files[0] = g.recorded(1)
		waits := []<-chan outcome{g.acquireLater(t.Context(), 1, "x"), g.acquireLater(t.Context(), 1, "y")}
		time.Sleep(time.Second)
		g.net.Heal()
		for _, w := range waits {
			require.NoError(t, granted(t, w).Release())
		}
		require.Empty(t, matched(t, g.closeAll(files), ricart.New))
	})
}

// The messages of a life that ended before any view acted do not count in the numbers of the next
// life.
func TestTraceOfAnEarlierLife(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		nodetest.Today() // the next life has a higher number
		g.members = []dmutex.NodeID{1, 2, 3}
		g.net.Cut(1, 3)
		g.net.Cut(3, 1)
		g.recorded(2)
		files := []*bytes.Buffer{g.recorded(1), nil, g.recorded(3)}
		time.Sleep(time.Second) // 2 has met both, and says so
		g.crash(2)
		files[1] = g.recorded(2)
		time.Sleep(time.Minute) // messages of an older view would be dropped
		for _, id := range g.members {
			require.NoError(t, g.acquire(id, "x").Release())
		}
		require.Empty(t, matched(t, g.closeAll(files), ricart.New))
	})
}

// matched replays traces that share a clock. It requires that each message that was received was
// sent before, under the same number, and returns the messages that were not received.
func matched(t *testing.T, traces []*trace.Trace, a dmutex.Algorithm) (lost []string) {
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

// record returns the traces of three nodes that were busy for a while.
func record(t *testing.T, g *group) (traces []*trace.Trace) {
	g.members = []dmutex.NodeID{1, 2, 3}
	var files []*bytes.Buffer
	for _, id := range g.members {
		files = append(files, g.recorded(id))
	}
	var wg sync.WaitGroup
	for _, id := range g.members {
		for k := range 2 {
			wg.Go(func() {
				for i := range 10 {
					h := g.acquire(id, "busy")
					time.Sleep(time.Millisecond)
					require.NoError(t, h.Release())
					require.NoError(t, g.mutex(id, "busy").Ask(t.Context())) // has a number, and is not recorded
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
	for i := range 1200 { // so many that some are forgotten
		require.NoError(t, g.acquire(dmutex.NodeID(i%3+1), fmt.Sprint("brief ", i)).Release())
	}
	traces = g.closeAll(files)
	for i, tr := range traces {
		require.Equal(t, g.members[i], tr.Header.Self)
		require.Equal(t, g.members, tr.Header.Members)
		require.Equal(t, "recorded", tr.Header.Group)
		require.NotEmpty(t, tr.Header.Name)
		require.NotEmpty(t, tr.Header.Algorithm)
		require.NotZero(t, tr.Header.Opened)
		require.NotZero(t, tr.Header.Life)
	}
	return traces
}

// A trace has the views, and the restart of a peer. Every machine replays in its view.
func TestTraceOfARestart(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		nodetest.Today() // the next life has a higher number
		g.members = []dmutex.NodeID{1, 2, 3}
		files := map[string]*bytes.Buffer{"1": g.recorded(1), "2": g.recorded(2), "3": g.recorded(3)}
		kept := g.acquire(1, "kept")
		lost := g.acquire(2, "lost")
		waiting := []<-chan outcome{g.acquireLater(t.Context(), 3, "lost"), g.acquireLater(t.Context(), 3, "kept")}
		g.crash(2)
		time.Sleep(time.Minute)
		files["2 again"] = g.recorded(2)
		h := granted(t, waiting[0])
		require.Greater(t, h.Fence(), lost.Fence())
		require.NoError(t, h.Release())
		require.NoError(t, kept.Release())
		require.NoError(t, (<-waiting[1]).held.Release())
		require.NoError(t, g.acquire(2, "kept").Release())
		for _, id := range g.members {
			g.close(id)
		}
		for _, r := range g.recorders { // the Close of a crash waits for nothing
			require.NoError(t, r.Flush(t.Context()))
		}

		traces := make(map[string]*trace.Trace)
		for name, file := range files {
			tr, err := trace.Read(name, file)
			require.NoError(t, err)
			r, err := dmutextest.Replay(tr, g.algorithm)
			require.NoError(t, err)
			require.Positive(t, r.Inputs)
			require.Zero(t, r.Skipped)
			traces[name] = tr
			epoch := uint64(0) // installed
			for _, e := range tr.Events {
				switch e.What {
				case trace.View:
					require.Greater(t, e.N, epoch)
					epoch = e.N
				case trace.Ready:
					require.Equal(t, epoch, e.N)
				case trace.Down:
					require.Empty(t, e.Err, "it is a Close")
				case trace.Handle:
					require.Equal(t, epoch, epochs.Of(e.In.Fence))
				}
			}
		}
		var lives []uint64
		born := 0
		for _, e := range traces["1"].Events {
			switch {
			case e.Peer == 2 && e.What == trace.Met:
				lives = append(lives, e.Life)
			case e.What == trace.Born && e.Lock == "kept" && e.Holder == 1:
				born++
			}
		}
		require.Equal(t, traces["2"].Header.Life, lives[0])
		require.GreaterOrEqual(t, len(lives), 2)
		if len(lives) > 2 { // with two, it may have taken a higher life before node 1 met it
			require.Equal(t, traces["2 again"].Header.Life, lives[1])
		}
		require.Equal(t, 1, born, "1 holds kept in the second view")
	})
}

// A recorder is for one node.
func TestTraceIsOfOneNode(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1}
		cfg := node.Config{Algorithm: ricart.New, Trace: trace.NewRecorder(new(bytes.Buffer))}
		n, err := node.OpenStrict(t.Context(), 1, g.members, g.net.Link(1), cfg)
		require.NoError(t, err)
		require.NoError(t, n.Close(t.Context()))
		_, err = node.OpenStrict(t.Context(), 1, g.members, g.net.Link(1), cfg)
		require.ErrorIs(t, err, dmutex.ErrMisuse)
	})
}

type stuckWriter struct{ free chan struct{} }

func (w stuckWriter) Write(b []byte) (int, error) {
	<-w.free
	return len(b), nil
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// A writer that blocks or fails delays no caller. Close returns the failure.
func TestTraceWriterFails(t *testing.T) {
	bubble(t, both, central.New, memlink.Config{}, func(t *testing.T, g *group) {
		stuck := stuckWriter{make(chan struct{})}
		open := func(r *trace.Recorder) *node.Node {
			n, err := node.OpenStrict(t.Context(), 1, []dmutex.NodeID{1}, g.net.Link(1), node.Config{
				Trace: r,
			})
			require.NoError(t, err)
			for range 10_000 {
				require.NoError(t, n.Mutex(strings.Repeat("x", 200)).Do(t.Context(), func(context.Context, uint64) error { return nil }))
			}
			return n
		}
		r := trace.NewRecorder(stuck)
		n := open(r)
		require.ErrorIs(t, n.Close(nodetest.ContextFor(t, time.Second)), context.DeadlineExceeded)
		require.Positive(t, r.Lost())
		close(stuck.free)

		n = open(trace.NewRecorder(brokenWriter{}))
		require.ErrorContains(t, n.Close(t.Context()), "disk full")
	})
}

// joinRecorded starts a process with a recorder. When it has closed, its trace is in the file.
func (g *group) joinRecorded() (*member, *bytes.Buffer) {
	file := g.record()
	return g.join(), file
}

// A crash, an exclusion of a process that lives, a join and an exit are recorded. Every machine
// of every view replays, and each message that came is one that was sent.
func TestLeaseTrace(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		var files []*bytes.Buffer
		start := func() *member {
			s, file := g.joinRecorded()
			files = append(files, file)
			require.NoError(t, s.Ready(t.Context()))
			time.Sleep(time.Second)
			return s
		}
		dead, cut, stays := start(), start(), start()
		enter := func(all ...*member) {
			for _, s := range all {
				require.NoError(t, s.acquire("other").Release())
			}
		}
		enter(dead, cut, stays)
		numbers := []dmutex.NodeID{dead.Self(), cut.Self(), stays.Self()}

		dead.acquire("x")
		next := stays.acquireLater(t.Context(), "x")
		kept := cut.acquire("kept")
		dead.crash()
		synctest.Wait() // until the trace is written
		files[0] = bytes.NewBuffer(files[0].Bytes()[:bytes.Index(files[0].Bytes(), []byte(`"do":"down"`))])
		require.NoError(t, granted(t, next).Release())
		require.NoError(t, kept.Err())

		cut.isolate(true)
		require.NoError(t, stays.acquire("kept").Release())
		cut.isolate(false)
		cut.rejoins(numbers[1])
		enter(cut, stays)
		enter(start(), cut, stays)
		for len(g.all) > 0 {
			g.all[0].close()
		}
		synctest.Wait()

		var traces []*trace.Trace
		for _, file := range files {
			tr, err := trace.Read("f", file)
			require.NoError(t, err)
			traces = append(traces, tr)
		}
		require.True(t, traces[0].Cut)
		traces[0].Cut = false
		matched(t, traces, g.algorithm)
		did := func(tr *trace.Trace, what trace.What, about func(e *trace.Event) bool) bool {
			return slices.ContainsFunc(tr.Events, func(e trace.Event) bool { return e.What == what && about(&e) })
		}
		of := func(peer dmutex.NodeID) func(*trace.Event) bool {
			return func(e *trace.Event) bool { return e.Peer == peer }
		}
		for _, tr := range traces[1:3] {
			require.True(t, did(tr, trace.Silent, of(numbers[0])))
			require.True(t, did(tr, trace.Excluded, of(numbers[0])))
		}
		require.True(t, did(traces[2], trace.Waits, func(e *trace.Event) bool { return e.Lock == "x" && slices.Equal(e.Members, numbers[:1]) }))
		require.False(t, did(traces[2], trace.Waits, func(e *trace.Event) bool { return e.Lock == "other" && slices.Contains(e.Members, numbers[0]) }))
		require.True(t, did(traces[2], trace.Excluded, of(numbers[1])))
		require.True(t, did(traces[1], trace.Excluded, of(numbers[1])), "the excluded process learns of it, too")
		require.True(t, did(traces[1], trace.View, of(4)), "and has another number")
		require.True(t, did(traces[3], trace.View, of(5)))
		require.False(t, did(traces[3], trace.Excluded, of(numbers[2])), "an exit is no exclusion")

		// The trace tells the lease at any time, and that it has ended once.
		until, ended := int64(0), 0
		for _, e := range traces[1].Events {
			if e.What == trace.Lease {
				require.LessOrEqual(t, e.N, uint64(leaseOf))
				if until > 0 && e.Time > until {
					ended++
				}
				until = max(until, e.Time+int64(e.N))
			}
		}
		require.Equal(t, 1, ended)

		// Replay notices a machine that outlives its number.
		at := slices.IndexFunc(traces[1].Events, func(e trace.Event) bool { return e.What == trace.View && e.Peer == 4 })
		forgotten := at - 1
		for ; traces[1].Events[forgotten].What != trace.Forget; forgotten-- {
		}
		other := *traces[1]
		other.Events = slices.Delete(slices.Clone(other.Events), forgotten, forgotten+1)
		_, err := dmutextest.Replay(&other, g.algorithm)
		require.ErrorIs(t, err, dmutextest.ErrDiffers)
	})
}

// Proofs of the store are recorded: that the process of one member has ended, or that all former
// ones have.
func TestLeaseTraceProofs(t *testing.T) {
	proofs := func(s *member, file *bytes.Buffer) (proved []dmutex.NodeID) {
		require.NoError(t, s.acquire("x").Release())
		s.close()
		tr, err := trace.Read("f", file)
		require.NoError(t, err)
		_, err = dmutextest.Replay(tr, central.New)
		require.NoError(t, err)
		for _, e := range tr.Events {
			if e.What == trace.Dead && e.N > 0 {
				proved = append(proved, e.Peer)
			}
		}
		return proved
	}
	bubbleLease(t, central.New, func(t *testing.T, g *group) {
		g.proving()
		stays, file := g.joinRecorded()
		require.NoError(t, stays.Ready(t.Context()))
		dies := g.join()
		dies.acquire("x")
		dead := dies.Self()
		dies.crash()
		require.Contains(t, proofs(stays, file), dead)

		g.join().acquire("x")
		g.all[0].crash()
		require.Contains(t, proofs(g.joinRecorded()), dmutex.None)
	})
	bubbleLease(t, central.New, func(t *testing.T, g *group) { // an answer that comes after the wait proves nothing
		r := g.proving()
		stranger := r.begin()
		r.slow = 2 * leaseOf
		s, file := g.joinRecorded()
		require.NoError(t, s.acquire("x").Release())
		time.Sleep(r.slow)
		require.NoError(t, stranger.Close())
		require.NotContains(t, proofs(s, file), dmutex.None)
	})
}
