package wire

import "sync"

// Fields are what a message has, in order, as it is written or read. A message is described by
// one function that names its fields, so both sides agree.
type Fields struct {
	w *Writer // nil when the fields are read
	r *Reader
}

// Write appends a message.
func Write(b []byte, message func(Fields)) []byte {
	return Append(b, func(w *Writer) { message(Fields{w: w}) })
}

var readers = sync.Pool{New: func() any { return new(Reader) }}

// Read reads a message that [Write] wrote, and returns [dmutex.ErrPeer] for anything else. The
// fields are zero before.
func Read(b []byte, message func(Fields)) error {
	r := readers.Get().(*Reader)
	defer readers.Put(r)
	r.Reset(b)
	message(Fields{r: r})
	return r.End(func(w *Writer) { message(Fields{w: w}) })
}

// Refuse makes Read fail for the reason given, if what was read is wrong.
func (f Fields) Refuse(wrong bool, why string) {
	if f.r != nil && wrong {
		f.r.Fail(why)
	}
}

// Bool is a truth value.
func (f Fields) Bool(v *bool) {
	if f.w != nil {
		f.w.Bool(*v)
	} else {
		*v = f.r.Bool()
	}
}

// Name is a string of 1 to limit bytes.
func (f Fields) Name(v *string, limit int) {
	if f.w != nil {
		f.w.String(*v)
	} else {
		*v = string(f.r.Name(limit))
	}
}

// Array is the head of an array of at most limit elements, which follow.
func (f Fields) Array(n *int, limit int) {
	if f.w != nil {
		f.w.Array(*n)
	} else {
		*n = f.r.Array(limit)
	}
}

// Uint is an integer of at most limit.
func Uint[T ~int | ~uint8 | ~uint64 | ~int64](f Fields, v *T, limit uint64) {
	if f.w != nil {
		f.w.Uint(uint64(*v))
	} else {
		*v = T(f.r.Uint(limit))
	}
}

// Number is any integer.
func Number[T ~uint64](f Fields, v *T) { Uint(f, v, 1<<64-1) }

// List is an array of at most limit elements.
func List[T any](f Fields, list *[]T, limit int, element func(*T)) {
	n := len(*list)
	f.Array(&n, limit)
	for i := range n {
		if f.r != nil {
			if f.r.err != nil {
				return
			}
			*list = append(*list, *new(T))
		}
		element(&(*list)[i])
	}
}
