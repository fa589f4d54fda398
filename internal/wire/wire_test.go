package wire

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/mistake"
)

// Read refuses a length beyond its input, a nil in the place of a length, other types, and
// forms that msgpack converts but Write does not write.
func TestReaderRefuses(t *testing.T) {
	array := func(f *Fields) { f.Array(new(int), math.MaxInt) }
	name := func(f *Fields) { f.Name(new(string), math.MaxInt) }
	one := uint64(1)
	number := func(f *Fields) { Number(f, &one) }
	for what, tt := range map[string]struct {
		read  func(*Fields)
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
		require.ErrorIs(t, Read([]byte(tt.bytes), tt.read), mistake.ErrPeer, what)
	}
}

// Nothing that a stranger sends makes Read panic, or return more than it was given.
func TestReaderOfNonsense(t *testing.T) {
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 100_000 {
		b := make([]byte, rng.IntN(12))
		for i := range b {
			if b[i] = byte(rng.Uint32()); rng.IntN(2) == 0 {
				b[i] = 0xc0 | b[i]&0x1f // more types and lengths
			}
		}
		_ = Read(b, func(f *Fields) {
			for range 4 {
				size, name := 0, ""
				switch rng.IntN(3) {
				case 0:
					Number(f, new(uint64))
				case 1:
					f.Name(&name, math.MaxInt)
				case 2:
					f.Array(&size, math.MaxInt)
				}
				if size += len(name); size < 0 || size > len(b) {
					t.Fatalf("seed %d: %x gives %d", seed, b, size)
				}
			}
		})
	}
}

// Write only reads the fields, so other goroutines may read them meanwhile. The test needs -race.
func TestWriteOnlyReads(t *testing.T) {
	number, set := uint64(7), true
	write := func() {
		Write(nil, func(f *Fields) {
			Number(f, &number)
			f.Bool(&set)
		})
	}
	var writing sync.WaitGroup
	writing.Go(write)
	write()
	writing.Wait()
}
