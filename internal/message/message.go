// Package message has the messages of machines on the wire.
package message

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/wire"
	"github.com/dmutex/dmutex/lock"
)

// A message on the wire is one msgpack array:
//
//	version  integer, 1
//	lock     string of 1 to lock.MaxName bytes
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
func fields(f *wire.Fields, name *[]byte, m *dmutex.Message) {
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
	wire.Number(f, &v)
	f.Refuse(v != version, "the message has an unknown version")
	f.Lent(name, lock.MaxName)
	wire.Uint(f, &m.Kind, uint64(dmutex.Kinds-1))
	f.Refuse(m.Kind == 0, "the message is of an unknown kind")
	for i, v := range [...]*uint64{&m.Attempt, &m.Fence, &m.Clock} {
		if n > always+i {
			wire.Number(f, v)
		}
	}
	if n > always+3 {
		wire.List(f, &m.Numbers, maxList, func(v *uint64) { wire.Number(f, v) })
	}
	if n > always+4 {
		wire.List(f, &m.Nodes, maxList, func(id *dmutex.NodeID) { wire.Number(f, id) })
	}
}

// Append appends a message about the named lock. Name, kind and lists must be
// within their bounds ([lock.MaxName], and 4096 in a list): a receiver refuses anything else.
func Append(b []byte, name string, m dmutex.Message) []byte {
	return wire.Write(b, func(f *wire.Fields) {
		text := f.Scratch(name)
		fields(f, &text, &m)
	})
}

// A Decoder reads messages. It keeps the memory of their lists, so that decoding allocates nothing
// in the long run. The zero value is ready to use, by one goroutine at a time.
type Decoder struct {
	numbers []uint64
	nodes   []dmutex.NodeID
}

// Decode reads what [Append] wrote, and returns [dmutex.ErrPeer] for
// anything else. The lock's name is a part of b. The message's lists belong to the
// Decoder, and its next call overwrites them. The caller sets From and To.
func (d *Decoder) Decode(b []byte) (name []byte, m dmutex.Message, err error) {
	m.Numbers, m.Nodes = d.numbers[:0], d.nodes[:0]
	if err = wire.Read(b, func(f *wire.Fields) { fields(f, &name, &m) }); err != nil {
		return nil, dmutex.Message{}, err
	}
	d.numbers, m.Numbers = lend(m.Numbers)
	d.nodes, m.Nodes = lend(m.Nodes)
	return name, m, nil
}

// lend returns the memory to keep of a list, and the list: nil if it is empty, as a machine has it.
func lend[T any](list []T) (memory, lent []T) {
	if len(list) == 0 {
		return list, nil
	}
	return list, slices.Clip(list)
}
