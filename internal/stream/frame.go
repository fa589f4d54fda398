package stream

import (
	"cmp"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/protocol"
)

// Frames are sequences of msgpack values, canonical like all that dmutex writes:
//
//	HELLO    1, oldest, newest, from, to, settings  to is 0 in a question
//	REFUSED  2, from, to, life
//	ACK      3, from, to, ack
//	DATA     4, from, to, seq, ack, message, ...    at least one message
//	FIN      5, from, to, seq, ack, message, ...    the last DATA
//	BYE      6, from, to, ack                       an ACK after FIN was acknowledged
//	GAP      7, from, to, ack                       an ACK that asks to go back
//	PUSH     8, from, to, seq, ack, message, ...    a DATA to be acknowledged soon
//
// from, to and life are lives, messages and settings are byte strings, the rest integers. In a REFUSED
// from or life may be 1 for one that is not told: see the comment of the package. The form of HELLO is for good: it tells
// the versions of package protocol that a life speaks, from oldest to newest. All else between two lives
// is in the highest that both speak.
type kind uint64

const (
	hello kind = iota + 1
	refused
	ack
	data
	fin
	bye
	gap
	push
)

type frame struct {
	kind     kind
	from, to uint64
	life     uint64 // of REFUSED
	seq      uint64 // of DATA and FIN: the number of the first message
	ack      uint64 // of ACK, BYE, GAP, DATA and FIN
	push     bool   // of DATA: it is a PUSH
}

const (
	header = 1 + 4*maxUint // what goes before the messages of a frame, at most

	// Overhead is how much smaller than a frame the largest message is.
	Overhead = header + maxHead
)

// The reasons for which [Stream.Handle] refuses a frame, besides malformed bytes.
var (
	errKind     = dmutex.PeerMistake("the kind of frame is unknown")
	errSettings = dmutex.PeerMistake("its settings are too long")
	errZero     = dmutex.PeerMistake("a life or sequence number is zero, or a life refused for itself")
	errMirror   = dmutex.PeerMistake("it says that it is us: two processes have the same life, or the link returns our own frames")
	errAhead    = dmutex.PeerMistake("it names a life far ahead of the clock: a clock is wrong")
	errEmpty    = dmutex.PeerMistake("it contains no message, or an empty one")
	errAck      = dmutex.PeerMistake("it acknowledges what was never sent")
	errEnd      = dmutex.PeerMistake("it sends after its end")
	errBye      = dmutex.PeerMistake("it says that we have its end, and we have not")
	errGap      = dmutex.PeerMistake("it lacks a message before others that were never sent")
)

// parse takes a frame apart, its messages into s.in, and refuses what no correct peer sends.
func (s *Stream) parse(b []byte) (f frame, err error) {
	r := reader{rest: b}
	var speaks protocol.Versions
	if f.kind = kind(r.uint()); f.kind == hello {
		speaks = protocol.Versions{Oldest: r.uint(), Newest: r.uint()}
	}
	f.from, f.to = r.uint(), r.uint()
	switch f.kind {
	case hello:
		settings := r.bin()
		switch {
		case r.err != nil:
		case len(settings) > MaxSettings:
			r.fail(errSettings)
		case speaks.Common(s.cfg.Versions) == 0 || string(settings) != s.cfg.Settings:
			err = GroupError{speaks, string(settings)}
		}
	case refused:
		f.life = r.uint()
	case ack, bye, gap:
		f.ack = r.uint()
	case data, fin, push:
		if f.kind == push {
			f.kind, f.push = data, true
		}
		f.seq, f.ack = r.uint(), r.uint()
		for len(r.rest) > 0 {
			m := r.bin()
			if len(m) == 0 && r.err == nil {
				return f, errEmpty
			}
			s.in = append(s.in, m)
		}
	default:
		r.fail(errKind)
	}
	return f, cmp.Or(r.finish(), s.check(&f), err)
}

// check refuses what is well-formed and yet cannot be.
func (s *Stream) check(f *frame) error {
	numbered := f.kind == data || f.kind == fin
	switch {
	case f.from == s.cfg.Life:
		return errMirror
	case f.from == 0 || f.to == 0 && f.kind != hello || f.kind == refused && (f.life == 0 || f.life == f.to) || numbered && f.seq == 0:
		return errZero
	case f.from > s.cfg.MaxLife || f.kind == refused && f.life > s.cfg.MaxLife:
		return errAhead
	case s.cfg.Peer != 0 && f.from != s.cfg.Peer:
		return ErrOther
	case f.kind == data && len(s.in) == 0:
		return errEmpty
	case f.kind <= refused || f.from != s.peer || f.to != s.cfg.Life:
		return nil
	case f.ack > s.last():
		return errAck
	case f.kind == gap && f.ack+2 > s.last():
		return errGap
	case numbered && s.left && (f.seq > s.received() || f.seq+uint64(len(s.in)) > s.received()):
		return errEnd
	case f.kind == bye && !s.left:
		return errBye
	}
	return nil
}

func (s *Stream) appendHello(b []byte, to uint64) []byte {
	b = appendFields(b, hello, s.cfg.Versions.Oldest, s.cfg.Versions.Newest, s.cfg.Life, to)
	return appendBin(b, []byte(s.cfg.Settings))
}

func (s *Stream) appendAck(b []byte) []byte {
	kind := ack
	switch {
	case s.over():
		kind = bye
	case s.early != 0:
		kind = gap
	}
	return appendFields(b, kind, s.cfg.Life, s.peer, s.received())
}

func appendFields(b []byte, kind kind, fields ...uint64) []byte {
	b = append(b, byte(kind))
	for _, v := range fields {
		b = appendUint(b, v)
	}
	return b
}
