package wire

import (
	"slices"

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
// are small. The link and the stream know sender and receiver.
const (
	version = 1
	always  = 3    // fields that every message has
	maxList = 4096 // bounds a group, too, if the algorithm sends one number for each member
)

// fields describes a message about the named lock.
func fields(f *Fields, lock *[]byte, m *dmutex.Message) {
	n := always
	switch {
	case len(m.Nodes) > 0:
		n += 5
	case len(m.Numbers) > 0:
		n += 4
	case m.Clock != 0:
		n += 3
	case m.Fence != 0:
		n += 2
	case m.Attempt != 0:
		n++
	}
	f.Array(&n, always+5)
	v := uint64(version)
	Number(f, &v)
	f.Refuse(v != version, "the message has an unknown version")
	f.lent(lock, transport.MaxName)
	Uint(f, &m.Kind, uint64(dmutex.Kinds-1))
	f.Refuse(m.Kind == 0, "the message is of an unknown kind")
	for i, v := range [...]*uint64{&m.Attempt, &m.Fence, &m.Clock} {
		if n > always+i {
			Number(f, v)
		}
	}
	if n > always+3 {
		List(f, &m.Numbers, maxList, func(v *uint64) { Number(f, v) })
	}
	if n > always+4 {
		List(f, &m.Nodes, maxList, func(id *dmutex.NodeID) { Number(f, id) })
	}
}

// AppendMessage appends a message about the named lock. Name, kind and lists must be
// within their bounds ([transport.MaxName], and 4096 in a list): a receiver refuses anything else.
func AppendMessage(b []byte, lock string, m dmutex.Message) []byte {
	return Write(b, func(f *Fields) {
		f.scratch = append(f.scratch[:0], lock...)
		fields(f, &f.scratch, &m)
	})
}

// A Decoder reads messages. It keeps the memory of their lists, so that decoding allocates nothing
// in the long run. The zero value is ready to use, by one goroutine at a time.
type Decoder struct {
	numbers []uint64
	nodes   []dmutex.NodeID
}

// Decode reads what [AppendMessage] wrote, and returns [dmutex.ErrPeer] for
// anything else. The lock's name is a part of b. The message's lists belong to the
// Decoder, and its next call overwrites them. The caller sets From and To.
func (d *Decoder) Decode(b []byte) (lock []byte, m dmutex.Message, err error) {
	m.Numbers, m.Nodes = d.numbers[:0], d.nodes[:0]
	if err = Read(b, func(f *Fields) { fields(f, &lock, &m) }); err != nil {
		return nil, dmutex.Message{}, err
	}
	d.numbers, m.Numbers = lend(m.Numbers)
	d.nodes, m.Nodes = lend(m.Nodes)
	return lock, m, nil
}

// lend returns the memory to keep of a list, and the list: nil if it is empty, as a machine has it.
func lend[T any](list []T) (memory, lent []T) {
	if len(list) == 0 {
		return list, nil
	}
	return list, slices.Clip(list)
}
