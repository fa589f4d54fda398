package node_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/internal/stream"
	"github.com/dmutex/dmutex/transport/memlink"
)

// Somebody forges frames of member 1 to member 2, which then takes the true ones for repeats. Member 1
// says so and stops, and its next process takes part again.
func TestForgedData(t *testing.T) {
	bubble(t, strict, central.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(2)
		g.node(2).host.Deliver(1, forge(t, g.node(1).Status().Life, g.node(2).Status().Life))
		require.NoError(t, g.mutex(1, "x").Ask(t.Context()))
		time.Sleep(5 * time.Second)
		require.ErrorContains(t, g.node(1).Status().Err, "node: member 2: dmutex: peer's mistake: for some seconds it has acknowledged only what was never sent")
		_, err := g.mutex(1, "x").Acquire(t.Context())
		require.ErrorContains(t, err, "it has acknowledged only what was never sent")
		g.close(1)
		g.start(1)
		for _, id := range g.members {
			require.NoError(t, g.mutex(id, "x").Do(nodetest.ContextFor(t, time.Minute), nodetest.Nothing))
		}
	})
}

// With a store, the peer that cannot acknowledge seems silent. One of the two is excluded, and joins as
// another process.
func TestForgedDataLease(t *testing.T) {
	bubbleLease(t, central.New, func(t *testing.T, g *group) {
		two, one := g.join(), g.join()
		require.NoError(t, one.acquire("x").Release())
		require.NoError(t, two.acquire("x").Release())
		lives := func() [2]uint64 { return [2]uint64{one.Status().Life, two.Status().Life} }
		former := lives()
		two.host.Deliver(one.Self(), forge(t, former[0], former[1]))
		require.NoError(t, one.Mutex("x").Ask(t.Context())) // Ask sends to all
		time.Sleep(3 * leaseOf)
		require.NotEqual(t, former, lives())
		for _, s := range []*member{one, two} {
			require.NoError(t, s.Mutex("x").Do(nodetest.ContextFor(t, leaseOf), nodetest.Nothing))
		}
	})
}

// forge returns DATA frames that one life seems to send to another.
func forge(t *testing.T, from, to uint64) (frames [][]byte) {
	open := func(life uint64) *stream.Stream {
		return stream.New(stream.Config{Life: life, MaxLife: 1<<64 - 1, MaxFrame: 1 << 16, Versions: protocol.Spoken})
	}
	liar, victim := open(from), open(to)
	for _, s := range []*stream.Stream{victim, liar, victim} { // HELLO, and the answers
		other := map[*stream.Stream]*stream.Stream{liar: victim, victim: liar}[s]
		for frame := s.Transmit(0, nil); len(frame) > 0; frame = s.Transmit(0, nil) {
			_, err := other.Handle(0, frame)
			require.NoError(t, err)
		}
	}
	for range 1000 {
		require.NoError(t, liar.Send([]byte{127})) // a message that nobody knows
	}
	for frame := liar.Transmit(0, nil); len(frame) > 0; frame = liar.Transmit(0, nil) {
		frames = append(frames, frame)
	}
	return frames
}
