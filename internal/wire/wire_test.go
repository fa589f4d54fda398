package wire

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
)

// A length that its input cannot hold, a nil in the place of a length, and other types are
// refused, as is what msgpack converts and no Writer writes.
func TestReaderRefuses(t *testing.T) {
	array := func(r *Reader) { r.Array(math.MaxInt) }
	name := func(r *Reader) { r.Name(math.MaxInt) }
	number := func(r *Reader) { r.Number() }
	for what, tt := range map[string]struct {
		read  func(*Reader)
		bytes string
	}{
		"no array":             {array, ""},
		"a nil array":          {array, "\xc0"},
		"a long array":         {array, "\xdd\xff\xff\xff\xff"},
		"half a length":        {array, "\xdd\xff\xff"},
		"an array of one more": {array, "\x92\x01"},
		"a map":                {array, "\x81\x01\x01"},
		"a nil name":           {name, "\xc0"},
		"an empty name":        {name, "\xa0"},
		"a long name":          {name, "\xdb\xff\xff\xff\xff"},
		"a name of one more":   {name, "\xa2x"},
		"a nil number":         {number, "\xc0"},
		"a negative number":    {number, "\xff"},
		"a long form":          {number, "\xcf\x00\x00\x00\x00\x00\x00\x00\x01"},
		"a fraction":           {number, "\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00"},
		"half a number":        {number, "\xcf\x00"},
	} {
		var r Reader
		r.Reset([]byte(tt.bytes))
		tt.read(&r)
		require.ErrorIs(t, r.End(func(w *Writer) { w.Uint(1) }), dmutex.ErrPeer, what)
	}
}

// Nothing that a stranger sends makes a Reader panic, or return more than it was given.
func TestReaderOfNonsense(t *testing.T) {
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, 0))
	var r Reader
	for range 100_000 {
		b := make([]byte, rng.IntN(12))
		for i := range b {
			if b[i] = byte(rng.Uint32()); rng.IntN(2) == 0 {
				b[i] = 0xc0 | b[i]&0x1f // more types and lengths
			}
		}
		r.Reset(b)
		for range 4 {
			size := 0
			switch rng.IntN(3) {
			case 0:
				r.Number()
			case 1:
				size = len(r.Name(math.MaxInt))
			case 2:
				size = r.Array(math.MaxInt)
			}
			if size < 0 || size > len(b) {
				t.Fatalf("seed %d: %x gives %d", seed, b, size)
			}
		}
	}
}
