// Package session makes a link reliable: between two nodes it delivers every
// message once and in order, over a network that loses, repeats, reorders and
// delays frames arbitrarily; and it reports when a new process has replaced
// the one at the other end.
//
// It does no I/O, starts no goroutine and reads no clock: a [Session] is one
// end of the conversation with one peer, and a driver carries its frames.
//
// # Lives
//
// A process that restarts has forgotten everything, and the frames of its
// former run may still be in flight. So each life, which is one run of a
// process, has a name of its own, its incarnation. Incarnations have no order:
// a new process needs no disk and no clock to draw one. At most one process of
// a node should be alive at a time. A second one is refused while the first
// answers.
//
// A session adopts one incarnation of the peer at a time. The stream from life
// a of one node to life b of the other is numbered from 1, and every frame of
// it carries a and b.
//
// # Frames
//
//	HELLO(a, group, k)                  challenge: who are you?
//	HELLOACK(b, a, k)                   answer: I am b, to challenge k of a
//	TAKEN(a, x, k)                      refusal: I live with another life of your node, which has answered since you asked k
//	DATA(a, b, seq, ack, m, ...)        messages
//	FIN(a, b, seq, ack, heard, m, ...)  the last DATA
//	ACK(a, b, ack)                      an acknowledgement that travels alone
//	GAP(a, b, ack)                      the same, from an end that has later frames and lacks ack+1
//	BYE(a, b, ack)                      the same, from an end whose FIN is acknowledged
//
// # Rules
//
//  1. A session that has no peer challenges: it sends HELLO with a number k that
//     it has not used before, again and again. A session with a peer challenges
//     when a frame gives it cause (rules 2 and 4), but not too often. k stays the
//     same until it is answered or rule 9 needs a new one.
//  2. HELLO(x, k) is answered if x is the peer or there is no peer. If x is not
//     the peer it is challenged, and answered when it is adopted.
//  3. HELLOACK(x, a, k) counts if a is this life and k a challenge that was asked
//     after the last one that was closed. The peer's answer closes all challenges,
//     unless rule 9 asks for a later one. If x is not the peer and there is none, or
//     it has left, or its grace is over (rule 9), x is adopted: what the old peer has
//     not acknowledged is dropped, both streams begin again, and all challenges are
//     closed. A former peer is never adopted again.
//  4. Any other frame of x for y counts if x is the peer and y this life.
//     Otherwise it is dropped and x is challenged. If it is old, the answer
//     comes from the present peer, and nothing changes. If x is alive, this
//     is how we learn of it; if it took us for our predecessor, our HELLO is how
//     it learns of us.
//  5. DATA is delivered in the order of seq, each once. What comes too early is
//     kept. ack is the last seq delivered without a gap.
//  6. The content of a frame never changes once it has been sent. The oldest
//     that is not acknowledged is sent again after a timeout, which doubles
//     until the peer proves that it hears us; and at once, without a timeout,
//     when GAP says that it is missing, at most once in a round trip.
//  7. heard in FIN is how many messages were delivered before Close. Later
//     messages are acknowledged, too, but no process was left to answer them,
//     and heard tells their sender.
//  8. The acknowledgement of a FIN is repeated, at growing intervals, until BYE
//     answers it, or our own FIN is acknowledged, or it was repeated 12 times since
//     the peer was heard. BYE is not answered and may be lost like all other
//     frames. A session that closes waits equally long for a peer whose HELLO it
//     has answered and which has not answered its own.
//  9. A frame of another life x casts doubt on a peer that has not left. The next
//     challenge has a new number, and is repeated while the doubt lasts. If the peer
//     answers it, or a later one, the doubt is over and x is refused: TAKEN(a, x, k)
//     is sent if x has asked k before that challenge was, else TAKEN(a, x, 0). If the
//     peer has not answered when [Config.Grace] is over, any life that answers is
//     adopted, and HELLO of any life is answered. The doubt also ends when no other
//     life is heard for as long as the grace again.
//  10. TAKEN(a, x, k) counts if x is this life and k an open challenge, which it
//     closes; the next one is not asked before [Config.MaxTimeout]. With another k it
//     is a reason to challenge. A former peer is refused whatever it sends.
//
// # Why it is right
//
// A life is adopted only if it is alive, or was until a moment ago, because only
// a life that received k can answer k, and k was asked after the last adoption.
// So each life adopted was alive later than the adoption of the one before it;
// lives of a node do not overlap; so it is the same one, or a later one. Hence a
// session adopts each life at most once and never goes back, and neither does
// the next life of the session's own process, whose challenges are later still.
//
// Therefore each stream (a, b) is begun at most once at either end, each number
// in it stands for one content, and the receiver takes the numbers one by one:
// what b delivers from a is, without gap or repetition, the beginning of what a
// sent to b; nothing of an older life comes after something of a newer one; and
// what is acknowledged was delivered.
//
// Nothing in a frame can be spared, which the tests show one by one. Without b
// in DATA a new process would take what was meant for its predecessor. Without
// a in DATA it would take what an old process of the peer sent. Without the
// challenge, or without k in its answer, an old frame would bring back a dead
// life, and all that it sent with it. Without a in the answer, one to
// our predecessor would do.
//
// Progress: a frame is repeated until it is acknowledged, and a session without
// a peer repeats its challenge. Where one end has adopted a life that is gone,
// or the other end has, every message that an end sends causes a challenge (rule
// 4). While neither end has a message, nothing is sent.
//
// The end: two sessions that close at once are Gray's two generals, neither of which
// can know that the other knows. A session whose FIN is acknowledged may go, because
// the peer has the FIN and waits no longer than rule 8 says. A session that has the
// peer's FIN and has followed rule 8 may go, too, because then the peer knows, unless
// the network has lost the acknowledgement 13 times in a row. In that case, if the
// peer has closed too, the peer repeats its FIN in vain. It also does so if it has
// adopted a life that has left by rule 8 without adopting the peer.
//
// The challenge guards against old frames, not against forgery: a process that can
// send in the name of the peer's node on the link can send anything.
//
// # Two lives at once
//
// TAKEN(a, x, k) with k open proves that another life of the node was alive after
// this one began. It is sent when the present peer has answered a challenge that was
// asked after HELLO(x, k) had arrived. On the proof of an older answer, or without
// any, it would end a life whose predecessor has just died. Without k, a late copy
// would end a life that has become the peer since. A former peer needs no proof: its
// successor was adopted while it lived.
//
// It does not matter whether x has met a or ever will. A process that was stopped
// while the others continued without it, and that then sends anything to any of
// them, is challenged, answers, is told to ask, and is refused.
//
// A life that answers within the grace is not replaced. A life that does not answer,
// is replaced and goes on later is a former peer. The same life does not adopt it
// again, because the streams between the two have begun before. A session remembers
// its last 256 former peers.
//
// Without the second half of rule 9, that HELLO of any life is answered once the
// grace is over, two lives that each have a dead peer would wait for each other's
// answer. That happens only where two lives of a node were alive at once.
//
// # Acknowledgements
//
// One is sent by itself only after [Config.AckDelay], in the hope of a message
// to travel with, and at once in four cases: after a repeated frame, whose
// sender lacks it; after a hole was filled, whose sender is waiting to repair the
// next; after a quarter of a window, before the sender has to stop; and after a FIN
// or an acknowledgement of ours.
//
// The first frame that comes too early causes a GAP at once. It travels alone,
// even beside DATA, because an ack in DATA does not tell a gap from a frame that is
// merely not acknowledged yet. So a lost frame that a later one follows costs one
// round trip, and only the last frames of a burst wait for the timeout. On a
// network that reorders frames some GAPs are false alarms, hence the limit in rule 6.
//
// # Timeouts
//
// A frame that was sent twice tells nothing about the round trip, because its
// acknowledgement may be for either sending. Karn and Partridge, "Improving
// Round-Trip Time Estimates in Reliable Transport Protocols", SIGCOMM 1987,
// therefore keep the timeout long until a frame that was sent once is
// acknowledged, which never happens on a network that loses every first sending.
// Here any acknowledgement of something new makes the timeout short again, unless
// the peer says that the repetition was needless: it acknowledges a repeated frame
// at once, so a second ACK with nothing new means that the first sending had
// arrived. Then the round trip is longer than the timeout was, and their rule holds.
package session

