package msgpack

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dmutex/dmutex/internal/mistake"
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

		r := Reader{Rest: b}
		require.Equal(t, v, r.Uint())
		require.NoError(t, r.Finish())
	}
}

func TestLengthsAsTheTwinWritesThem(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 31, 32, 255, 256, math.MaxUint16, math.MaxUint16 + 1} {
		text := strings.Repeat("\xff", n)
		for _, c := range []struct {
			twin   func(*msgpack.Encoder) error
			append func(b []byte) []byte
			read   func(r *Reader) []byte
		}{
			{
				func(e *msgpack.Encoder) error { return e.EncodeBytes([]byte(text)) },
				func(b []byte) []byte { return AppendBin(b, []byte(text)) },
				(*Reader).Bin,
			},
			{
				func(e *msgpack.Encoder) error { return e.EncodeString(text) },
				func(b []byte) []byte { return AppendString(b, text) },
				(*Reader).Text,
			},
			{
				func(e *msgpack.Encoder) error { return e.EncodeArrayLen(n) },
				func(b []byte) []byte { return AppendArray(b, n) },
				func(r *Reader) []byte { return []byte(text)[:r.Array()] },
			},
		} {
			var twin bytes.Buffer
			require.NoError(t, c.twin(msgpack.NewEncoder(&twin)))
			twin.WriteString(text)
			b := append(c.append(nil), text...)
			require.Equal(t, twin.Bytes(), b, n)
			r := Reader{Rest: b}
			require.Equal(t, text, string(c.read(&r)))
			require.Equal(t, text, string(r.Rest))
			require.NoError(t, r.Err)
		}
	}
}

func TestRefused(t *testing.T) {
	const (
		number = iota
		bin
		text
		array
	)
	for _, c := range []struct {
		name  string
		read  int
		bytes string
		want  error
	}{
		{"nothing", number, "", ErrShort},
		{"nothing", bin, "", ErrShort},
		{"half a number", number, "\xcd\x01", ErrShort},
		{"half a byte string", bin, "\xc4\x02a", ErrShort},
		{"huge byte string", bin, "\xc6\xff\xff\xff\xff", ErrShort},
		{"long small number", number, "\xcc\x7f", ErrShortest},
		{"long number", number, "\xcd\x00\xff", ErrShortest},
		{"longer number", number, "\xce\x00\x00\xff\xff", ErrShortest},
		{"longest number", number, "\xcf\x00\x00\x00\x00\xff\xff\xff\xff", ErrShortest},
		{"long length of a byte string", bin, "\xc5\x00\x01a", ErrShortest},
		{"longer length of a byte string", bin, "\xc6\x00\x00\x00\x01a", ErrShortest},
		{"negative number", number, "\xff", ErrType},
		{"signed number", number, "\xd0\x01", ErrType},
		{"nil", number, "\xc0", ErrType},
		{"string for a number", number, "\xa1a", ErrType},
		{"string for a byte string", bin, "\xa1a", ErrType},
		{"byte string for a string", text, "\xc4\x01a", ErrType},
		{"nil for a string", text, "\xc0", ErrType},
		{"half a string", text, "\xa2a", ErrShort},
		{"huge string", text, "\xdb\xff\xff\xff\xff", ErrShort},
		{"long length of a string", text, "\xd9\x01a", ErrShortest},
		{"map for an array", array, "\x81\x01\x01", ErrType},
		{"array that cannot be there", array, "\x92\x01", ErrShort},
		{"huge array", array, "\xdd\xff\xff\xff\xff", ErrShort},
		{"long length of an array", array, "\xdc\x00\x01\x01", ErrShortest},
		{"something after a number", number, "\x00\x00", ErrLong},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Reader{Rest: []byte(c.bytes)}
			switch c.read {
			case number:
				require.Zero(t, r.Uint())
			case bin:
				require.Empty(t, r.Bin())
			case text:
				require.Empty(t, r.Text())
			case array:
				require.Zero(t, r.Array())
			}
			require.ErrorIs(t, r.Finish(), c.want)
			require.ErrorIs(t, r.Finish(), mistake.ErrPeer)
			require.Zero(t, r.Uint(), "nothing is taken after an error")
			require.ErrorIs(t, r.Err, c.want, "the first error stays")
		})
	}
}

// TestEveryInputHasOneReading reads random bytes: a value that was read is written as the
// same bytes.
func TestEveryInputHasOneReading(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, seed))
	heads := []byte{0x00, 0x7f, 0x92, 0xa2, 0xd9, 0xda, 0xdc, 0xa0, 0xc4, 0xc5, 0xc6, 0xcc, 0xcd, 0xce, 0xcf}
	for range 200_000 {
		b := make([]byte, 1+random.IntN(40))
		for i := 1; i < len(b); i++ {
			b[i] = byte(random.IntN(256) >> random.IntN(9))
		}
		b[0] = heads[random.IntN(len(heads))]
		taken := func(r *Reader) []byte { return b[:len(b)-len(r.Rest)] }
		r := Reader{Rest: b}
		if v := r.Uint(); r.Err == nil {
			require.Equal(t, AppendUint(nil, v), taken(&r))
		}
		r = Reader{Rest: b}
		if v := r.Bin(); r.Err == nil {
			require.Equal(t, AppendBin(nil, v), taken(&r))
		}
		r = Reader{Rest: b}
		if v := r.Text(); r.Err == nil {
			require.Equal(t, AppendString(nil, v), taken(&r))
		}
		r = Reader{Rest: b}
		if n := r.Array(); r.Err == nil {
			require.LessOrEqual(t, n, len(r.Rest))
			require.Equal(t, AppendArray(nil, n), taken(&r))
		}
	}
}

func TestNothingAllocated(t *testing.T) {
	hostile := []byte("\xc6\x7f\xff\xff\xff")
	buffer := make([]byte, 0, 64)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		r := Reader{Rest: hostile}
		if r.Bin(); r.Finish() == nil {
			panic("accepted")
		}
		b := AppendBin(AppendUint(buffer, math.MaxUint64), []byte("name"))
		r = Reader{Rest: b}
		r.Uint()
		r.Bin()
	}))
}
