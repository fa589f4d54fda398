package linktest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/channel"
)

// TestSession lets three nodes send each other thousands of numbered messages at
// once, through channels over links. Each message must arrive once and in order. If seed
// is not 0, a tenth of the frames is lost, a tenth sent twice and a tenth held back until
// the next one to the same node, all drawn with the seed. If midway is not nil, it is
// called when half of the messages have arrived, to disturb the network in its own way.
// One of the nodes receives nothing until midway returns, so the disturbance happens in
// the middle of the traffic.
func TestSession(t *testing.T, links Links, seed uint64, midway func()) {
	t.Logf("seed %d", seed)
	links.inBench(t, func(b *bench) { talk(b, seed, midway) })
}

// A narrow link has small frames, so that there are many, and may be a bad one. What
// happens to a frame depends on the seed, the receiver and how many frames were sent to
// it before.
type narrow struct {
	transport.Link
	seed uint64

	mu   sync.Mutex
	luck map[dmutex.NodeID]*rand.Rand
	held map[dmutex.NodeID][]byte // held back
}

func (*narrow) MaxFrame() int { return 1024 }

// Send implements [transport.Link]. It returns nil for a frame that is lost.
func (l *narrow) Send(to dmutex.NodeID, frame []byte) error {
	if l.seed == 0 {
		return l.Link.Send(to, frame)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.luck[to] == nil {
		l.luck[to] = rand.New(rand.NewPCG(l.seed, uint64(to)))
	}
	lost, twice, later := l.luck[to].Float64() < .1, l.luck[to].Float64() < .1, l.luck[to].Float64() < .1
	switch {
	case lost:
		return nil
	case later && l.held[to] == nil:
		l.held[to] = bytes.Clone(frame)
		return nil
	}
	err := l.Link.Send(to, frame)
	if twice {
		_ = l.Link.Send(to, frame)
	}
	if l.held[to] != nil {
		_ = l.Link.Send(to, l.held[to])
		delete(l.held, to)
	}
	return err
}

const (
	speakers = 3
	speeches = 500 // from each to each
	lead     = 8   // so many at first; then one for each that is heard
)

func talk(b *bench, seed uint64, midway func()) {
	half, harmed, full := make(chan bool), make(chan bool), make(chan bool)
	var heard atomic.Int32 // messages
	all := []dmutex.NodeID{1, 2, 3}
	bad := make(map[dmutex.NodeID]transport.Link)
	for _, self := range all {
		bad[self] = &narrow{Link: b.make(self), seed: seed, luck: make(map[dmutex.NodeID]*rand.Rand), held: make(map[dmutex.NodeID][]byte)}
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
			_ = c.Close(ctx) // nobody waits for the others
		})
		for _, peer := range peers {
			require.NoError(b, c.Do("speech", func() ([]dmutex.Message, error) { return speak(peer, lead), nil }))
		}
	}
	await(b, half, "half of the messages")
	func() {
		defer close(harmed) // though midway may end the test
		if midway != nil {
			midway()
		}
	}()
	await(b, full, "the rest of the messages")
}