import (
	"errors"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/msgp"
)

// The errors of [Session.Send], which then has changed nothing.
var (
	// ErrFull: Config.Buffer is used up until the peer acknowledges more.
	ErrFull = errors.New("session: send buffer is full")

	// ErrTooLarge: the message does not fit into a frame; see [Session.MaxMessage].
	ErrTooLarge = errors.New("session: message does not fit into a frame")

	// ErrClosed: Close was called, or the peer has closed its side.
	ErrClosed = errors.New("session: closed")
)

// ErrGroup is the error of [Session.Handle] for a peer whose Config.Group differs from
// ours. It is a [dmutex.ErrPeer]. See [Session.OtherGroup].
var ErrGroup error = errGroup

// An Event is a change of the peer as a whole that a frame has shown.
type Event uint8

// The events.
const (
	Met       Event = iota + 1 // the first incarnation of the peer was adopted
	Restarted                  // another incarnation was adopted: all unacknowledged messages are dropped, and the peer has forgotten everything
	Left                       // the peer has closed its side; this comes with or after all its messages
	Taken                      // the peer has a session with another life of our node, which has answered the peer since this life asked
)

// String returns met, restarted, left or taken, and none for 0.
func (e Event) String() string {
	switch e {
	case Met:
		return "met"
	case Restarted:
		return "restarted"
	case Left:
		return "left"
	case Taken:
		return "taken"
	default:
		return "none"
	}
}

