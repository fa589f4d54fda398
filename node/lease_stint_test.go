package node_test

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership/lease"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/linktest"
)

// haunted is a link that keeps frames, and later delivers all of them after each frame that
// arrives, as if other goroutines of the link had delayed them.
type haunted struct {
	transport.DynamicLink
	mu    sync.Mutex
	keeps bool
	kept  []ghostFrame
}

type ghostFrame struct {
	from dmutex.NodeID
	data []byte
}

func (l *haunted) Open(host transport.Host) error {
	deliver := host.Deliver
	host.Deliver = linktest.Each(func(from dmutex.NodeID, frame []byte) {
		l.mu.Lock()
		var late []ghostFrame
		if l.keeps {
			l.kept = append(l.kept, ghostFrame{from, bytes.Clone(frame)})
		} else {
			late = slices.Clone(l.kept)
		}
		l.mu.Unlock()
		deliver(from, [][]byte{frame})
		for _, g := range late {
			deliver(g.from, [][]byte{g.data})
		}
	})
	return l.DynamicLink.Open(host)
}

// exclude takes a member out of the record, even while others change the record.
func (g *group) exclude(id dmutex.NodeID) {
	g.t.Helper()
	for id != dmutex.None {
		value, rev, err := g.store.Load(g.t.Context())
		require.NoError(g.t, err)
		var r lease.Record
		require.NoError(g.t, r.UnmarshalText(value))
		i := slices.IndexFunc(r.Members, func(e lease.Entry) bool { return e.Node == id })
		if i < 0 {
			return
		}
		r.Epoch++
		r.Unclean = r.Epoch
		r.Members = slices.Delete(r.Members, i, i+1)
		value, err = r.MarshalText()
		require.NoError(g.t, err)
		if _, err = g.store.Swap(g.t.Context(), value, rev); err == nil {
			return
		}
	}
}

// A process that rejoins after an exclusion has another life, with new sessions. Frames of its
// first stint that arrive in the second do not replace frames of the second. With one life for
// both, the report of the holder was lost: two nodes held a lock with one fence, or no node ever
// got it.
func TestLeaseStints(t *testing.T) {
	bubbleLease(t, lamport.New, func(t *testing.T, g *group) {
		a := g.open(1)[0]
		link := &haunted{keeps: true}
		g.wrapLink = func(l transport.DynamicLink) transport.DynamicLink { link.DynamicLink = l; return link }
		b := g.join()
		for _, s := range []*member{b, a, b} {
			require.NoError(t, s.acquire("x").Release())
		}
		number, life := b.Self(), b.Status().Life

		g.exclude(number)
		for b.Self() == number {
			time.Sleep(time.Millisecond)
		}
		link.mu.Lock()
		link.keeps = false
		link.mu.Unlock()
		require.NotEmpty(t, link.kept)
		began := time.Now()
		held := a.acquire("x")
		b.sees(2)
		require.Less(t, time.Since(began), leaseOf*3/2) // the wait for the lease of the first stint
		require.Greater(t, b.Self(), number)
		require.NotEqual(t, life, b.Status().Life)
		waiting := b.acquireLater(t.Context(), "x")
		time.Sleep(leaseOf)
		require.Empty(t, waiting, "two holders")
		require.NoError(t, held.Release())
		select {
		case o := <-waiting:
			require.NoError(t, o.err)
			require.Greater(t, o.held.Fence(), held.Fence())
		case <-time.After(leaseOf / 10):
			require.Fail(t, "the lock is stuck")
		}
		for _, s := range []*member{a, b} {
			require.NoError(t, s.Status().Err)
		}
	})
}
