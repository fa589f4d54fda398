package linktest

import (
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// bursts holds the receiver up, so that frames have time to come together.
func (b *bench) bursts() {
	from, to := b.member(1), b.member(2)
	link, ok := to.Link.(transport.BurstLink)
	if !ok {
		b.Skip("it is no BurstLink")
	}
	require.NoError(b, from.Open(ignore))
	gate := b.gate()
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
		gate.pass()
	}))
	require.ErrorIs(b, link.Open(ignore), dmutex.ErrMisuse)
	const count = 1000
	for i := range count {
		require.NoError(b, from.Send(to.self, numeral(i)))
		if i == 0 {
			await(b, gate.reached, "deliver")
		}
	}
	b.settle()
	gate.open()
	to.counts(0, count)
	require.NoError(b, link.Close())
	require.ErrorIs(b, link.OpenBursts(func(dmutex.NodeID, [][]byte) {}), transport.ErrClosed)
}
