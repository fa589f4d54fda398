package msgp

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dmutex/dmutex"
	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
)

// The edges of every form of integer and length.
var edges = []uint64{
	0, 1, 15, 16, 31, 32, 127, 128, 255, 256, math.MaxUint16, math.MaxUint16 + 1,
	math.MaxUint32, math.MaxUint32 + 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64,
}

func TestUintAsTheTwinWritesIt(t *testing.T) {
	for _, v := range edges {
		b := AppendUint(nil, v)
		require.LessOrEqual(t, len(b), MaxUint)

		var twin bytes.Buffer
		enc := msgpack.NewEncoder(&twin)
		enc.UseCompactInts(true)
		require.NoError(t, enc.EncodeUint(v))
		require.Equal(t, twin.Bytes(), b, v)

		r := NewReader(b)
		require.Equal(t, v, r.Uint())
		require.NoError(t, r.End())
	}
}

func TestLengthsAsTheTwinWritesThem(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 31, 32, 255, 256, math.MaxUint16, math.MaxUint16 + 1} {
		var twin bytes.Buffer
		enc := msgpack.NewEncoder(&twin)
		text := strings.Repeat("\xff", n)
		require.NoError(t, enc.EncodeString(text))
		require.NoError(t, enc.EncodeBytes([]byte(text)))
		require.NoError(t, enc.EncodeArrayLen(n))
		twin.WriteString(text)

		b := AppendArray(AppendBin(AppendString(nil, text), []byte(text)), n)
		b = append(b, text...)
		require.Equal(t, twin.Bytes(), b, n)

		r := NewReader(b)
		require.Equal(t, text, string(r.String(n)))
		require.Equal(t, text, string(r.Bin(n)))
		require.Equal(t, n, r.Array(n))
		require.Equal(t, text, string(r.Rest()))
		require.NoError(t, r.Err())
	}
}

func TestRefused(t *testing.T) {
	const (
		number = iota
		str
		bin
		array
	)
	for _, c := range []struct {
		name  string
		read  int
		bytes string
		want  Error
	}{
		{"nothing", number, "", ErrShort},
		{"nothing", str, "", ErrShort},
		{"nothing", bin, "", ErrShort},
		{"nothing", array, "", ErrShort},
		{"half a number", number, "\xcd\x01", ErrShort},
		{"half a length", str, "\xda\x01", ErrShort},
		{"half a string", str, "\xa2a", ErrShort},
		{"half a byte string", bin, "\xc4\x02a", ErrShort},
		{"half an array", array, "\x92\x00", ErrShort},
		{"huge string", str, "\xdb\xff\xff\xff\xff", ErrBound},
		{"huge byte string", bin, "\xc6\xff\xff\xff\xff", ErrBound},
		{"huge array", array, "\xdd\xff\xff\xff\xff", ErrBound},
		{"string beyond its bound", str, "\xd9\x65" + strings.Repeat("a", 101), ErrBound},
		{"byte string beyond its bound", bin, "\xc4\x65" + strings.Repeat("a", 101), ErrBound},
		{"array beyond its bound", array, "\xdc\x00\x65" + strings.Repeat("a", 101), ErrBound},
		{"long small number", number, "\xcc\x7f", ErrShortest},
		{"long number", number, "\xcd\x00\xff", ErrShortest},
		{"longer number", number, "\xce\x00\x00\xff\xff", ErrShortest},
		{"longest number", number, "\xcf\x00\x00\x00\x00\xff\xff\xff\xff", ErrShortest},
		{"long length of a short string", str, "\xd9\x01a", ErrShortest},
		{"longer length", str, "\xda\x00\x20" + strings.Repeat("a", 32), ErrShortest},
		{"longest length", str, "\xdb\x00\x00\x00\x20" + strings.Repeat("a", 32), ErrShortest},
		{"long length of a byte string", bin, "\xc5\x00\x01a", ErrShortest},
		{"longer length of a byte string", bin, "\xc6\x00\x00\x00\x01a", ErrShortest},
		{"long length of an array", array, "\xdc\x00\x01a", ErrShortest},
		{"longer length of an array", array, "\xdd\x00\x00\x00\x01a", ErrShortest},
		{"negative number", number, "\xff", ErrType},
		{"signed number", number, "\xd0\x01", ErrType},
		{"nil", number, "\xc0", ErrType},
		{"string for a number", number, "\xa1a", ErrType},
		{"byte string for a string", str, "\xc4\x01a", ErrType},
		{"string for a byte string", bin, "\xa1a", ErrType},
		{"map for an array", array, "\x81\x00\x00", ErrType},
		{"something after a number", number, "\x00\x00", ErrLong},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewReader([]byte(c.bytes))
			switch c.read {
			case number:
				require.Zero(t, r.Uint())
			case str:
				require.Empty(t, r.String(100))
			case bin:
				require.Empty(t, r.Bin(100))
			case array:
				require.Zero(t, r.Array(100))
			}
			require.ErrorIs(t, r.End(), c.want)
			require.ErrorIs(t, r.End(), dmutex.ErrPeer)
			require.Zero(t, r.Uint(), "nothing is taken after an error")
			require.ErrorIs(t, r.Err(), c.want, "the first error stays")
		})
	}
}

// TestEveryInputHasOneReading reads random bytes: what is read is written the
// same way again.
func TestEveryInputHasOneReading(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, seed))
	heads := []byte{0x00, 0x7f, 0x90, 0x91, 0xa0, 0xa1, 0xc4, 0xc5, 0xc6, 0xcc, 0xcd, 0xce, 0xcf, 0xd9, 0xda, 0xdb, 0xdc, 0xdd}
	for range 200_000 {
		b := make([]byte, 1+random.IntN(40))
		for i := 1; i < len(b); i++ {
			b[i] = byte(random.IntN(256) >> random.IntN(9))
		}
		b[0] = heads[random.IntN(len(heads))]
		taken := func(r *Reader) []byte { return b[:len(b)-len(r.Rest())] }
		if r := NewReader(b); true {
			if v := r.Uint(); r.Err() == nil {
				require.Equal(t, AppendUint(nil, v), taken(&r))
			}
		}
		if r := NewReader(b); true {
			if v := r.String(100); r.Err() == nil {
				require.Equal(t, AppendString(nil, string(v)), taken(&r))
			}
		}
		if r := NewReader(b); true {
			if v := r.Bin(100); r.Err() == nil {
				require.Equal(t, AppendBin(nil, v), taken(&r))
			}
		}
		if r := NewReader(b); true {
			if v := r.Array(100); r.Err() == nil {
				require.Equal(t, AppendArray(nil, v), taken(&r))
			}
		}
	}
}

func TestNothingAllocated(t *testing.T) {
	hostile := []byte("\xdd\x7f\xff\xff\xff")
	buffer := make([]byte, 0, 64)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		r := NewReader(hostile)
		if r.Array(math.MaxInt32); r.End() == nil {
			panic("accepted")
		}
		b := AppendArray(AppendString(AppendUint(buffer, math.MaxUint64), "name"), 3)
		r = NewReader(b)
		r.Uint()
		r.String(10)
		r.Array(10)
	}))
}
