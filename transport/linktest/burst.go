package linktest

import (
	"encoding/binary"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// bursts holds the receiver up, so that frames have time to come together.
func (b *bench) bursts() {
	from, to := &stand{b: b, self: 1}, &stand{b: b, self: 2, got: make(chan arrival, 1<<12)}
	from.Link = b.make(from.self)
	link, ok := b.make(to.self).(transport.BurstLink)
	if !ok {
		b.Skip("it is no BurstLink")
	}
	require.NoError(b, from.Open(func(dmutex.NodeID, []byte) {}))
	began, end := make(chan bool), make(chan bool)
	resume := sync.OnceFunc(func() { close(end) })
	b.Cleanup(resume) // before the links are closed
	require.NoError(b, link.OpenBursts(func(id dmutex.NodeID, frames [][]byte) {
		if len(frames) == 0 {
			b.Error("a burst without frames")
		}
		for _, frame := range frames {
			if len(frame) == 0 {
				b.Error("a frame without bytes")
			}
			to.keep(id, frame)
		}
		if began != nil {
			close(began)
			began = nil
			<-end
		}
	}))
	require.ErrorIs(b, link.Open(func(dmutex.NodeID, []byte) {}), dmutex.ErrMisuse)
	const count = 1000
	first := began
	for i := range count {
		require.NoError(b, from.Send(to.self, binary.BigEndian.AppendUint64(nil, uint64(i))))
		if i == 0 {
			await(b, first, "deliver")
		}
	}
	b.settle()
	resume()
	seen := make(map[uint64]bool)
	for i := range count {
		a := to.next()
		require.Equal(b, from.self, a.from)
		n := binary.BigEndian.Uint64(a.frame)
		require.False(b, seen[n], "frame %d comes a second time", n)
		seen[n] = true
		if b.links.Ordered {
			require.Equal(b, uint64(i), n, "out of order")
		}
	}
	require.NoError(b, link.Close())
	require.ErrorIs(b, link.OpenBursts(func(dmutex.NodeID, [][]byte) {}), transport.ErrClosed)
}
