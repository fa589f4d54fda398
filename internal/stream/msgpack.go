package stream

import (
	"cmp"

	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/dmutex/dmutex"
)

// Integers and byte strings in msgpack. Every value has exactly one encoding, the
// shortest one, and a reader takes no other. (The library's own encoder would bring in
// reflect and sync, which this package is free of.)

const (
	maxUint = 9 // bytes of the longest integer
	maxHead = 5 // bytes of the longest length before a byte string
)

var (
	errShort    = dmutex.PeerMistake("the encoding ends too early")
	errLong     = dmutex.PeerMistake("bytes follow the end of the encoding")
	errType     = dmutex.PeerMistake("a field is of the wrong type")
	errShortest = dmutex.PeerMistake("a number or length is not in its shortest form")
)

func appendUint(b []byte, v uint64) []byte {
	if v <= uint64(msgpcode.PosFixedNumHigh) {
		return append(b, byte(v))
	}
	return appendNumber(b, msgpcode.Uint8, v)
}

// appendBin appends a byte string of at most 2^32-1 bytes.
func appendBin(b, bin []byte) []byte {
	return append(appendNumber(b, msgpcode.Bin8, uint64(len(bin))), bin...)
}

// appendNumber appends v, big-endian, in 1, 2, 4 or 8 bytes. code goes before one byte;
// the codes of the longer forms follow it.
func appendNumber(b []byte, code byte, v uint64) []byte {
	shift := 8
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

// A reader takes values off the front of rest. After the first error every value is zero
// and nothing more is taken, so that one look at the error serves for all.
type reader struct {
	rest []byte
	err  error
}

// finish returns the first error, which may be that something is left.
func (r *reader) finish() error {
	if len(r.rest) > 0 {
		r.fail(errLong)
	}
	return r.err
}

func (r *reader) uint() (v uint64) {
	if len(r.rest) > 0 && r.rest[0] <= msgpcode.PosFixedNumHigh {
		v, r.rest = uint64(r.rest[0]), r.rest[1:]
		return v
	}
	return r.number(msgpcode.Uint8, msgpcode.Uint64, uint64(msgpcode.PosFixedNumHigh)+1)
}

// bin reads a byte string. The result is part of the buffer.
func (r *reader) bin() (bin []byte) {
	n := r.number(msgpcode.Bin8, msgpcode.Bin32, 0)
	if n > uint64(len(r.rest)) {
		r.fail(errShort)
		return nil
	}
	bin, r.rest = r.rest[:n:n], r.rest[n:]
	return bin
}

// number takes what appendNumber wrote with a code from first to last. Below least it would have
// had a shorter form.
func (r *reader) number(first, last byte, least uint64) (v uint64) {
	if len(r.rest) == 0 {
		return r.fail(errShort)
	}
	code := r.rest[0]
	size := 1 << (code - first)
	switch {
	case code < first || code > last:
		return r.fail(errType)
	case len(r.rest) <= size:
		return r.fail(errShort)
	case size > 1:
		least = 1 << (4 * size)
	}
	for _, digit := range r.rest[1 : 1+size] {
		v = v<<8 | uint64(digit)
	}
	if r.rest = r.rest[1+size:]; v < least {
		return r.fail(errShortest)
	}
	return v
}

// fail keeps the first error, takes away what is left, and returns 0.
func (r *reader) fail(err error) (zero uint64) {
	r.err, r.rest = cmp.Or(r.err, err), nil
	return 0
}
