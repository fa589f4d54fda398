package session

import "slices"

// This file finds out which life of the peer is present: rules 1 to 3, 9 and 10.

// challenge asks the live process of the peer to name itself, if no such question is open,
// and sees to it that a HELLO goes out soon.
func (s *Session) challenge() {
	s.ask()
	s.helloAt = min(s.helloAt, s.helloAfter)
	if s.peer == 0 {
		s.linger()
	}
}

// Challenge asks the peer to name itself. If it has restarted, or lives with another
// process in the place of this one, the answer shows that. Without a peer, or when it
// has left, Challenge does nothing: the session asks by itself.
func (s *Session) Challenge() {
	if s.peer != 0 && !s.left {
		s.challenge()
	}
}

// ask opens a question if none is open.
func (s *Session) ask() {
	if s.nonce == s.floor {
		s.nonce++
		s.hellos = 0
	}
}

// doubt challenges because a frame came from another life than the peer's, or for
// another than ours. The peer has Config.Grace to answer a challenge that is asked
// from now on: it may have answered an open one before the other life began. asked is
// the other life's challenge, 0 if the frame was none. Only its first one counts while
// the doubt lasts: if each did, two lives that doubt each other would never finish asking.
func (s *Session) doubt(now int64, from, asked uint64) {
	doubtful := s.peer != 0 && !s.left && from != s.peer
	first := doubtful && !s.inDoubt(now)
	asks := doubtful && !first && from == s.rival && s.rivalAsked == 0 && asked != 0
	if (first || asks) && s.nonce > s.floor && s.hellos > 0 {
		s.nonce++
		s.hellos = 0
	}
	s.challenge()
	if first {
		s.rival, s.graceEnd = from, now+s.cfg.Grace
	}
	if first || asks {
		s.rivalAsked, s.rivalNonce = asked, s.nonce
	}
	s.doubtEnd = max(now, s.graceEnd) + max(s.cfg.Grace, 4*s.roundTrip())
}

// inDoubt reports whether another life was heard lately, and the peer has not
// answered since.
func (s *Session) inDoubt(now int64) bool {
	return s.rival != 0 && now < s.doubtEnd
}

// vacant reports whether another life may be the peer: there is none, or it has
// left, or it was doubted and did not answer.
func (s *Session) vacant(now int64) bool {
	return s.peer == 0 || s.left || s.inDoubt(now) && now >= s.graceEnd
}

// nextCall returns when to repeat a challenge in doubt: some times during the grace,
// however long a round trip takes, and when it is over.
func (s *Session) nextCall(now int64) int64 {
	at := now + min(s.roundTrip(), s.cfg.Grace/4)
	if now < s.graceEnd {
		at = min(at, s.graceEnd)
	}
	return max(at, s.helloAfter)
}

// onHello answers a challenge of the peer, or of a life that may become it unless we
// are about to go. One of another life than the peer is a reason to challenge, too.
func (s *Session) onHello(now int64, f *frame) {
	if f.from == s.peer || s.peer == 0 || !s.closed && s.vacant(now) {
		s.answer.to, s.answer.nonce = f.from, f.nonce
		s.answered = true
	} else {
		s.knock.from, s.knock.nonce = f.from, f.nonce
	}
	if f.from == s.peer {
		return
	}
	if s.peer != 0 {
		s.stats.Strays++
	}
	s.doubt(now, f.from, f.nonce)
}

// onHelloAck takes the answer to a challenge, and with it perhaps a new peer.
func (s *Session) onHelloAck(now int64, f *frame) Event {
	switch {
	case f.to != s.cfg.Incarnation || f.nonce <= s.floor || f.nonce > s.nonce:
		return 0
	case f.from == s.peer:
		s.onProof(now, f.nonce)
		return 0
	case !s.vacant(now):
		s.doubt(now, f.from, 0)
		return 0
	}
	return s.adopt(now, f)
}

// onProof takes the peer's answer to a challenge, which ends the doubt if it arose
// before the challenge was asked. If the peer has left, its place is free all the
// same.
func (s *Session) onProof(now int64, nonce uint64) {
	if s.left {
		return
	}
	s.backoff = 0
	if s.resendAt != never {
		s.resendAt = min(s.resendAt, now+s.timeout())
	}
	if s.rival != 0 {
		if nonce < s.rivalNonce {
			return
		}
		s.refusal.to, s.refusal.nonce = s.rival, s.rivalAsked
		s.rival = 0
	}
	s.floor, s.helloAt = s.nonce, never
}

// refuse answers a former peer.
func (s *Session) refuse(f *frame) {
	if s.refusal.to != f.from {
		s.refusal.to, s.refusal.nonce = f.from, 0
	}
	if f.kind == hello {
		s.refusal.nonce = f.nonce
	}
}

// onTaken takes a refusal, which closes the challenge that it refuses. Where both
// lives hear every HELLO each would cause the next, so this one waits before it asks
// again. A refusal of anything else is a reason to ask.
func (s *Session) onTaken(now int64, f *frame) Event {
	switch {
	case f.to != s.cfg.Incarnation:
		return 0
	case f.nonce <= s.floor || f.nonce > s.nonce:
		s.challenge()
		return 0
	}
	s.floor, s.helloAt, s.helloAfter = s.nonce, never, now+s.cfg.MaxTimeout
	if s.peer == 0 {
		s.helloAt = s.helloAfter
	}
	return Taken
}

// adopt takes the sender of an answer for the peer.
func (s *Session) adopt(now int64, f *frame) Event {
	event := Met
	if s.peer != 0 {
		event = Restarted
		if len(s.former) == formerPeers {
			s.former = slices.Delete(s.former, 0, 1)
		}
		s.former = append(s.former, s.peer)
		s.drop()
		s.sent, s.acked = 0, 0
	}
	s.peer = f.from
	s.base, s.next, s.finSeq = 1, 1, 0
	s.behind, s.backoff, s.kept, s.trip, s.jitter = 0, 0, 0, 0, 0
	s.resentAt = always
	s.expect, s.left, s.repeats, s.settled = 1, false, 0, false
	s.heard, s.heardAtClose = 0, 0
	s.forgetEarly()
	s.debt, s.ackAt = 0, never
	if s.hellos == 1 && f.nonce == s.nonce {
		s.measure(now - s.helloSent)
	}
	s.floor, s.helloAt = s.nonce, never
	s.rival = 0
	if s.knock.from == s.peer { // now it is answered
		s.answer.to, s.answer.nonce, s.answered = s.peer, s.knock.nonce, true
	}
	s.knock.from = 0
	return event
}
