package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/internal/session"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
)

// tapped is a link on which somebody else may deliver frames.
type tapped struct {
	transport.Link
	deliver func(from dmutex.NodeID, frames [][]byte)
}

func (l *tapped) Open(host transport.Host) error {
	l.deliver = host.Deliver
	return l.Link.Open(host)
}

// forge returns DATA frames that one life seems to send to another, with so many messages.
func forge(t *testing.T, from, to uint64, messages int) (frames [][]byte) {
	open := func(life uint64) *session.Session {
		return session.New(session.Config{Life: life, MaxLife: 1<<64 - 1, MaxFrame: 1 << 16, Versions: protocol.Spoken})
	}
	liar, victim := open(from), open(to)
	for _, s := range []*session.Session{victim, liar, victim} { // HELLO, and the answers
		other := map[*session.Session]*session.Session{liar: victim, victim: liar}[s]
		for frame := s.Transmit(0, nil); len(frame) > 0; frame = s.Transmit(0, nil) {
			_, err := other.Handle(0, frame)
			require.NoError(t, err)
		}
	}
	for range messages {
		require.NoError(t, liar.Send([]byte{127})) // a message that nobody knows
	}
	for frame := liar.Transmit(0, nil); len(frame) > 0; frame = liar.Transmit(0, nil) {
		frames = append(frames, frame)
	}
	return frames
}

// Somebody forges frames of member 1 to member 2, which then takes the true ones for repeats. Member 1
// says so and stops, and its next process takes part again.
func TestForgedData(t *testing.T) {
	bubble(t, central.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		link := &tapped{Link: g.net.Link(2)}
		g.start(1)
		g.nodes[2] = g.startOn(2, link)
		for _, id := range g.members {
			require.NoError(t, g.nodes[id].Ready(t.Context()))
		}
		link.deliver(1, forge(t, g.nodes[1].Status().Life, g.nodes[2].Status().Life, 1000))
		require.NoError(t, g.mutex(1, "x").Ask(t.Context()))
		time.Sleep(5 * time.Second)
		require.ErrorContains(t, g.nodes[1].Status().Err, "node: member 2: dmutex: peer's mistake: for some seconds it has acknowledged only what was never sent")
		_, err := g.mutex(1, "x").Acquire(t.Context())
		require.ErrorContains(t, err, "it has acknowledged only what was never sent")
		g.close(1)
		g.start(1)
		for _, id := range g.members {
			require.NoError(t, g.mutex(id, "x").Do(contextFor(t, time.Minute), nothing))
		}
	})
}

// With a store, the peer that cannot acknowledge seems silent. One of the two is excluded, and joins as
// another process.
func TestForgedDataLease(t *testing.T) {
	bubbleLease(t, central.New, func(t *testing.T, g *leaseGroup) {
		two := &member{group: g, store: outagetest.New(t, &g.store, outagetest.Faults{})}
		link := &tappedDynamic{DynamicLink: two.newLink()}
		var err error
		two.Node, err = node.Open(t.Context(), two.store, link, g.config(two))
		require.NoError(t, err)
		g.all = append(g.all, two)
		one := g.start()
		require.NoError(t, one.acquire("x").Release())
		require.NoError(t, two.acquire("x").Release())
		lives := func() [2]uint64 { return [2]uint64{one.Status().Life, two.Status().Life} }
		former := lives()
		link.deliver(one.Self(), forge(t, former[0], former[1], 1000))
		require.NoError(t, one.Mutex("x").Ask(t.Context())) // Ask sends to all
		time.Sleep(3 * leaseOf)
		require.NotEqual(t, former, lives())
		for _, s := range []*member{one, two} {
			require.NoError(t, s.Mutex("x").Do(contextFor(t, leaseOf), nothing))
		}
	})
}

type tappedDynamic struct {
	transport.DynamicLink
	deliver func(from dmutex.NodeID, frames [][]byte)
}

func (l *tappedDynamic) Open(host transport.Host) error {
	l.deliver = host.Deliver
	return l.DynamicLink.Open(host)
}

func nothing(context.Context, uint64) error { return nil }
