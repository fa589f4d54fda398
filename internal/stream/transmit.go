package stream

import (
	"cmp"

	"github.com/dmutex/dmutex/internal/due"
)

// This file carries messages: go-back-N.

// Transmit appends the frame that should go out next to b, and returns b as it is when
// there is none. A frame is at most Config.MaxFrame long. HELLO goes before data, so that a
// peer that has to meet us first has done so when the data arrives.
func (s *Stream) Transmit(now int64, b []byte) []byte {
	if s.at.Due(toReplace, now) {
		s.rival.until = now + max(s.pace.grace, 4*s.roundTrip())
		s.answerAt(now, s.rival.life, 0)
		s.at[toHello] = due.Never
	}
	switch {
	case s.at.Due(toHello, now):
		return s.sendHello(now, b)
	case s.at.Due(toAnswer, now):
		to := s.answer.to
		s.answer.to, s.answeredAt = 0, now
		switch other := s.answer.other; {
		case other == 0:
			return s.appendHello(b, to)
		case other > to:
			return appendFields(b, refused, 1, to, other)
		default:
			return appendFields(b, refused, s.cfg.Life, to, 1)
		}
	case s.at.Due(toResend, now):
		s.backOff()
		s.goBack(now)
	}
	switch {
	case s.maySend():
		return s.sendNext(now, b)
	case s.at.Due(toAck, now):
		if s.left && !s.over() && s.repeats > 0 {
			s.at[toAck] = now + s.timeout()
			if s.repeats--; s.repeats%2 == 0 {
				s.backOff()
			}
		}
		return s.appendAck(b)
	}
	return b
}

// Deadline returns when Transmit will next have a frame if nothing else
// happens: a time that has passed if it has one now, [due.Never] if it has no such time.
func (s *Stream) Deadline() int64 {
	if s.maySend() {
		return always
	}
	return s.at.Next()
}

// maySend reports whether a new DATA or FIN frame can go out. After a timeout only one
// may be in flight.
func (s *Stream) maySend() bool {
	return s.next <= s.last() && s.peer != 0 && !s.left &&
		(s.next == s.acked+1 || s.flying < s.pace.window && s.backoff <= 0)
}

// sendNext puts as many messages as fit into the next frame.
func (s *Stream) sendNext(now int64, b []byte) []byte {
	waiting := s.out[s.start+s.flying:]
	r := reader{rest: waiting}
	size, count := 0, 0
	for len(r.rest) > 0 {
		r.bin()
		next := len(waiting) - len(r.rest)
		if header+next > s.cfg.MaxFrame {
			break
		}
		size = next
		count++
	}
	seq := s.next
	s.next += uint64(count)
	s.flying += size
	kind := data
	if seq <= s.pushed {
		kind = push
	}
	if s.closed && size == len(waiting) {
		kind = fin
		s.next++
	}
	switch {
	case s.timed.at != always:
	case seq < s.timed.seq:
		s.stats.Resent++
	default:
		s.timed = timed{seq, now}
	}
	if s.at[toResend] == due.Never {
		s.at[toResend] = now + s.timeout()
	}
	if s.early == 0 { // otherwise a GAP may be due, and DATA cannot replace it
		s.at[toAck] = due.Never
	}
	return append(appendFields(b, kind, s.cfg.Life, s.peer, seq, s.received()), waiting[:size]...)
}

// onAck forgets what the peer has. If it has something new, it hears us.
func (s *Stream) onAck(now int64, seq uint64) {
	s.stray = stray{}
	switch {
	case seq <= s.acked || s.left && seq <= s.sent:
		return
	case s.left: // our FIN has crossed the peer's, and the peer has it: it waits no longer than we
		if s.repeats != told {
			s.repeats, s.at[toAck] = told, now
		}
		return
	}
	r := reader{rest: s.out[s.start:]}
	for ; s.acked < seq && s.acked < s.sent; s.acked++ {
		r.bin()
	}
	size := s.Backlog() - len(r.rest)
	s.start += size
	s.flying = max(s.flying-size, 0)
	s.acked, s.next = seq, max(s.next, seq+1)
	s.trim()
	s.backoff, s.again = 0, 0
	if seq >= s.timed.seq {
		if s.timed.at != always {
			s.measure(now - s.timed.at)
		}
		s.timed, s.wentBackAt = timed{s.next, always}, always
	}
	switch {
	case s.over():
		s.at[toResend], s.at[toAck] = due.Never, now // which is a BYE
	case s.next == seq+1:
		s.at[toResend] = due.Never
	default:
		s.at[toResend] = now + s.timeout()
	}
}

