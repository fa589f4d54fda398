package session

import (
	"github.com/dmutex/dmutex/internal/msgp"
)

// Frames are msgpack arrays, canonical like all that dmutex writes:
//
//	HELLO     1, version, group, from, nonce
//	HELLOACK  2, from, to, nonce
//	ACK       3, from, to, ack
//	DATA      4, from, to, seq, ack, message, ...           at least one message
//	FIN       5, from, to, seq, ack, heard, message, ...    the last DATA
//	BYE       6, from, to, ack                              an ACK after FIN was acknowledged
//	GAP       7, from, to, ack                              an ACK of an end that has later frames
//	TAKEN     8, from, to, nonce
//
// from and to are incarnations, messages are byte strings, the rest integers.
// Only HELLO tells the version and the group: nothing else is taken from a
// peer before its HELLO or ours was answered.
type kind uint64

const (
	hello kind = iota + 1
	helloAck
	ack
	data
	fin
	bye
	gap
	taken
)

const version = 1

type frame struct {
	kind     kind
	from, to uint64
	nonce    uint64 // of HELLO, HELLOACK and TAKEN
	seq      uint64 // of DATA and FIN
	ack      uint64 // of ACK, BYE, GAP, DATA and FIN
	heard    uint64 // of FIN
	count    int    // messages in body
	body     []byte // messages, each with its head
}

const (
	// header is the size of the longest FIN header: the head of an array of
	// more than 15 elements, the kind and five integers.
	header = 3 + 1 + 5*msgp.MaxUint

	// Overhead is how much smaller than a frame the largest message is.
	Overhead = header + msgp.MaxHead

	// fields of a DATA and a FIN frame before its messages
	dataFields = 5
	finFields  = 6

	// maxCount bounds the messages of a frame, so that the head of the array
	// stays within its 3 bytes.
	maxCount = 1<<16 - 1 - finFields
)

// The reasons for which [Session.Handle] refuses a frame, besides malformed bytes.
const (
	errKind    msgp.Error = "the kind of frame is unknown"
	errVersion msgp.Error = "its version of the session protocol is not ours"
	errGroup   msgp.Error = "it is configured for another group"
	errZero    msgp.Error = "an incarnation, nonce or sequence number is zero"
	errMirror  msgp.Error = "it says that it is us: two nodes have the same incarnation, or the link returns our own frames"
	errEmpty   msgp.Error = "it contains no message, or an empty one"
	errAck     msgp.Error = "it acknowledges or has heard what was never sent"
	errEnd     msgp.Error = "it sends after its end"
	errBye     msgp.Error = "it says that we have its end, and we have not"
	errGap     msgp.Error = "it lacks a frame before others that were never sent"
)

// parse takes a frame apart and refuses what no correct peer sends.
func (s *Session) parse(b []byte) (f frame, err error) {
	r := msgp.NewReader(b)
	n := r.Array(finFields + maxCount)
	f.kind = kind(r.Uint())
	switch {
	case r.Err() != nil:
		return f, r.Err()
	case f.kind == hello && n == 5:
		return f, s.parseHello(&r, &f)
	case (f.kind == helloAck || f.kind == ack || f.kind == bye || f.kind == gap || f.kind == taken) && n == 4:
	case f.kind == data && n >= dataFields:
		f.count = n - dataFields
	case f.kind == fin && n >= finFields:
		f.count = n - finFields
	default:
		return f, errKind
	}
	f.from, f.to = r.Uint(), r.Uint()
	switch f.kind {
	case helloAck, taken:
		f.nonce = r.Uint()
	case ack, bye, gap:
		f.ack = r.Uint()
	default:
		f.seq, f.ack = r.Uint(), r.Uint()
		if f.kind == fin {
			f.heard = r.Uint()
		}
		f.body = r.Rest()
		for range f.count {
			if len(r.Bin(len(b))) == 0 && r.Err() == nil {
				return f, errEmpty
			}
		}
	}
	if err := r.End(); err != nil {
		return f, err
	}
	return f, s.check(&f)
}

func (s *Session) parseHello(r *msgp.Reader, f *frame) error {
	v, group := r.Uint(), r.Uint()
	f.from, f.nonce = r.Uint(), r.Uint()
	switch err := r.End(); {
	case err != nil:
		return err
	case v != version:
		return errVersion
	case group != s.cfg.Group:
		s.otherGroup = group
		return errGroup
	case f.from == s.cfg.Incarnation:
		return errMirror
	case f.from == 0 || f.nonce == 0:
		return errZero
	}
	return nil
}

// check refuses what is well-formed and yet cannot be.
func (s *Session) check(f *frame) error {
	switch {
	case f.from == s.cfg.Incarnation:
		return errMirror
	case f.from == 0 || f.to == 0 || f.kind == helloAck && f.nonce == 0 || f.numbered() && f.seq == 0:
		return errZero
	case f.kind == data && f.count == 0:
		return errEmpty
	case f.kind == helloAck || f.kind == taken || !s.pair(f):
		return nil
	case f.ack >= s.next || f.heard > s.sent:
		return errAck
	case f.kind == gap && f.ack+2 >= s.next:
		return errGap
	case f.numbered() && s.left && f.seq >= s.expect:
		return errEnd
	case f.kind == bye && !s.left:
		return errBye
	}
	return nil
}

// numbered reports whether the frame has a place in the stream.
func (f *frame) numbered() bool { return f.kind == data || f.kind == fin }

// pair reports whether a frame is between us and the incarnation that we
// adopted.
func (s *Session) pair(f *frame) bool { return f.to == s.cfg.Incarnation && f.from == s.peer }

func (s *Session) appendHello(b []byte) []byte {
	return appendFields(b, 0, hello, version, s.cfg.Group, s.cfg.Incarnation, s.nonce)
}

func (s *Session) appendHelloAck(b []byte) []byte {
	return appendFields(b, 0, helloAck, s.cfg.Incarnation, s.answer.to, s.answer.nonce)
}

func (s *Session) appendTaken(b []byte) []byte {
	return appendFields(b, 0, taken, s.cfg.Incarnation, s.refusal.to, s.refusal.nonce)
}

func (s *Session) appendAck(b []byte) []byte {
	kind := ack
	switch {
	case s.settled:
		kind = bye
	case s.ahead > 0:
		kind = gap
	}
	return appendFields(b, 0, kind, s.cfg.Incarnation, s.peer, s.expect-1)
}

func (s *Session) appendData(b []byte, kind kind, seq uint64, count int, body []byte) []byte {
	if kind == fin {
		b = appendFields(b, count, fin, s.cfg.Incarnation, s.peer, seq, s.expect-1, s.heardAtClose)
	} else {
		b = appendFields(b, count, data, s.cfg.Incarnation, s.peer, seq, s.expect-1)
	}
	return append(b, body...)
}

// appendFields appends an array of a kind and integers that count more
// elements will follow.
func appendFields(b []byte, count int, kind kind, fields ...uint64) []byte {
	b = msgp.AppendArray(b, 1+len(fields)+count)
	b = msgp.AppendUint(b, uint64(kind))
	for _, v := range fields {
		b = msgp.AppendUint(b, v)
	}
	return b
}
