package stream

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/dmutex/dmutex"
)

// The edges of every form of integer and length.
var edges = []uint64{
	0, 1, 15, 16, 31, 32, 127, 128, 255, 256, math.MaxUint16, math.MaxUint16 + 1,
	math.MaxUint32, math.MaxUint32 + 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64,
}

func TestUintAsTheTwinWritesIt(t *testing.T) {
	for _, v := range edges {
		b := appendUint(nil, v)
		require.LessOrEqual(t, len(b), maxUint)

		var twin bytes.Buffer
		enc := msgpack.NewEncoder(&twin)
		enc.UseCompactInts(true)
		require.NoError(t, enc.EncodeUint(v))
		require.Equal(t, twin.Bytes(), b, v)

		r := reader{rest: b}
		require.Equal(t, v, r.uint())
		require.NoError(t, r.finish())
	}
}

func TestLengthsAsTheTwinWritesThem(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 31, 32, 255, 256, math.MaxUint16, math.MaxUint16 + 1} {
		var twin bytes.Buffer
		enc := msgpack.NewEncoder(&twin)
		text := strings.Repeat("\xff", n)
		require.NoError(t, enc.EncodeBytes([]byte(text)))
		twin.WriteString(text)

		b := appendBin(nil, []byte(text))
		b = append(b, text...)
		require.Equal(t, twin.Bytes(), b, n)

		r := reader{rest: b}
		require.Equal(t, text, string(r.bin()))
		require.Equal(t, text, string(r.rest))
		require.NoError(t, r.err)
	}
}

func TestRefused(t *testing.T) {
	const (
		number = iota
		bin
	)
	for _, c := range []struct {
		name  string
		read  int
		bytes string
		want  error
	}{
		{"nothing", number, "", errShort},
		{"nothing", bin, "", errShort},
		{"half a number", number, "\xcd\x01", errShort},
		{"half a byte string", bin, "\xc4\x02a", errShort},
		{"huge byte string", bin, "\xc6\xff\xff\xff\xff", errShort},
		{"long small number", number, "\xcc\x7f", errShortest},
		{"long number", number, "\xcd\x00\xff", errShortest},
		{"longer number", number, "\xce\x00\x00\xff\xff", errShortest},
		{"longest number", number, "\xcf\x00\x00\x00\x00\xff\xff\xff\xff", errShortest},
		{"long length of a byte string", bin, "\xc5\x00\x01a", errShortest},
		{"longer length of a byte string", bin, "\xc6\x00\x00\x00\x01a", errShortest},
		{"negative number", number, "\xff", errType},
		{"signed number", number, "\xd0\x01", errType},
		{"nil", number, "\xc0", errType},
		{"string for a number", number, "\xa1a", errType},
		{"string for a byte string", bin, "\xa1a", errType},
		{"something after a number", number, "\x00\x00", errLong},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := reader{rest: []byte(c.bytes)}
			switch c.read {
			case number:
				require.Zero(t, r.uint())
			case bin:
				require.Empty(t, r.bin())
			}
			require.ErrorIs(t, r.finish(), c.want)
			require.ErrorIs(t, r.finish(), dmutex.ErrPeer)
			require.Zero(t, r.uint(), "nothing is taken after an error")
			require.ErrorIs(t, r.err, c.want, "the first error stays")
		})
	}
}

// TestEveryInputHasOneReading reads random bytes: a value that was read is written as the
// same bytes.
func TestEveryInputHasOneReading(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, seed))
	heads := []byte{0x00, 0x7f, 0xa0, 0xc4, 0xc5, 0xc6, 0xcc, 0xcd, 0xce, 0xcf}
	for range 200_000 {
		b := make([]byte, 1+random.IntN(40))
		for i := 1; i < len(b); i++ {
			b[i] = byte(random.IntN(256) >> random.IntN(9))
		}
		b[0] = heads[random.IntN(len(heads))]
		taken := func(r *reader) []byte { return b[:len(b)-len(r.rest)] }
		r := reader{rest: b}
		if v := r.uint(); r.err == nil {
			require.Equal(t, appendUint(nil, v), taken(&r))
		}
		r = reader{rest: b}
		if v := r.bin(); r.err == nil {
			require.Equal(t, appendBin(nil, v), taken(&r))
		}
	}
}

func TestNothingAllocated(t *testing.T) {
	hostile := []byte("\xc6\x7f\xff\xff\xff")
	buffer := make([]byte, 0, 64)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		r := reader{rest: hostile}
		if r.bin(); r.finish() == nil {
			panic("accepted")
		}
		b := appendBin(appendUint(buffer, math.MaxUint64), []byte("name"))
		r = reader{rest: b}
		r.uint()
		r.bin()
	}))
}
