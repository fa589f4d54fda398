package stream

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/goldentest"
)

var _ = flag.Bool("update", false, "rewrite the files in testdata")

// The bytes of a frame of each kind stay as they are: see CONTRIBUTING.md.
func TestGolden(t *testing.T) {
	a, b := newSession(t, 11), newSession(t, 1<<40)
	text, seen := "", make(map[kind]bool)
	now := int64(0)
	// say returns the frames that a stream has to say.
	say := func(s *Stream) [][]byte {
		frames := flush(s, now)
		for _, f := range frames {
			k := kind(f[0])
			text += goldentest.Line([]string{hello: "HELLO", refused: "REFUSED", ack: "ACK", data: "DATA", fin: "FIN", bye: "BYE", gap: "GAP", push: "PUSH"}[k], f)
			seen[k] = true
		}
		now += 100 * millisecond
		return frames
	}
	hand := func(s *Stream, frames [][]byte) {
		for _, f := range frames {
			_, err := s.Handle(now, f)
			require.NoError(t, err)
		}
	}
	for range 2 {
		hand(b, say(a))
		hand(a, say(b))
	}
	require.NoError(t, a.Send([]byte("one")))
	first := say(a)
	require.NoError(t, a.Send([]byte("two")))
	a.Push()
	now -= 100 * millisecond // or the first is sent again
	hand(b, say(a))
	hand(a, say(b))
	hand(b, first)
	hand(a, say(b))
	for _, s := range []*Stream{a, b} {
		s.Close()
		hand(b, say(a))
		hand(a, say(b))
	}
	hand(b, say(a))
	b = newSession(t, 1<<40)
	hand(b, [][]byte{greeting(11, 1<<40, settings)})
	say(b)
	hand(b, [][]byte{greeting(5, 1<<40, settings)})
	hand(newSession(t, 5), say(b))
	for k := hello; k <= push; k++ {
		require.True(t, seen[k], "kind %d", k)
	}
	goldentest.Compare(t, "testdata/wire.txt", text)
}
