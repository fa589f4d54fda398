package nodetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/internal/stream"
)

// Forge returns DATA frames that one life seems to send to another, with so many messages.
func Forge(t *testing.T, from, to uint64, messages int) (frames [][]byte) {
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
	for range messages {
		require.NoError(t, liar.Send([]byte{127})) // a message that nobody knows
	}
	for frame := liar.Transmit(0, nil); len(frame) > 0; frame = liar.Transmit(0, nil) {
		frames = append(frames, frame)
	}
	return frames
}

// Build makes this process another build, until the test ends.
func Build(t *testing.T, oldest, newest uint64) {
	was := protocol.Spoken
	protocol.Spoken = protocol.Versions{Oldest: oldest, Newest: newest}
	t.Cleanup(func() { protocol.Spoken = was })
}
