// Package wire writes and reads messages with [msgpack], by explicit calls for each
// field. Reflection would be slower, and ignores the bounds that a stranger's lengths need.
package wire

import (
	"bytes"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/dmutex/dmutex/internal/mistake"
)

// MaxUint is the size of the longest encoding of an integer, in bytes.
const MaxUint = 9

// Fields are what a message has, in order, as it is written or read. A message is described by
// one function that names its fields, so both sides agree.
//
// No length is believed that the message cannot hold, so bytes from a stranger cost no more than
// their own size. After the first error there is nothing left to read, and all fields are zero.
type Fields struct {
	reading bool
	buf     bytes.Buffer
	enc     *msgpack.Encoder // to buf, so it never fails
	whole   []byte           // what is read
	text    string           // the same, for the names in it; empty before the first
	rest    bytes.Reader     // of whole
	dec     *msgpack.Decoder // of rest
	again   []byte           // scratch: what was read, written again
	scratch []byte           // see Scratch
	err     error            // a mistake.ErrPeer
}

var pool = sync.Pool{New: func() any {
	f := new(Fields)
	f.enc, f.dec = msgpack.NewEncoder(&f.buf), msgpack.NewDecoder(&f.rest)
	return f
}}

// Write appends a message.
func Write(b []byte, message func(*Fields)) []byte {
	f := pool.Get().(*Fields)
	b = f.write(b, message)
	pool.Put(f)
	return b
}

func (f *Fields) write(b []byte, message func(*Fields)) []byte {
	f.buf = *bytes.NewBuffer(b)
	message(f)
	b, f.buf = f.buf.Bytes(), bytes.Buffer{}
	return b
}

// Read reads a message that [Write] wrote, and returns [mistake.ErrPeer] for anything else. The
// fields are zero before. The decoder takes long forms of numbers and other types that msgpack
// converts, but in the end Read writes the message again and compares. The names of a message are parts of one string.
func Read(b []byte, message func(*Fields)) error {
	f := pool.Get().(*Fields)
	defer pool.Put(f)
	f.whole, f.err, f.reading = b, nil, true
	f.rest.Reset(b)
	message(f)
	f.text, f.reading = "", false
	if f.err != nil {
		return f.err
	}
	f.again = f.write(slices.Grow(f.again[:0], len(b)), message)
	if !bytes.Equal(f.again, b) {
		return mistake.Peer("the message is not in the one form that its fields have")
	}
	if cap(f.again) > 64<<10 { // too much to keep for the next message
		f.again = nil
	}
	return nil
}

// More reports whether there are more fields. The last fields of a message may be left out.
func (f *Fields) More(more bool) bool {
	if f.reading {
		return f.rest.Len() > 0
	}
	return more
}

// Refuse makes Read fail for the reason given, if what was read is wrong.
func (f *Fields) Refuse(wrong bool, why string) {
	if f.reading && wrong {
		f.fail(nil, why)
	}
}

// fail keeps the first error: that of the decoder, or else the reason given.
func (f *Fields) fail(err error, why string) {
	f.rest.Reset(nil)
	switch {
	case f.err != nil:
		return
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		why = tooEarly
	case err != nil:
		why = err.Error()
	}
	f.err = mistake.Peer(why)
}

const tooEarly = "the message ends too early"

// Number is any integer.
func Number[T ~uint64](f *Fields, v *T) { Uint(f, v, math.MaxUint64) }

// Uint is an integer of at most limit.
func Uint[T ~int | ~uint8 | ~uint64 | ~int64](f *Fields, v *T, limit uint64) {
	if n := f.uint(uint64(*v), limit); f.reading { // others may read what is written
		*v = T(n)
	}
}

func (f *Fields) uint(v, limit uint64) uint64 {
	if !f.reading {
		_ = f.enc.EncodeUint(v) // in its shortest form
		return v
	}
	v, err := f.dec.DecodeUint64()
	if err != nil || v > limit {
		f.fail(err, "a number is beyond its bound")
		return 0
	}
	return v
}

// Bool is a truth value, as the integer 1 or 0.
func (f *Fields) Bool(v *bool) {
	n := uint64(0)
	if *v {
		n = 1
	}
	if Uint(f, &n, 1); f.reading {
		*v = n == 1
	}
}

// Name is a string of 1 to limit bytes.
func (f *Fields) Name(v *string, limit int) {
	if !f.reading {
		_ = f.enc.EncodeString(*v)
		return
	}
	n := len(f.name(limit))
	if f.text == "" {
		f.text = string(f.whole)
	}
	end := len(f.whole) - f.rest.Len()
	if *v = ""; n > 0 {
		*v = f.text[end-n : end]
	}
}

// Lent is a Name of at most 255 bytes, which are a part of the message when it was read.
func (f *Fields) Lent(v *[]byte, limit int) {
	if f.reading {
		*v = f.name(limit)
		return
	}
	if n := byte(len(*v)); n < 32 {
		f.buf.WriteByte(msgpcode.FixedStrLow | n)
	} else {
		f.buf.Write([]byte{msgpcode.Str8, n})
	}
	f.buf.Write(*v)
}

// Scratch returns a copy of the text, to write it by Lent. It lasts until the next one.
func (f *Fields) Scratch(text string) []byte {
	f.scratch = append(f.scratch[:0], text...)
	return f.scratch
}

// name reads the bytes of a name.
func (f *Fields) name(limit int) []byte {
	n, err := f.dec.DecodeBytesLen()
	f.Refuse(err == nil && n <= 0, "a name is empty")
	n = f.length(n, limit, err)
	at := len(f.whole) - f.rest.Len()
	_, _ = f.rest.Seek(int64(n), io.SeekCurrent) // which is not beyond the end
	return f.whole[at : at+n]
}

// Array is the head of an array of at most limit elements, which follow: when it was read, never
// more than there are bytes left.
func (f *Fields) Array(n *int, limit int) {
	if !f.reading {
		_ = f.enc.EncodeArrayLen(*n)
		return
	}
	read, err := f.dec.DecodeArrayLen()
	*n = f.length(read, limit, err)
}

// length returns the length that the decoder has read, or 0 if it cannot be.
func (f *Fields) length(n, limit int, err error) int {
	switch {
	case err != nil || n < 0 || n > limit:
		f.fail(err, "a length is beyond its bound")
	case n > f.rest.Len():
		f.fail(nil, tooEarly)
	default:
		return n
	}
	return 0
}

// List is an array of at most limit elements.
func List[T any](f *Fields, list *[]T, limit int, element func(*T)) {
	n := len(*list)
	f.Array(&n, limit)
	for i := range n {
		if f.reading {
			if f.err != nil {
				return
			}
			if i == cap(*list) { // what is there pays for what it takes
				*list = slices.Grow(*list, min(n-i, max(512, 3*i)))
			}
			*list = append(*list, *new(T))
		}
		element(&(*list)[i])
	}
}
