// Package wire writes and reads messages in [msgpack], by explicit calls for each
// field. Reflection would be slower, and ignores the bounds that a stranger's lengths need.
package wire

import (
	"bytes"
	"math"
	"slices"
	"sync"

	"github.com/dmutex/dmutex/internal/mistake"
	"github.com/dmutex/dmutex/internal/msgpack"
)

// MaxUint is the size of the longest encoding of an integer, in bytes.
const MaxUint = msgpack.MaxUint

// Fields are what a message has, in order, as it is written or read. A message is described by
// one function that names its fields, so both sides agree.
//
// No length is believed that the message cannot hold, so bytes from a stranger cost no more than
// their own size. After the first error there is nothing left to read, and all fields are zero.
type Fields struct {
	reading bool
	written []byte
	whole   []byte // what is read
	text    string // the same, for the names in it; empty before the first
	rest    msgpack.Reader
	again   []byte // scratch: what was read, written again
	scratch []byte // see Scratch
}

var pool = sync.Pool{New: func() any { return new(Fields) }}

// Write appends a message.
func Write(b []byte, message func(*Fields)) []byte {
	f := pool.Get().(*Fields)
	b = f.write(b, message)
	pool.Put(f)
	return b
}

func (f *Fields) write(b []byte, message func(*Fields)) []byte {
	f.written = b
	message(f)
	b, f.written = f.written, nil
	return b
}

// Read reads a message that [Write] wrote, and returns [mistake.ErrPeer] for anything else. The
// fields are zero before. In the end Read writes the message again and compares: so there is one form, also where
// fields may be left out. The names of a message are parts of one string.
func Read(b []byte, message func(*Fields)) error {
	f := pool.Get().(*Fields)
	defer pool.Put(f)
	f.whole, f.rest, f.reading = b, msgpack.Reader{Rest: b}, true
	message(f)
	err := f.rest.Err
	f.whole, f.text, f.rest, f.reading = nil, "", msgpack.Reader{}, false
	if err != nil {
		return err
	}
	f.again = f.write(f.again[:0], message)
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
		return len(f.rest.Rest) > 0
	}
	return more
}

// Refuse makes Read fail for the reason given, if what was read is wrong.
func (f *Fields) Refuse(wrong bool, why string) {
	if f.reading && wrong && f.rest.Err == nil {
		f.rest.Fail(mistake.Peer(why))
	}
}

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
		f.written = msgpack.AppendUint(f.written, v)
		return v
	}
	if v = f.rest.Uint(); v > limit {
		f.Refuse(true, "a number is beyond its bound")
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
		f.written = msgpack.AppendString(f.written, *v)
		return
	}
	n := len(f.name(limit))
	if f.text == "" {
		f.text = string(f.whole)
	}
	end := len(f.whole) - len(f.rest.Rest)
	if *v = ""; n > 0 {
		*v = f.text[end-n : end]
	}
}

// Lent is a Name that is a part of the message when it was read.
func (f *Fields) Lent(v *[]byte, limit int) {
	if f.reading {
		*v = f.name(limit)
	} else {
		f.written = msgpack.AppendString(f.written, *v)
	}
}

// Scratch returns a copy of the text, to write it by Lent. It lasts until the next one.
func (f *Fields) Scratch(text string) []byte {
	f.scratch = append(f.scratch[:0], text...)
	return f.scratch
}

// name reads the bytes of a name.
func (f *Fields) name(limit int) []byte {
	name := f.rest.Text()
	f.Refuse(len(name) == 0, "a name is empty")
	if len(name) > limit {
		f.Refuse(true, "a length is beyond its bound")
		return nil
	}
	return name
}

// Array is the head of an array of at most limit elements, which follow: when it was read, never
// more than there are bytes left.
func (f *Fields) Array(n *int, limit int) {
	if !f.reading {
		f.written = msgpack.AppendArray(f.written, *n)
		return
	}
	if *n = f.rest.Array(); *n > limit {
		f.Refuse(true, "a length is beyond its bound")
		*n = 0
	}
}

// List is an array of at most limit elements.
func List[T any](f *Fields, list *[]T, limit int, element func(*T)) {
	n := len(*list)
	f.Array(&n, limit)
	if f.reading {
		*list = slices.Grow(*list, min(n, 512)) // with more, what is there pays for what it takes
	}
	for i := range n {
		if f.reading {
			if f.rest.Err != nil {
				return
			}
			*list = append(*list, *new(T))
		}
		element(&(*list)[i])
	}
}
