package stream

import (
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/timers"
)

// This file finds out which life of the peer is present.

// onStranger takes a frame of a life that is not the peer. That life is the peer from now on if it is
// higher, knows us, and the peer's place is vacant. A DATA frame that did this will be sent again.
func (s *Stream) onStranger(now int64, f *frame) (met uint64) {
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
			s.at[toHello] = min(s.at[toHello], now+s.timeout())
		}
	}
	return 0
}

// onHello takes a HELLO of the peer, or a frame of it to another life of ours.
func (s *Stream) onHello(now int64, f *frame) {
	if f.to != 0 && f.to != s.cfg.Life {
		s.reply(now, f.from, 0)
		return
	}
	s.backoff = 0 // it is there
	if s.at[toResend] != due.Never {
		s.at[toResend] = min(s.at[toResend], now+s.timeout())
	}
	switch {
	case f.to == 0:
		s.answerAt(now, f.from, 0)
	case s.rival.life != 0 && !s.left:
		s.reply(now, s.rival.life, s.peer)
		s.forget(now + s.pace.grace)
		s.at[toHello] = due.Never
	}
}

// reply makes HELLO, or REFUSED if there is another life, the next answer to a stranger.
// Of two strangers within pace.minTimeout the higher life is answered.
func (s *Stream) reply(now int64, to, other uint64) {
	if s.answer.to <= to {
		s.answerAt(min(s.at[toAnswer], max(now, s.answeredAt+s.pace.minTimeout)), to, other)
	}
}

func (s *Stream) answerAt(at int64, to, other uint64) {
	s.answer, s.at[toAnswer] = answer{to, other}, at
}

// forget forgets the rival. The peer is not asked for another before until.
func (s *Stream) forget(until int64) {
	s.rival, s.at[toReplace] = rival{until: until}, due.Never
}

// vacant reports whether a higher life may replace the peer: there is none, or it has
// left, or it was asked and has not answered, or it acknowledges nothing.
func (s *Stream) vacant(now int64) bool {
	return s.peer == 0 || s.left || s.silent() && now < s.rival.until ||
		s.backoff > 0 && s.timeout() >= s.pace.grace
}

// silent reports whether the peer has not answered that it is alive, though there is a rival.
func (s *Stream) silent() bool { return s.rival.life != 0 && s.at[toReplace] == due.Never }

// doubt asks the peer whether it is alive, because of a frame of a higher life. If the peer has just answered, the
// higher life is refused at once. A HELLO that answers ours is not, because questions and answers would never end.
func (s *Stream) doubt(now int64, f *frame) {
	switch {
	case s.answer.to == f.from: // it is about to be refused
	case s.at[toReplace] != due.Never:
		s.rival.life = max(s.rival.life, f.from)
	case now >= s.rival.until:
		s.rival = rival{life: f.from}
		s.at[toReplace], s.at[toHello] = now+max(s.pace.grace, s.pace.trips*s.stats.RoundTrip), now
	case f.kind != hello || f.to != s.cfg.Life:
		s.reply(now, f.from, s.peer)
	}
}

// Ask asks the peer for a sign of life, unless there is none or it has left. If another
// process has taken its place or ours, the answer shows that.
func (s *Stream) Ask() {
	if s.peer != 0 && !s.left {
		s.at[toHello] = always
	}
}

// sendHello asks who is there: again and again while there is no peer, and some times
// while the peer has time to answer.
func (s *Stream) sendHello(now int64, b []byte) []byte {
	switch {
	case s.peer == 0:
		switch {
		case s.backoff > 0:
			s.timed.at = always
		case s.timed.at == always: // the answer may be to an earlier HELLO
			s.timed.at = now
		}
		s.at[toHello] = now + s.timeout()
		s.backOff()
	case s.rival.life != 0:
		s.at[toHello] = now + max(s.pace.grace/4, 1)
	}
	return s.appendHello(b, 0)
}

// onRefused takes the word that the peer lives with another life of our node. About a lower one it
// is out of date if it is of a former life of the peer, or if the peer has talked with us.
func (s *Stream) onRefused(now int64, f *frame) (taken uint64) {
	talked := s.acked+s.heard > 0 // the peer has adopted this life
	if f.to != s.cfg.Life || f.life < s.cfg.Life && (f.from < s.peer || f.from == s.peer && talked) {
		return 0
	}
	if s.peer == 0 { // leave it alone for a while
		s.at[toHello] = now + s.pace.maxTimeout
	}
	return f.life
}

// Refused takes the link's word that it does not reach the peer, because the peer is connected with
// another life of our node. It reports whether to believe that, as if a frame had brought Taken.
func (s *Stream) Refused(now int64, life uint64) bool {
	f := frame{from: s.peer, to: s.cfg.Life, life: life}
	return life != s.cfg.Life && life <= s.cfg.MaxLife && s.onRefused(now, &f) != 0
}

// adopt takes a higher life for the peer.
func (s *Stream) adopt(now int64, life uint64) {
	switch {
	case s.peer != 0:
		s.drop()
		s.sent, s.pushed = 0, 0
	case s.timed.at != always:
		s.measure(now - s.timed.at)
	}
	s.peer, s.rival, s.conversation, s.at = life, rival{}, unused, timers.New()
	s.answerAt(now, life, 0)
}
