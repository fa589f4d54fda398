// Package wire writes and reads messages with [msgpack], by explicit calls for each
// field. Reflection would be slower, and ignores the bounds that a stranger's lengths need.
//
// A [Reader] believes no length that its input cannot hold, so bytes from a stranger
// cost no more than their own size. It takes long forms of numbers and other types that
// msgpack converts, but in the end writes the message again and compares ([Reader.End]).
package wire

import (
	"bytes"
	"io"
	"math"
	"sync"

	"github.com/dmutex/dmutex"
	"github.com/vmihailenco/msgpack/v5"
)

// The sizes of the longest encodings, in bytes.
const (
	MaxUint = 9 // of an integer
	MaxHead = 5 // of the length that goes before a string or an array
)

// A Writer appends fields to a message. Its methods may be called in [Append] only.
type Writer struct {
	buf bytes.Buffer
	enc *msgpack.Encoder // to buf, so it never fails
}

var writers = sync.Pool{New: func() any { return newWriter() }}

func newWriter() *Writer {
	w := new(Writer)
	w.enc = msgpack.NewEncoder(&w.buf)
	return w
}

// Append appends what write writes.
func Append(b []byte, write func(w *Writer)) []byte {
	w := writers.Get().(*Writer)
	w.buf = *bytes.NewBuffer(b)
	write(w)
	b, w.buf = w.buf.Bytes(), bytes.Buffer{}
	writers.Put(w)
	return b
}

// Uint writes an integer, in its shortest form.
func (w *Writer) Uint(v uint64) { _ = w.enc.EncodeUint(v) }

// Bool writes a truth value, as the integer 1 or 0.
func (w *Writer) Bool(v bool) {
	if v {
		w.Uint(1)
	} else {
		w.Uint(0)
	}
}

// String writes a string, of any bytes.
func (w *Writer) String(s string) { _ = w.enc.EncodeString(s) }

// Array writes the head of an array; its n elements follow.
func (w *Writer) Array(n int) { _ = w.enc.EncodeArrayLen(n) }

// A Reader takes fields off the front of a message. After the first error every field is
// zero, so one look at the error, by End, serves for all. The zero value is ready for
// Reset, by one goroutine at a time.
type Reader struct {
	whole []byte
	rest  bytes.Reader
	dec   *msgpack.Decoder // of rest
	again *Writer          // of End
	err   error
}

// Reset begins to read b, from which the Reader lends parts.
func (r *Reader) Reset(b []byte) {
	if r.dec == nil {
		r.dec, r.again = msgpack.NewDecoder(&r.rest), newWriter()
	}
	r.whole, r.err = b, nil
	r.rest.Reset(b)
}

// Err returns the first error, a [dmutex.ErrPeer].
func (r *Reader) Err() error { return r.err }

// End returns the first error. If write writes anything but what was read, that is one.
func (r *Reader) End(write func(w *Writer)) error {
	if r.err == nil {
		w := r.again
		w.buf.Reset()
		if write(w); !bytes.Equal(w.buf.Bytes(), r.whole) {
			r.Fail("the message is not in the one form that its fields have")
		}
		if w.buf.Cap() > 64<<10 { // too much to keep for the next message
			w.buf = bytes.Buffer{}
		}
	}
	return r.err
}

// Fail gives the reason for an error, unless there is one already.
func (r *Reader) Fail(why string) {
	if r.err == nil {
		r.err = dmutex.PeerMistake(why)
	}
	r.rest.Reset(nil)
}

// refuse fails for the error of the decoder, or else for the reason given. After the first
// error the decoder has nothing to read, so it errs again.
func (r *Reader) refuse(err error, why string) {
	switch err {
	case nil:
		r.Fail(why)
	case io.EOF, io.ErrUnexpectedEOF:
		r.Fail(tooEarly)
	default:
		r.Fail(err.Error())
	}
}

const tooEarly = "the message ends too early"

// Uint reads an integer of at most limit.
func (r *Reader) Uint(limit uint64) uint64 {
	v, err := r.dec.DecodeUint64()
	if err != nil || v > limit {
		r.refuse(err, "a number is beyond its bound")
		return 0
	}
	return v
}

// Number reads any integer.
func (r *Reader) Number() uint64 { return r.Uint(math.MaxUint64) }

// Bool reads a truth value.
func (r *Reader) Bool() bool { return r.Uint(1) == 1 }

// Name reads a string of 1 to limit bytes. The result is part of the message.
func (r *Reader) Name(limit int) []byte {
	n, err := r.dec.DecodeBytesLen()
	if err == nil && n <= 0 {
		r.Fail("a name is empty")
	}
	if n = r.length(n, limit, err); n <= 0 {
		return nil
	}
	name := r.whole[len(r.whole)-r.rest.Len():][:n:n]
	_, _ = r.rest.Seek(int64(n), io.SeekCurrent) // which is not beyond the end
	return name
}

// Array reads the head of an array of at most limit elements, and returns how
// many follow: never more than there are bytes left.
func (r *Reader) Array(limit int) int {
	n, err := r.dec.DecodeArrayLen()
	return r.length(n, limit, err)
}

// length returns the length that the decoder has read, or 0 if it cannot be.
func (r *Reader) length(n, limit int, err error) int {
	switch {
	case err != nil || n < 0 || n > limit:
		r.refuse(err, "a length is beyond its bound")
	case n > r.rest.Len():
		r.Fail(tooEarly)
	default:
		return n
	}
	return 0
}