// Input is what a frame brought.
type Input struct {
	// Messages of the peer, in the order in which it sent them. They are parts
	// of the frame and of the session, valid until the next call of Handle or
	// until the frame is overwritten.
	Messages [][]byte

	// Event is 0 if nothing happened.
	Event Event
}

// Stats counts what a session had to do. Durations are in nanoseconds.
type Stats struct {
	RoundTrip  int64  // smoothed; 0 until one was measured
	Timeout    int64  // how long a frame now waits for its acknowledgement before it is sent again
	InFlight   int    // DATA frames sent and not acknowledged
	Resent     uint64 // DATA frames sent again
	Again      uint64 // messages in the last of them, the oldest that are not acknowledged
	Repeated   uint64 // DATA frames received again
	Early      uint64 // DATA frames that arrived before their turn
	Strays     uint64 // frames from or to other incarnations
	Challenges uint64 // HELLO frames sent
}

// A Session is one end of the conversation with one peer. It is not safe for
// concurrent use. The package comment says how it works.
//
// Time enters as nanoseconds on any scale that never goes back. After every
// input (Send, Handle, Close), and at [Session.Deadline], the driver calls
// [Session.Transmit] until it returns nothing, and gives each frame to the link
// before it calls again; whether the frame arrives does not matter.
type Session struct {
	cfg   Config
	peer  uint64 // the adopted incarnation
	stats Stats

	otherGroup uint64 // of the last HELLO that was refused for it

	// Challenge and answer.
	nonce      uint64 // of the present or last challenge
	floor      uint64 // answers to challenges up to this one no longer count; below nonce while a challenge is open
	hellos     int    // HELLOs that the present challenge took
	helloSent  int64  // when the last was sent
	helloAt    int64  // when the next is due
	helloAfter int64  // when the next may be sent at the earliest
	answer     struct{ to, nonce uint64 }
	answered   bool // an answer was given, so somebody may have adopted us

	// Other lives of the peer's node.
	rival      uint64                       // was heard, and casts doubt on the peer; 0 if none did
	rivalAsked uint64                       // its first challenge that we got; 0 if we got none
	rivalNonce uint64                       // our first challenge since then
	graceEnd   int64                        // until when the peer has time to answer
	doubtEnd   int64                        // when the doubt ends if no other life is heard until then
	knock      struct{ from, nonce uint64 } // the last HELLO that was not answered
	refusal    struct{ to, nonce uint64 }   // the TAKEN that is due; to 0 if none is
	former     []uint64                     // the last peers, oldest first

	// Sending. out holds the unacknowledged messages: those of the frames in
	// flight and then those that wait for a frame.
	out      []byte
	start    int         // of the unacknowledged part of out
	flying   int         // bytes of it that are in flight
	flight   []sentFrame // by seq modulo Window: frames base to next-1
	base     uint64      // the oldest frame that is not acknowledged
	next     uint64      // the next frame to be sent
	sent     uint64      // messages accepted
	acked    uint64      // messages acknowledged
	closed   bool        // Close was called
	finSeq   uint64      // of our FIN; 0 while it was not sent
	resendAt int64       // when the oldest frame is sent again
	repair   bool        // that is because of an acknowledgement, not of a timeout
	resentAt int64       // when a frame was last sent again to this peer
	behind   uint64      // frames below this were in flight at the last timeout
	backoff  int         // how often the timeout was doubled
	trip     int64       // round trip, smoothed; 0 if not yet measured
	jitter   int64       // mean deviation of it
	kept     int         // what backoff was before the last acknowledgement, if that was of a frame sent again
	handed   bool        // the last Transmit returned a frame, which the link may not have yet

	// Receiving.
	expect       uint64       // the next frame to be delivered
	heard        uint64       // messages delivered
	heardAtClose uint64       // those of them that came before Close: later ones can no longer be answered
	left         bool         // the peer's FIN was delivered
	repeats      int          // how often it will be told so again, or a HELLO is worth waiting for while there is no peer
	settled      bool         // it does not need to be: it has our FIN, or has said that it knows
	early        []earlyFrame // by seq modulo Window: frames after expect; nil until one came
	ahead        int          // frames in early
	held         int          // bytes in early
	debt         int          // frames delivered and not acknowledged
	ackAt        int64        // when an acknowledgement is due
	in           [][]byte
}

