package wire

import (
	"slices"
	"unsafe"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// A message on the wire is one msgpack array:
//
//	version  integer, 1
//	lock     string of 1 to transport.MaxName bytes
//	kind     integer
//	attempt  integer
//	fence    integer
//	clock    integer
//	numbers  array of at most 4096 integers
//	nodes    array of at most 4096 integers
//
// The array ends with the last field that is not zero or empty, so every message has
// exactly one encoding, and a REQUEST takes at most 7 bytes beside the name while numbers
// are small. The link and the session know sender and receiver.
const (
	version = 1
	always  = 3    // fields that every message has
	maxList = 4096 // bounds a group, too, if the algorithm sends one number for each member
)

// AppendMessage appends a message about the named lock. Name, kind and lists must be
// within their bounds ([transport.MaxName], and 4096 in a list): a receiver refuses anything else.
func AppendMessage(b []byte, lock string, m dmutex.Message) []byte {
	return Append(b, func(w *Writer) { write(w, lock, &m) })
}

func write(w *Writer, lock string, m *dmutex.Message) {
	more := 0 // fields behind those that every message has
	switch {
	case len(m.Nodes) > 0:
		more = 5
	case len(m.Numbers) > 0:
		more = 4
	case m.Clock != 0:
		more = 3
	case m.Fence != 0:
		more = 2
	case m.Attempt != 0:
		more = 1
	}
	w.Array(always + more)
	w.Uint(version)
	w.String(lock)
	w.Uint(uint64(m.Kind))
	for i := range min(more, 3) {
		w.Uint([...]uint64{m.Attempt, m.Fence, m.Clock}[i])
	}
	if more > 3 {
		writeList(w, m.Numbers)
	}
	if more > 4 {
		writeList(w, m.Nodes)
	}
}

func writeList[T ~uint64](w *Writer, list []T) {
	w.Array(len(list))
	for _, v := range list {
		w.Uint(uint64(v))
	}
}

// A Decoder reads messages. It keeps some memory, so that decoding allocates nothing in the
// long run. The zero value is ready to use, by one goroutine at a time.
type Decoder struct {
	reader  Reader
	numbers []uint64
	nodes   []dmutex.NodeID
}

// Decode reads what [AppendMessage] wrote, and returns [dmutex.ErrPeer] for
// anything else. The lock's name is a part of b. The message's lists belong to the
// Decoder, and its next call overwrites them. The caller sets From and To.
func (d *Decoder) Decode(b []byte) (lock []byte, m dmutex.Message, err error) {
	r := &d.reader
	r.Reset(b)
	more := r.Array(always+5) - always
	if r.Number() != version {
		r.Fail("the message has an unknown version")
	}
	lock = r.Name(transport.MaxName)
	m.Kind = dmutex.Kind(r.Uint(uint64(dmutex.Kinds - 1)))
	if m.Kind == 0 {
		r.Fail("the message is of an unknown kind")
	}
	if more > 0 {
		m.Attempt = r.Number()
	}
	if more > 1 {
		m.Fence = r.Number()
	}
	if more > 2 {
		m.Clock = r.Number()
	}
	if more > 3 {
		m.Numbers = readList(r, &d.numbers)
	}
	if more > 4 {
		m.Nodes = readList(r, &d.nodes)
	}
	name := unsafe.String(unsafe.SliceData(lock), len(lock)) // a copy would be an allocation
	if err = r.End(func(w *Writer) { write(w, name, &m) }); err != nil {
		return nil, dmutex.Message{}, err
	}
	return lock, m, nil
}

// readList reads a list into the memory of an old one. It returns nil for an empty list,
// which is how a machine writes it.
func readList[T ~uint64](r *Reader, memory *[]T) []T {
	n := r.Array(maxList)
	if n == 0 {
		return nil
	}
	list := slices.Grow((*memory)[:0], n)
	for range n {
		list = append(list, T(r.Number()))
	}
	*memory = list
	return slices.Clip(list)
}
