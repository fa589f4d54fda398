// Package msgp writes and reads the few msgpack types that dmutex puts on the
// wire: unsigned integers, strings, byte strings and arrays.
//
// It is canonical: every value has exactly one encoding, the shortest one, and
// the [Reader] takes no other. It allocates nothing, and believes no length
// that the input cannot hold; so bytes from a stranger cost no more than their
// own size.
package msgp

import (
	"math"

	"github.com/dmutex/dmutex"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// An Error says what is wrong with bytes that a peer sent. It answers to
// [dmutex.ErrPeer].
type Error string

func (e Error) Error() string { return dmutex.ErrPeer.Error() + ": " + string(e) }

// Unwrap returns [dmutex.ErrPeer].
func (e Error) Unwrap() error { return dmutex.ErrPeer }

// What a [Reader] finds wrong.
const (
	ErrShort    Error = "the encoding ends too early"
	ErrLong     Error = "bytes follow the end of the encoding"
	ErrType     Error = "a field is of the wrong type"
	ErrShortest Error = "a number or length is not in its shortest form"
	ErrBound    Error = "a number or length is beyond its bound"
	ErrEmpty    Error = "a name is empty"
)

// MaxUint and MaxHead are the sizes of the longest integer, and of the longest
// length that goes before a string, a byte string or an array, in bytes.
const (
	MaxUint = 9
	MaxHead = 5
)

// AppendUint appends an integer.
func AppendUint(b []byte, v uint64) []byte {
	switch {
	case v <= uint64(msgpcode.PosFixedNumHigh):
		return append(b, byte(v))
	case v <= math.MaxUint8:
		return append(b, msgpcode.Uint8, byte(v))
	case v <= math.MaxUint16:
		return append16(b, msgpcode.Uint16, v)
	case v <= math.MaxUint32:
		return append32(b, msgpcode.Uint32, v)
	default:
		return big32(append32(b, msgpcode.Uint64, v>>32), v)
	}
}

// AppendString appends a string of at most [math.MaxUint32] bytes. Msgpack
// wants it in UTF-8 but lets it be anything, and so do we.
func AppendString(b []byte, s string) []byte {
	if len(s) <= int(msgpcode.FixedStrMask) {
		b = append(b, msgpcode.FixedStrLow|byte(len(s)))
	} else {
		b = appendLength(b, msgpcode.Str8, len(s))
	}
	return append(b, s...)
}

// AppendBin appends a byte string of at most [math.MaxUint32] bytes.
func AppendBin(b, bin []byte) []byte {
	return append(appendLength(b, msgpcode.Bin8, len(bin)), bin...)
}

// AppendArray appends the head of an array; its n elements follow.
func AppendArray(b []byte, n int) []byte {
	switch {
	case n <= int(msgpcode.FixedArrayMask):
		return append(b, msgpcode.FixedArrayLow|byte(n))
	case n <= math.MaxUint16:
		return append16(b, msgpcode.Array16, uint64(n))
	default:
		return append32(b, msgpcode.Array32, uint64(n))
	}
}

// appendLength appends a length of 8, 16 or 32 bits; code is that of the first
// and the others are the next two.
func appendLength(b []byte, code byte, n int) []byte {
	switch {
	case n <= math.MaxUint8:
		return append(b, code, byte(n))
	case n <= math.MaxUint16:
		return append16(b, code+1, uint64(n))
	default:
		return append32(b, code+2, uint64(n))
	}
}

// Big-endian numbers. (Package encoding/binary would bring in reflect and sync,
// which package session is free of.)

func append16(b []byte, code byte, v uint64) []byte {
	return append(b, code, byte(v>>8), byte(v))
}

func append32(b []byte, code byte, v uint64) []byte {
	return big32(append(b, code), v)
}

func big32(b []byte, v uint64) []byte {
	return append(b, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

// A Reader takes values off the front of a buffer. After the first error every
// value is zero and nothing more is taken, so that one look at the error, by
// [Reader.End], serves for all.
type Reader struct {
	rest []byte
	err  error
}

// NewReader returns a Reader of b, from which it lends parts.
func NewReader(b []byte) Reader { return Reader{rest: b} }

// Rest returns what has not been read; nothing after an error.
func (r *Reader) Rest() []byte { return r.rest }

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// End returns the first error, which may be that something is left.
func (r *Reader) End() error {
	if len(r.rest) > 0 {
		r.fail(ErrLong)
	}
	return r.err
}

// Uint reads an integer.
func (r *Reader) Uint() uint64 {
	code, ok := r.code()
	switch {
	case !ok:
		return 0
	case code <= msgpcode.PosFixedNumHigh:
		return uint64(code)
	case code == msgpcode.Uint8:
		return r.number(1, uint64(msgpcode.PosFixedNumHigh)+1)
	case code == msgpcode.Uint16:
		return r.number(2, math.MaxUint8+1)
	case code == msgpcode.Uint32:
		return r.number(4, math.MaxUint16+1)
	case code == msgpcode.Uint64:
		return r.number(8, math.MaxUint32+1)
	default:
		r.fail(ErrType)
		return 0
	}
}

// UintUpTo reads an integer of at most limit.
func (r *Reader) UintUpTo(limit uint64) uint64 {
	v := r.Uint()
	if v > limit {
		r.fail(ErrBound)
		return 0
	}
	return v
}

// Name reads a string of 1 to limit bytes. The result is part of the buffer.
func (r *Reader) Name(limit int) []byte {
	name := r.String(limit)
	if len(name) == 0 {
		r.fail(ErrEmpty)
	}
	return name
}

// String reads a string of at most limit bytes. The result is part of the
// buffer.
func (r *Reader) String(limit int) []byte {
	code, ok := r.code()
	switch {
	case !ok:
		return nil
	case msgpcode.IsFixedString(code):
		return r.bytes(uint64(code&msgpcode.FixedStrMask), limit)
	case code == msgpcode.Str8:
		return r.bytes(r.number(1, uint64(msgpcode.FixedStrMask)+1), limit)
	case code == msgpcode.Str16:
		return r.bytes(r.number(2, math.MaxUint8+1), limit)
	case code == msgpcode.Str32:
		return r.bytes(r.number(4, math.MaxUint16+1), limit)
	default:
		r.fail(ErrType)
		return nil
	}
}

// Bin reads a byte string of at most limit bytes. The result is part of the
// buffer.
func (r *Reader) Bin(limit int) []byte {
	code, ok := r.code()
	switch {
	case !ok:
		return nil
	case code == msgpcode.Bin8:
		return r.bytes(r.number(1, 0), limit)
	case code == msgpcode.Bin16:
		return r.bytes(r.number(2, math.MaxUint8+1), limit)
	case code == msgpcode.Bin32:
		return r.bytes(r.number(4, math.MaxUint16+1), limit)
	default:
		r.fail(ErrType)
		return nil
	}
}

// Array reads the head of an array of at most limit elements, and returns how
// many follow: never more than there are bytes left.
func (r *Reader) Array(limit int) int {
	code, ok := r.code()
	var n uint64
	switch {
	case !ok:
		return 0
	case msgpcode.IsFixedArray(code):
		n = uint64(code & msgpcode.FixedArrayMask)
	case code == msgpcode.Array16:
		n = r.number(2, uint64(msgpcode.FixedArrayMask)+1)
	case code == msgpcode.Array32:
		n = r.number(4, math.MaxUint16+1)
	default:
		r.fail(ErrType)
	}
	switch {
	case n > uint64(limit):
		r.fail(ErrBound)
	case n > uint64(len(r.rest)):
		r.fail(ErrShort)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

// code takes the byte that says what follows.
func (r *Reader) code() (code byte, ok bool) {
	if len(r.rest) == 0 {
		r.fail(ErrShort)
		return 0, false
	}
	code, r.rest = r.rest[0], r.rest[1:]
	return code, true
}

// number takes a big-endian number of that many bytes. Below least it would
// have had a shorter form.
func (r *Reader) number(size int, least uint64) (v uint64) {
	if len(r.rest) < size {
		r.fail(ErrShort)
		return 0
	}
	for _, digit := range r.rest[:size] {
		v = v<<8 | uint64(digit)
	}
	r.rest = r.rest[size:]
	if v < least {
		r.fail(ErrShortest)
		return 0
	}
	return v
}

func (r *Reader) bytes(n uint64, limit int) (b []byte) {
	switch {
	case n > uint64(limit):
		r.fail(ErrBound)
	case n > uint64(len(r.rest)):
		r.fail(ErrShort)
	}
	if r.err != nil {
		return nil
	}
	b, r.rest = r.rest[:n:n], r.rest[n:]
	return b
}

// fail keeps the first error and takes away what is left.
func (r *Reader) fail(err Error) {
	if r.err == nil {
		r.err = err
	}
	r.rest = nil
}