// sentFrame is what must be remembered of a frame besides its messages.
type sentFrame struct {
	size   int // of its messages
	count  int // of its messages
	sentAt int64
	again  bool // it was sent more than once
}

// earlyFrame is a frame that arrived before its turn.
type earlyFrame struct {
	seq   uint64 // 0 if there is none
	fin   bool
	heard uint64
	count int
	body  []byte
}

// New returns a session that has not met its peer. It refuses an invalid Config with
// [dmutex.ErrMisuse].
func New(cfg Config) (*Session, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	s := &Session{
		cfg:        cfg,
		nonce:      1,
		helloAt:    always,
		helloAfter: always,
		flight:     make([]sentFrame, cfg.Window),
		base:       1,
		next:       1,
		expect:     1,
		resendAt:   never,
		resentAt:   always,
		ackAt:      never,
	}
	return s, nil
}

// Send accepts a message, which is copied. It will be delivered once and in
// order, unless the peer restarts or leaves. A message sent before the peer
// was met waits until then.
//
// The error is [ErrFull], [ErrTooLarge] or [ErrClosed], or [dmutex.ErrMisuse]
// for an empty message. After an error nothing has changed.
func (s *Session) Send(_ int64, message []byte) error {
	switch {
	case s.closed || s.left:
		return ErrClosed
	case len(message) == 0:
		return errNothing
	case len(message) > s.MaxMessage():
		return ErrTooLarge
	case s.Backlog()+len(message)+msgp.MaxHead > s.cfg.Buffer:
		return ErrFull
	}
	// Rather than grow, move down what is at most half: that pays for itself.
	if unused := s.start; unused > 0 && unused >= s.Backlog() && len(s.out)+len(message)+msgp.MaxHead > cap(s.out) {
		s.out = s.out[:copy(s.out, s.out[unused:])]
		s.start = 0
	}
	s.out = msgp.AppendBin(s.out, message)
	s.sent++
	return nil
}

var errNothing = dmutex.Misuse("session: the message is empty")

// MaxMessage is the size of the largest message that Send takes, in bytes.
func (s *Session) MaxMessage() int { return s.cfg.MaxFrame - Overhead }

// Close ends our side after all that was sent. The peer will see Left.
// Closing again does nothing.
func (s *Session) Close(_ int64) {
	if !s.closed {
		s.closed, s.heardAtClose = true, s.heard
	}
}

