package linktest

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/channel"
)

// TestStream lets three nodes send each other thousands of numbered messages at
// once, through channels over links. Each message must arrive once and in order. If midway
// is not nil, it is called when half of them have arrived, to disturb the network in its
// own way. One of the nodes receives nothing until midway returns, so the disturbance
// happens in the middle of the traffic.
func TestStream(t *testing.T, links Links, midway func()) {
	links.inBench(t, func(b *bench) { talk(b, midway) })
}

// A narrow link has small frames, so that there are many.
type narrow struct{ transport.Link }

func (narrow) MaxFrame() int { return 1024 }

const (
	speakers = 3
	speeches = 500 // from each to each
	lead     = 8   // from each to each at first; then one more for each that arrives
)

func talk(b *bench, midway func()) {
	half, harmed, full := make(chan bool), make(chan bool), make(chan bool)
	var heard atomic.Int32 // messages
	all := []dmutex.NodeID{1, 2, 3}
	bad := make(map[dmutex.NodeID]transport.Link)
	for _, self := range all {
		bad[self] = narrow{b.make(self)}
	}
	for _, self := range all {
		var said, due [speakers + 1]uint64 // by peer
		// Messages begin with 1, and have any size up to some hundred bytes.
		speak := func(peer dmutex.NodeID, n int) (out []dmutex.Message) {
			for ; n > 0 && said[peer] < speeches; n-- {
				said[peer]++
				out = append(out, dmutex.Message{
					Kind: dmutex.Request, From: self, To: peer, Clock: said[peer], Numbers: slices.Repeat([]uint64{1 << 63}, int(said[peer]*said[peer]%50)),
				})
			}
			return out
		}
		peers := slices.DeleteFunc(slices.Clone(all), func(id dmutex.NodeID) bool { return id == self })
		c, err := channel.Open(self, channel.Config{
			Peers: peers, Link: bad[self],
			Receive: func(_ string, m dmutex.Message) ([]dmutex.Message, error) {
				if due[m.From]++; m.Clock != due[m.From] {
					b.Errorf("node %d: message %d of node %d comes when %d is due", self, m.Clock, m.From, due[m.From])
				}
				switch heard.Add(1) {
				case speakers * (speakers - 1) * speeches / 2:
					close(half)
					<-harmed
				case speakers * (speakers - 1) * speeches:
					close(full)
				}
				return speak(m.From, 1), nil
			},
			Lost: func(peer dmutex.NodeID, why error) {
				if heard.Load() < speakers*(speakers-1)*speeches {
					b.Errorf("node %d: channel to node %d: %v", self, peer, why)
				}
			},
		})
		require.NoError(b, err)
		b.Cleanup(func() { // before the links are closed
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = c.Close(ctx) // does not wait for the others
		})
		for _, peer := range peers {
			require.NoError(b, c.Do("speech", func() ([]dmutex.Message, error) { return speak(peer, lead), nil }))
		}
	}
	await(b, half, "half of the messages")
	func() {
		defer close(harmed) // even if midway ends the test
		if midway != nil {
			midway()
		}
	}()
	await(b, full, "the rest of the messages")
}
