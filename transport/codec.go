package transport

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/msgp"
)

// A message on the wire is one msgpack array:
//
//	version  integer, 1
//	lock     string of 1 to MaxName bytes
//	kind     integer
//	attempt  integer
//	fence    integer
//	clock    integer
//	numbers  array of at most MaxList integers
//	nodes    array of at most MaxList integers
//
// The array ends with the last field that is not zero or empty. So a REQUEST for
// a lock with a short name takes the name and at most 7 bytes while numbers are
// small, and every message has exactly one encoding. The sender and receiver are
// not encoded, because the link and the session know them.
const (
	version = 1

	// MaxName is the length of the longest name of a lock, in bytes. The
	// shortest has one. A name may contain any bytes, not only UTF-8.
	MaxName = 255

	// MaxList bounds the lists of a message, and so the size of a group whose
	// algorithm sends one number for each member.
	MaxList = 4096
)

// The number of fields up to and with each that may be the last.
const (
	uptoKind = iota + 3
	uptoAttempt
	uptoFence
	uptoClock
	uptoNumbers
	uptoNodes
)

// The reasons for which [Decoder.Decode] refuses a message, besides malformed bytes.
const (
	errVersion msgp.Error = "the message has an unknown version"
	errKind    msgp.Error = "the message is of an unknown kind"
	errTrim    msgp.Error = "the message ends with a field that should have been left out"
)

// AppendMessage appends a message about the named lock. Name, kind and lists must be
// within their bounds ([MaxName], [MaxList]): a receiver refuses anything else.
func AppendMessage(b []byte, lock string, m dmutex.Message) []byte {
	n := fields(&m)
	b = msgp.AppendArray(b, n)
	b = msgp.AppendUint(b, version)
	b = msgp.AppendString(b, lock)
	b = msgp.AppendUint(b, uint64(m.Kind))
	if n >= uptoAttempt {
		b = msgp.AppendUint(b, m.Attempt)
	}
	if n >= uptoFence {
		b = msgp.AppendUint(b, m.Fence)
	}
	if n >= uptoClock {
		b = msgp.AppendUint(b, m.Clock)
	}
	if n >= uptoNumbers {
		b = appendList(b, m.Numbers)
	}
	if n >= uptoNodes {
		b = appendList(b, m.Nodes)
	}
	return b
}

// fields returns how many fields the message takes.
func fields(m *dmutex.Message) int {
	switch {
	case len(m.Nodes) > 0:
		return uptoNodes
	case len(m.Numbers) > 0:
		return uptoNumbers
	case m.Clock != 0:
		return uptoClock
	case m.Fence != 0:
		return uptoFence
	case m.Attempt != 0:
		return uptoAttempt
	default:
		return uptoKind
	}
}

func appendList[T ~uint64](b []byte, list []T) []byte {
	b = msgp.AppendArray(b, len(list))
	for _, v := range list {
		b = msgp.AppendUint(b, uint64(v))
	}
	return b
}

// A Decoder reads messages. It keeps the memory for their lists, at most 64
// KiB, so that decoding allocates nothing in the long run. The zero value is
// ready to use, by one goroutine at a time.
type Decoder struct {
	numbers []uint64
	nodes   []dmutex.NodeID
}

// Decode reads what [AppendMessage] wrote, and returns [dmutex.ErrPeer] for
// anything else. The lock's name is a part of b. The message's lists belong to the
// Decoder, and its next call overwrites them. The caller sets From and To.
func (d *Decoder) Decode(b []byte) (lock []byte, m dmutex.Message, err error) {
	r := msgp.NewReader(b)
	n := r.Array(uptoNodes)
	if r.Uint() != version && r.Err() == nil {
		return nil, dmutex.Message{}, errVersion
	}
	lock = r.Name(MaxName)
	kind := r.Uint()
	if n >= uptoAttempt {
		m.Attempt = r.Uint()
	}
	if n >= uptoFence {
		m.Fence = r.Uint()
	}
	if n >= uptoClock {
		m.Clock = r.Uint()
	}
	if n >= uptoNumbers {
		d.numbers = readList(&r, d.numbers)
		m.Numbers = lent(d.numbers)
	}
	if n >= uptoNodes {
		d.nodes = readList(&r, d.nodes)
		m.Nodes = lent(d.nodes)
	}
	err = r.End()
	switch {
	case err != nil:
	case kind == 0 || kind >= uint64(dmutex.Kinds):
		err = errKind
	case n != fields(&m):
		err = errTrim
	}
	if err != nil {
		return nil, dmutex.Message{}, err
	}
	m.Kind = dmutex.Kind(kind)
	return lock, m, nil
}

// readList reads a list into the memory of an old one.
func readList[T ~uint64](r *msgp.Reader, list []T) []T {
	n := r.Array(MaxList)
	list = slices.Grow(list[:0], n)
	for range n {
		list = append(list, T(r.Uint()))
	}
	return list
}

// lent returns nil for an empty list, which is how a machine writes it.
func lent[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return slices.Clip(list)
}