// Done reports whether there is nothing left to do after Close. That is so if
// the peer has everything; or if the peer has left, and knows that we know it,
// or cannot be told; or if the peer was never met, does not answer, and nothing
// was sent to it.
//
// A frame that Transmit returned counts as not sent until Transmit is called
// again. So a driver that gives each frame to the link before it asks for the next
// may close the link as soon as Done reports true: the last frame is sent.
func (s *Session) Done() bool {
	switch {
	case !s.closed || s.handed || s.answer.to != 0 || s.refusal.to != 0 || s.ackAt != never:
		return false
	case s.peer == 0:
		return s.Backlog() == 0 && (!s.answered || s.repeats == 0)
	default:
		return s.left || s.settled
	}
}

// Peer returns the incarnation of the peer, or 0 if the session never met one.
func (s *Session) Peer() uint64 { return s.peer }

// OtherGroup returns the Config.Group that Handle refused last with [ErrGroup],
// and 0 if it never did.
func (s *Session) OtherGroup() uint64 { return s.otherGroup }

// Backlog returns the size in bytes of the messages that were accepted and are
// not yet acknowledged, counting 2 to 5 bytes more for each.
func (s *Session) Backlog() int { return len(s.out) - s.start }

// Sent returns how many messages Send has accepted for the present incarnation
// of the peer; those before it was met count for the first.
func (s *Session) Sent() uint64 { return s.sent }

// Acked returns how many of them the peer has acknowledged: once Acked is at
// least what Sent was after a Send, that message was delivered. Restarted sets
// both back to 0. After Left, Acked is the number of messages that the peer had
// received when it closed: it could not answer later ones.
func (s *Session) Acked() uint64 { return s.acked }

// Stats returns what the session has had to do so far.
func (s *Session) Stats() Stats {
	stats := s.stats
	stats.RoundTrip = s.trip
	stats.Timeout = s.timeout()
	stats.InFlight = int(s.next - s.base)
	return stats
}

// Handle takes a frame from the peer's node. The error is [dmutex.ErrPeer] if
// no correct peer of our group sends such a frame; then nothing has changed.
func (s *Session) Handle(now int64, frame []byte) (Input, error) {
	f, err := s.parse(frame)
	if err != nil {
		return Input{}, err
	}
	clear(s.in)
	if s.in = s.in[:0]; cap(s.in) > keepMessages {
		s.in = nil
	}
	var event Event
	switch {
	case f.kind == taken:
		event = s.onTaken(now, &f)
	case slices.Contains(s.former, f.from):
		s.stats.Strays++
		s.refuse(&f)
	case f.kind == hello:
		s.onHello(now, &f)
	case f.kind == helloAck:
		event = s.onHelloAck(now, &f)
	case !s.pair(&f):
		s.stats.Strays++
		s.doubt(now, f.from, 0)
	case f.kind == ack:
		s.onSecondAck(f.ack)
		s.onAck(now, f.ack)
	case f.kind == gap:
		s.onAck(now, f.ack)
		s.onGap(now, f.ack)
	case f.kind == bye:
		s.onAck(now, f.ack)
		s.settled, s.ackAt = true, never
	default:
		s.onAck(now, f.ack)
		event = s.onData(now, &f)
	}
	return Input{Messages: s.in, Event: event}, nil
}

// onAck forgets what the peer has. An acknowledgement of something new proves
// that the peer hears us.
func (s *Session) onAck(now int64, seq uint64) {
	if s.finSeq != 0 && seq >= s.finSeq {
		s.settled, s.ackAt = true, now // which is a BYE
	}
	if seq < s.base {
		return
	}
	if s.inFlight(s.base).again { // no other is, for only the oldest is sent again
		s.kept = s.backoff
	} else {
		s.kept = 0
		s.measure(now - s.inFlight(seq).sentAt)
	}
	s.backoff = 0
	for ; s.base <= seq; s.base++ {
		f := s.inFlight(s.base)
		s.start += f.size
		s.flying -= f.size
		s.acked += uint64(f.count)
	}
	s.trim()
	switch {
	case s.base == s.next:
		s.resendAt, s.repair = never, false
	case s.base < s.behind:
		// The rest of what was in flight at the timeout is probably lost too.
		s.resendAt, s.repair = now, true
	default:
		s.resendAt, s.repair = now+s.timeout(), false
	}
}

