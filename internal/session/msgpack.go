package session

import (
	"github.com/dmutex/dmutex"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Integers, byte strings and arrays in msgpack. Every value has exactly one encoding, the
// shortest one, and a reader takes no other. A reader believes no length that its input
// cannot hold, so bytes from a stranger cost no more than their own size. (The library's
// own encoder would bring in reflect and sync, which this package is free of.)

const (
	maxUint = 9 // bytes of the longest integer
	maxHead = 5 // bytes of the longest length before a byte string
)

var (
	errShort    = dmutex.PeerMistake("the encoding ends too early")
	errLong     = dmutex.PeerMistake("bytes follow the end of the encoding")
	errType     = dmutex.PeerMistake("a field is of the wrong type")
	errShortest = dmutex.PeerMistake("a number or length is not in its shortest form")
	errBound    = dmutex.PeerMistake("a number or length is beyond its bound")
)

func appendUint(b []byte, v uint64) []byte {
	if v <= uint64(msgpcode.PosFixedNumHigh) {
		return append(b, byte(v))
	}
	return appendNumber(b, msgpcode.Uint8, 1, v)
}

// appendBin appends a byte string of at most 2^32-1 bytes.
func appendBin(b, bin []byte) []byte {
	return append(appendNumber(b, msgpcode.Bin8, 1, uint64(len(bin))), bin...)
}

// appendArray appends the head of an array; its n elements follow.
func appendArray(b []byte, n int) []byte {
	if n <= int(msgpcode.FixedArrayMask) {
		return append(b, msgpcode.FixedArrayLow|byte(n))
	}
	return appendNumber(b, msgpcode.Array16, 2, uint64(n))
}

// appendNumber appends v, big-endian, in size bytes or in 2, 4 or 8 times as many. The code
// before it is that of the first size; those of the others are the next ones.
func appendNumber(b []byte, code byte, size int, v uint64) []byte {
	for ; size < 8 && v>>(8*size) > 0; size *= 2 {
		code++
	}
	b = append(b, code)
	for shift := 8 * size; shift > 0; {
		shift -= 8
		b = append(b, byte(v>>shift))
	}
	return b
}

// A reader takes values off the front of rest. After the first error every value is zero
// and nothing more is taken, so that one look at the error serves for all.
type reader struct {
	rest []byte
	err  error
}

// end returns the first error, which may be that something is left.
func (r *reader) end() error {
	if len(r.rest) > 0 {
		r.fail(errLong)
	}
	return r.err
}

func (r *reader) uint() uint64 {
	code := r.code()
	if code <= msgpcode.PosFixedNumHigh {
		return uint64(code)
	}
	return r.number(code, msgpcode.Uint8, msgpcode.Uint64, 1, uint64(msgpcode.PosFixedNumHigh)+1)
}

// bin reads a byte string of at most limit bytes. The result is part of the buffer.
func (r *reader) bin(limit int) (bin []byte) {
	n := r.within(r.number(r.code(), msgpcode.Bin8, msgpcode.Bin32, 1, 0), limit)
	if r.err != nil {
		return nil
	}
	bin, r.rest = r.rest[:n:n], r.rest[n:]
	return bin
}

// array reads the head of an array of at most limit elements, and returns how many follow.
func (r *reader) array(limit int) int {
	code := r.code()
	if msgpcode.IsFixedArray(code) {
		return r.within(uint64(code&msgpcode.FixedArrayMask), limit)
	}
	return r.within(r.number(code, msgpcode.Array16, msgpcode.Array32, 2, uint64(msgpcode.FixedArrayMask)+1), limit)
}

// within returns a length: at most limit, and never more than there are bytes left.
func (r *reader) within(n uint64, limit int) int {
	switch {
	case r.err != nil:
	case n > uint64(limit):
		r.fail(errBound)
	case n > uint64(len(r.rest)):
		r.fail(errShort)
	default:
		return int(n)
	}
	return 0
}

// code takes the byte that says what follows.
func (r *reader) code() (code byte) {
	if len(r.rest) == 0 {
		r.fail(errShort)
		return 0
	}
	code, r.rest = r.rest[0], r.rest[1:]
	return code
}

// number takes what appendNumber wrote behind a code from first to last. Below least it
// would have had a shorter form.
func (r *reader) number(code, first, last byte, size int, least uint64) (v uint64) {
	if code < first || code > last {
		r.fail(errType)
		return 0
	}
	if code > first {
		size <<= code - first
		least = 1 << (4 * size)
	}
	if len(r.rest) < size {
		r.fail(errShort)
		return 0
	}
	for _, digit := range r.rest[:size] {
		v = v<<8 | uint64(digit)
	}
	r.rest = r.rest[size:]
	if v < least {
		r.fail(errShortest)
		return 0
	}
	return v
}

// fail keeps the first error and takes away what is left.
func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.rest = nil
}
