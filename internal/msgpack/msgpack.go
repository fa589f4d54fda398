// Package msgpack appends and reads the few types of msgpack that are on the wire: integers, strings, byte
// strings and the heads of arrays. Every value has exactly one encoding, the shortest one, and a reader takes no
// other. (A library's encoder would bring in reflect and sync.)
package msgpack

import (
	"cmp"

	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/dmutex/dmutex/internal/mistake"
)

// The longest encodings.
const (
	MaxUint = 9 // bytes of the longest integer
	MaxHead = 5 // bytes of the longest length before a string or an array
)

// What no correct peer sends.
var (
	ErrShort    = mistake.Peer("the encoding ends too early")
	ErrLong     = mistake.Peer("bytes follow the end of the encoding")
	ErrType     = mistake.Peer("a field is of the wrong type")
	ErrShortest = mistake.Peer("a number or length is not in its shortest form")
)

// A form is how a length is written: in the low bits of a byte if it is small, and behind one of several
// codes if it is not.
type form struct {
	low   byte   // the byte of a small one
	few   uint64 // how many small ones there are
	first byte   // the code before the fewest bytes
	size  int    // that it stands before
	last  byte   // the code before the most
}

var (
	number = form{0, uint64(msgpcode.PosFixedNumHigh) + 1, msgpcode.Uint8, 1, msgpcode.Uint64}
	bin    = form{0, 0, msgpcode.Bin8, 1, msgpcode.Bin32}
	text   = form{msgpcode.FixedStrLow, 32, msgpcode.Str8, 1, msgpcode.Str32}
	array  = form{msgpcode.FixedArrayLow, 16, msgpcode.Array16, 2, msgpcode.Array32}
)

// AppendUint appends an integer.
func AppendUint(b []byte, v uint64) []byte { return number.append(b, v) }

// AppendBin appends a byte string of at most 2^32-1 bytes.
func AppendBin(b, v []byte) []byte { return append(bin.append(b, uint64(len(v))), v...) }

// AppendString appends a string of at most 2^32-1 bytes.
func AppendString[T ~string | ~[]byte](b []byte, v T) []byte {
	return append(text.append(b, uint64(len(v))), v...)
}

// AppendArray appends the head of an array of at most 2^32-1 elements.
func AppendArray(b []byte, n int) []byte { return array.append(b, uint64(n)) }

// append appends v, big-endian, in as few bytes as it fits into.
func (f *form) append(b []byte, v uint64) []byte {
	if v < f.few {
		return append(b, f.low|byte(v))
	}
	return f.long(b, v)
}

func (f *form) long(b []byte, v uint64) []byte {
	code, shift := f.first, 8*f.size
	for ; shift < 64 && v>>shift > 0; shift *= 2 {
		code++
	}
	b = append(b, code)
	for shift > 0 {
		shift -= 8
		b = append(b, byte(v>>shift))
	}
	return b
}

// A Reader takes values off the front of Rest. After the first error every value is zero
// and nothing more is taken, so that one look at the error serves for all.
type Reader struct {
	Rest []byte
	Err  error
}

// Finish returns the first error, which may be that something is left.
func (r *Reader) Finish() error {
	if len(r.Rest) > 0 {
		r.Fail(ErrLong)
	}
	return r.Err
}

// Uint reads an integer.
func (r *Reader) Uint() uint64 { return r.read(&number) }

// Bin reads a byte string. The result is part of the buffer.
func (r *Reader) Bin() []byte { return r.bytes(&bin) }

// Text reads a string, likewise.
func (r *Reader) Text() []byte { return r.bytes(&text) }

// Array reads the head of an array. An array that is longer than the buffer is none, for each element takes a byte
// or more.
func (r *Reader) Array() int {
	n := r.read(&array)
	if n > uint64(len(r.Rest)) {
		n = r.Fail(ErrShort)
	}
	return int(n)
}

func (r *Reader) bytes(f *form) (b []byte) {
	n := r.read(f)
	if n > uint64(len(r.Rest)) {
		r.Fail(ErrShort)
		return nil
	}
	b, r.Rest = r.Rest[:n:n], r.Rest[n:]
	return b
}

// read takes what append wrote.
func (r *Reader) read(f *form) (v uint64) {
	if len(r.Rest) == 0 {
		return r.Fail(ErrShort)
	}
	code := r.Rest[0]
	if low := uint64(code - f.low); low < f.few {
		r.Rest = r.Rest[1:]
		return low
	}
	return r.long(f, code)
}

func (r *Reader) long(f *form, code byte) (v uint64) {
	if code < f.first || code > f.last {
		return r.Fail(ErrType)
	}
	size, least := f.size<<(code-f.first), f.few
	if len(r.Rest) <= size {
		return r.Fail(ErrShort)
	}
	if code > f.first {
		least = 1 << (4 * size)
	}
	for _, digit := range r.Rest[1 : 1+size] {
		v = v<<8 | uint64(digit)
	}
	if r.Rest = r.Rest[1+size:]; v < least {
		return r.Fail(ErrShortest)
	}
	return v
}

// Fail keeps the first error, takes away what is left, and returns 0.
func (r *Reader) Fail(err error) (zero uint64) {
	r.Err, r.Rest = cmp.Or(r.Err, err), nil
	return 0
}
