package session

// This file finds out which life of the peer is present.

// onStranger takes a frame of a life that is not the peer. That life is the peer from now on if it is
// higher, knows us, and the peer's place is vacant. A DATA frame that did this will be sent again.
func (s *Session) onStranger(now int64, f *frame) (met uint64) {
	switch {
	case f.from < s.peer:
		s.reply(now, f.from, s.peer)
	case !s.vacant(now):
		s.doubt(now, f)
	case f.to == s.cfg.Life:
		s.adopt(now, f.from)
		return f.from
	default:
		s.reply(now, f.from, 0)
		if s.peer == 0 && s.backoff > 0 { // somebody is there
			s.backoff = 0
			s.helloAt = min(s.helloAt, now+s.timeout())
		}
	}
	return 0
}

// onHello takes a HELLO of the peer, or a frame of it to another life of ours.
func (s *Session) onHello(now int64, f *frame) {
	if f.to != 0 && f.to != s.cfg.Life {
		s.reply(now, f.from, 0)
		return
	}
	s.backoff = 0 // it is there
	if s.resendAt != never {
		s.resendAt = min(s.resendAt, now+s.timeout())
	}
	switch {
	case f.to == 0:
		s.answer = answer{f.from, 0, now}
	case s.rival.life != 0 && !s.left:
		s.reply(now, s.rival.life, s.peer)
		s.rival, s.helloAt = rival{until: now + s.pace.grace}, never
	}
}

// reply makes HELLO, or REFUSED if there is another life, the next answer to a stranger.
// Of two strangers within pace.minTimeout the higher life is answered.
func (s *Session) reply(now int64, to, other uint64) {
	if s.answer.to <= to {
		at := now
		if s.answer.at > now-s.pace.minTimeout {
			at = s.answer.at
			if s.answer.to == 0 {
				at += s.pace.minTimeout
			}
		}
		s.answer = answer{to, other, at}
	}
}

// vacant reports whether a higher life may replace the peer: there is none, or it has
// left, or it was asked and has not answered, or it acknowledges nothing.
func (s *Session) vacant(now int64) bool {
	return s.peer == 0 || s.left || s.rival.silent && now < s.rival.until ||
		s.backoff > 0 && s.timeout() >= s.pace.grace
}

// doubt asks the peer whether it is alive, because of a frame of a higher life. If the peer has
// just answered, the higher life is refused at once. A HELLO that answers ours is not, because
// questions and answers would never end.
func (s *Session) doubt(now int64, f *frame) {
	switch {
	case s.answer.to == f.from: // it is about to be refused
	case s.rival.life != 0 && !s.rival.silent:
		s.rival.life = max(s.rival.life, f.from)
	case s.rival.life != 0 || now >= s.rival.until:
		s.rival = rival{life: f.from, until: now + s.pace.grace}
		s.helloAt = now
	case f.kind != hello || f.to != s.cfg.Life:
		s.reply(now, f.from, s.peer)
	}
}

// Ask asks the peer for a sign of life, unless there is none or it has left. If another
// process has taken its place or ours, the answer shows that.
func (s *Session) Ask() {
	if s.peer != 0 && !s.left {
		s.helloAt = always
	}
}

// sendHello asks who is there: again and again while there is no peer, and some times
// while the peer has time to answer.
func (s *Session) sendHello(now int64, b []byte) []byte {
	s.helloAt = never
	switch {
	case s.peer == 0:
		switch {
		case s.backoff > 0:
			s.timed.at = always
		case s.timed.at == always: // the answer may be to an earlier HELLO
			s.timed.at = now
		}
		s.helloAt = now + s.timeout()
		s.backOff()
	case s.rival.life != 0:
		s.helloAt = now + max(s.pace.grace/4, 1)
	}
	return s.appendHello(b, 0)
}

// onRefused takes the word that the peer lives with another life of our node. About a lower one it
// is out of date if it is of a former life of the peer, or if the peer has talked with us.
func (s *Session) onRefused(now int64, f *frame) (taken uint64) {
	talked := s.acked+s.heard > 0 // the peer has adopted this life
	if f.to != s.cfg.Life || f.life < s.cfg.Life && (f.from < s.peer || f.from == s.peer && talked) {
		return 0
	}
	if s.peer == 0 { // leave it alone for a while
		s.helloAt = now + s.pace.maxTimeout
	}
	return f.life
}

// Refused takes the link's word that it does not reach the peer, because the peer is connected with
// another life of our node. It reports whether to believe that, as if a frame had brought Taken.
func (s *Session) Refused(now int64, life uint64) bool {
	f := frame{from: s.peer, to: s.cfg.Life, life: life}
	return life != s.cfg.Life && life <= s.cfg.MaxLife && s.onRefused(now, &f) != 0
}

// adopt takes a higher life for the peer.
func (s *Session) adopt(now int64, life uint64) {
	switch {
	case s.peer != 0:
		s.drop()
		s.sent, s.pushed = 0, 0
	case s.timed.at != always:
		s.measure(now - s.timed.at)
	}
	s.peer, s.rival, s.helloAt = life, rival{}, never
	s.answer = answer{life, 0, now}
	s.streams = unused
}