// onSecondAck makes the timeout long again if the peer got both sendings of the
// frame that it acknowledged last.
func (s *Session) onSecondAck(seq uint64) {
	if seq == s.base-1 {
		s.backoff, s.kept = max(s.backoff, s.kept), 0
	}
}

// onGap sends the oldest frame again: the peer has later ones. If it was sent again
// less than a round trip ago, the GAP may be older than its arrival.
func (s *Session) onGap(now int64, seq uint64) {
	if seq != s.base-1 || s.base == s.next {
		return
	}
	s.backoff = 0
	pause := s.trip
	if pause == 0 {
		pause = s.timeout()
	}
	calm := s.resentAt + pause
	if s.inFlight(s.base).again && now < calm {
		return
	}
	if calm < s.resendAt {
		s.resendAt, s.repair = calm, true
	}
}

// onData delivers a frame, and those after it that came too early.
func (s *Session) onData(now int64, f *frame) (event Event) {
	switch {
	case f.seq < s.expect:
		// Our acknowledgement was lost, or is late.
		s.stats.Repeated++
		if s.settled {
			return 0
		}
		s.ackAt = now
		if s.left {
			s.linger()
		}
		return 0
	case f.seq > s.expect:
		s.stats.Early++
		if s.keepEarly(f) && s.ahead == 1 && !s.settled {
			s.ackAt = now // which is a GAP; later frames would only repeat it
		}
		return 0
	}
	hole := s.ahead > 0
	s.deliver(f.count, f.body)
	s.end(f.kind == fin, f.heard)
	for s.ahead > 0 && !s.left {
		e := s.earlyAt(s.expect)
		if e.seq != s.expect {
			break
		}
		e.seq = 0
		s.ahead--
		s.held -= len(e.body)
		s.deliver(e.count, e.body)
		s.end(e.fin, e.heard)
		if cap(e.body) > keep/len(s.early) {
			e.body = nil
		}
	}
	if s.left {
		// Nobody will read what we have not got across, and its place is free.
		s.rival = 0
		s.drop()
		s.forgetEarly()
		s.linger()
		event = Left
	}
	if hole || s.left || s.debt > s.cfg.Window/4 {
		s.ackAt = now
	} else {
		s.ackAt = min(s.ackAt, now+s.cfg.AckDelay)
	}
	return event
}

// deliver adds a frame's messages to the input.
func (s *Session) deliver(count int, body []byte) {
	r := msgp.NewReader(body)
	for range count {
		s.in = append(s.in, r.Bin(len(body)))
	}
	s.expect++
	s.debt++
	s.heard += uint64(count)
}

// end ends the peer's side, if the frame just delivered was its FIN. What it
// acknowledged after its Close, nobody has heard.
func (s *Session) end(fin bool, heard uint64) {
	if fin {
		s.left, s.acked = true, heard
	}
}

// linger begins to repeat, to a peer that was there a moment ago and may wait for
// us, our challenge if we have not met it, or the acknowledgement of its end.
func (s *Session) linger() { s.repeats, s.backoff = patience, 0 }

// keepEarly keeps a frame for later if there is room, and reports whether it was
// new; if there is none the frame will be sent again.
func (s *Session) keepEarly(f *frame) bool {
	if f.seq-s.expect >= uint64(s.cfg.Window) || s.held+len(f.body) > s.cfg.Buffer {
		return false
	}
	if s.early == nil {
		s.early = make([]earlyFrame, s.cfg.Window)
	}
	e := s.earlyAt(f.seq)
	if e.seq == f.seq {
		return false
	}
	e.seq, e.fin, e.heard, e.count = f.seq, f.kind == fin, f.heard, f.count
	e.body = append(e.body[:0], f.body...)
	s.ahead++
	s.held += len(f.body)
	return true
}

func (s *Session) earlyAt(seq uint64) *earlyFrame {
	return &s.early[seq%uint64(s.cfg.Window)]
}

// forgetEarly drops the frames that came before their turn.
func (s *Session) forgetEarly() {
	s.early, s.ahead, s.held = nil, 0, 0
}
