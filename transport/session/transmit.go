package session

import "github.com/dmutex/dmutex/internal/msgp"

// Transmit appends the frame that should go out next to b, and returns b as it
// is when there is none. A frame is at most Config.MaxFrame long.
//
// Answers go before data, so that a peer that has to meet us first has done so
// when the data arrives; and a challenge before an answer, for the same reason
// the other way round.
//
// The driver gives the frame to the link before it calls Transmit again; see
// [Session.Done].
func (s *Session) Transmit(now int64, b []byte) []byte {
	before := len(b)
	b = s.transmit(now, b)
	s.handed = len(b) > before
	return b
}

func (s *Session) transmit(now int64, b []byte) []byte {
	switch {
	case now >= s.helloAt:
		return s.sendHello(now, b)
	case s.answer.to != 0:
		b = s.appendHelloAck(b)
		s.answer.to = 0
		return b
	case s.refusal.to != 0:
		b = s.appendTaken(b)
		s.refusal.to = 0
		return b
	case now >= s.resendAt:
		return s.resend(now, b)
	case s.mayCut():
		return s.sendNext(now, b)
	case now >= s.ackAt:
		s.ackAt, s.debt = never, 0
		if s.left && !s.settled && s.repeats > 0 {
			s.ackAt = now + s.timeout()
			s.tire()
		}
		return s.appendAck(b)
	}
	return b
}

// Deadline returns when Transmit will next have a frame if nothing else
// happens: a time that has passed if it has one now, [math.MaxInt64] for never.
func (s *Session) Deadline() int64 {
	if s.answer.to != 0 || s.refusal.to != 0 || s.mayCut() {
		return always
	}
	return min(s.helloAt, s.resendAt, s.ackAt)
}

// sendHello sends a challenge. While there is no peer it is repeated, ever more
// rarely; while there is a doubt about it, without a pause. Otherwise a challenge
// has a cause, and if it is lost the cause will come again.
func (s *Session) sendHello(now int64, b []byte) []byte {
	s.ask()
	b = s.appendHello(b)
	s.helloSent, s.helloAfter, s.helloAt = now, now+s.cfg.MinTimeout, never
	switch {
	case s.peer == 0:
		s.helloAt = now + s.timeout()
		s.tire()
	case s.inDoubt(now):
		s.helloAt = s.nextCall(now)
	}
	s.hellos++
	s.stats.Challenges++
	return b
}

// mayCut reports whether a new DATA or FIN frame can go out.
func (s *Session) mayCut() bool {
	return s.peer != 0 && !s.left &&
		s.next-s.base < uint64(s.cfg.Window) &&
		(s.flying < s.Backlog() || s.closed && s.finSeq == 0)
}

// sendNext puts as many messages as fit into the next frame. What is in it does
// not change any more: its number stands for these messages.
func (s *Session) sendNext(now int64, b []byte) []byte {
	f := sentFrame{sentAt: now}
	waiting := s.out[s.start+s.flying:]
	r := msgp.NewReader(waiting)
	for len(r.Rest()) > 0 && f.count < maxCount {
		r.Bin(len(waiting))
		size := len(waiting) - len(r.Rest())
		if header+size > s.cfg.MaxFrame {
			break
		}
		f.size = size
		f.count++
	}
	if s.closed && f.size == len(waiting) {
		s.finSeq = s.next
	}
	*s.inFlight(s.next) = f
	s.flying += f.size
	s.next++
	if s.resendAt == never {
		s.resendAt = now + s.timeout()
	}
	return s.appendFrame(b, s.next-1, waiting[:f.size])
}

// resend sends the oldest frame in flight again: after a timeout, as a probe of
// whether the peer is there, or because an acknowledgement showed that this one
// is missing.
func (s *Session) resend(now int64, b []byte) []byte {
	if !s.repair {
		s.behind = s.next
		s.backOff()
	}
	s.repair = false
	s.resentAt, s.resendAt = now, now+s.timeout()
	f := s.inFlight(s.base)
	f.again = true
	s.stats.Resent++
	s.stats.Again = uint64(f.count)
	return s.appendFrame(b, s.base, s.out[s.start:s.start+f.size])
}

func (s *Session) appendFrame(b []byte, seq uint64, messages []byte) []byte {
	kind := data
	if seq == s.finSeq {
		kind = fin
	}
	if s.ahead == 0 { // otherwise a GAP may be due, and DATA cannot replace it
		s.ackAt, s.debt = never, 0
	}
	return s.appendData(b, kind, seq, s.inFlight(seq).count, messages)
}

func (s *Session) inFlight(seq uint64) *sentFrame {
	return &s.flight[seq%uint64(s.cfg.Window)]
}

// trim gives back the memory of what was acknowledged.
func (s *Session) trim() {
	if s.Backlog() > 0 {
		return
	}
	s.out, s.start = s.out[:0], 0
	if cap(s.out) > keep {
		s.out = nil
	}
}

// drop forgets all that the peer has not acknowledged.
func (s *Session) drop() {
	s.start, s.flying = len(s.out), 0
	s.trim()
	s.base = s.next
	s.resendAt, s.repair = never, false
}

// timeout returns how long to wait for an acknowledgement: a round trip, doubled
// as often as it was waited for in vain.
func (s *Session) timeout() int64 {
	t := s.roundTrip()
	for range s.backoff {
		if t >= s.cfg.MaxTimeout {
			break
		}
		t *= 2
	}
	return min(t, s.cfg.MaxTimeout)
}

// roundTrip returns how long a frame and its acknowledgement should take at most:
// Jacobson, "Congestion Avoidance and Control", SIGCOMM 1988, plus the time that
// the peer may take its time for.
func (s *Session) roundTrip() int64 {
	t := int64(firstTimeout)
	if s.trip > 0 {
		t = s.trip + max(4*s.jitter, millisecond) + s.cfg.AckDelay
	}
	return min(max(t, s.cfg.MinTimeout), s.cfg.MaxTimeout)
}

func (s *Session) backOff() {
	if s.timeout() < s.cfg.MaxTimeout {
		s.backoff++
	}
}

// tire counts a repetition. While more are to come, only every second one backs
// off.
func (s *Session) tire() {
	s.repeats = max(s.repeats-1, 0)
	if s.repeats%2 == 0 {
		s.backOff()
	}
}

// measure takes a round trip into the estimate.
func (s *Session) measure(trip int64) {
	trip = max(trip, 1)
	if s.trip == 0 {
		s.trip, s.jitter = trip, trip/2
		return
	}
	off := trip - s.trip
	s.trip += off / 8
	s.jitter += (max(off, -off) - s.jitter) / 4
}
