package node_test

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmutex/dmutex/dmutextest"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/trace"
)

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