// onSecondAck measures the round trip by an ACK that brings nothing new after we went back.
func (s *Stream) onSecondAck(now int64, seq uint64) {
	if seq == s.acked && s.next == seq+1 && s.wentBackAt != always {
		s.stats.RoundTrip = max(s.stats.RoundTrip, min(now-s.wentBackAt, s.pace.maxTimeout))
	}
}

// inVain is how often we go back because of GAPs alone. A link may lose a frame each time and not those behind it, as
// NATS does with one that its server does not take: then the timeout, which grows, sends that frame alone.
const inVain = 8

// onGap goes back, but not within a round trip: what was sent last may arrive after the GAP.
func (s *Stream) onGap(now int64, seq uint64) {
	if seq != s.acked || s.next == seq+1 || s.again >= inVain {
		return
	}
	if calm := s.wentBackAt + cmp.Or(s.stats.RoundTrip, s.timeout()); now < calm {
		s.backoff, s.at[toResend] = -1, min(s.at[toResend], calm)
		return
	}
	s.backoff = 0
	s.goBack(now)
}

// goBack sends everything again that is in flight.
func (s *Stream) goBack(now int64) {
	if s.wentBackAt != always {
		s.again = min(s.again+1, inVain)
	}
	s.timed = timed{max(s.timed.seq, s.next), always}
	s.next, s.flying = s.acked+1, 0
	s.at[toResend], s.wentBackAt = due.Never, now
}

// onData delivers the messages of a frame that are new.
func (s *Stream) onData(now int64, f *frame, size int) (in Input) {
	expect := s.received() + 1
	next := f.seq + uint64(len(s.in)) + one(f.kind == fin)
	switch {
	case f.seq > expect:
		if s.early == 0 || f.seq <= s.early {
			s.at[toAck] = now // which is a GAP
		}
		s.early = f.seq
		return in
	case next <= expect: // our acknowledgement was lost, or is late
		s.stats.Repeated++
		if s.over() || s.repeats == told {
			return in
		}
		s.at[toAck] = now
		if s.left {
			s.repeats, s.backoff = patience, 0
		}
		return in
	}
	in.Seq, in.Messages = expect, s.in[expect-f.seq:]
	s.heard += uint64(len(in.Messages))
	switch {
	case s.early != 0 || size > largeFrame:
		s.at[toAck], s.early = now, 0
	case f.push:
		s.at[toAck] = min(s.at[toAck], now+s.pace.pushDelay)
	default:
		s.at[toAck] = min(s.at[toAck], now+s.pace.ackDelay)
	}
	if f.kind == fin {
		s.drop() // nobody will read it
		s.left, s.at[toAck] = true, now
		s.forget(0)
		s.repeats, s.backoff = patience, 0
		in.Left = true
	}
	return in
}

// trim gives back the memory of what was acknowledged.
func (s *Stream) trim() {
	if s.Backlog() > 0 {
		return
	}
	s.out, s.start = s.out[:0], 0
	if cap(s.out) > keep {
		s.out = nil
	}
}

// drop forgets all that the peer has not acknowledged.
func (s *Stream) drop() {
	s.start, s.flying = len(s.out), 0
	s.trim()
	s.at[toResend] = due.Never
}

// timeout returns how long to wait for an acknowledgement: a round trip, doubled as often as it was waited for in vain.
func (s *Stream) timeout() int64 {
	return min(s.roundTrip()<<max(s.backoff, 0), s.pace.maxTimeout) // backOff keeps it from overflowing
}

// roundTrip returns how long a frame and its acknowledgement should take at most.
func (s *Stream) roundTrip() int64 {
	t := int64(firstTimeout)
	if trip := s.stats.RoundTrip; trip > 0 {
		t = trip + trip/2 + s.pace.ackDelay
	}
	return min(max(t, s.pace.minTimeout), s.pace.maxTimeout)
}

func (s *Stream) backOff() {
	if s.timeout() < s.pace.maxTimeout {
		s.backoff++
	}
}

// measure takes a round trip into the estimate. That of the first message replaces that of
// HELLO, which is a guess, because a HELLO answers more than one. A very long one is a pause of this process.
func (s *Stream) measure(trip int64) {
	trip = min(trip, s.pace.maxTimeout)
	if s.stats.RoundTrip == 0 || s.timed.seq == 1 {
		s.stats.RoundTrip = max(trip, 1)
	}
	s.stats.RoundTrip = max(s.stats.RoundTrip+(trip-s.stats.RoundTrip)/8, 1)
}
