// Package stream makes a link reliable: between two nodes it delivers every message once and in
// order, over a network that loses, repeats, reorders and delays frames arbitrarily; and it reports
// when a new process has replaced the one at the other end.
//
// # The protocol
//
// A life is one run of a process, which remembers nothing of former ones. The lives of
// one node are ordered by their numbers. Frames of former lives may still be in flight.
// Here a is our life, b that of the peer (0 before the first), x that of any sender:
//
//	Send:            queue the message, or refuse it if Buffer is used up
//	time, b = 0:     HELLO(a,0), with exponential back-off
//	time, b > 0:     after a timeout go back to the first unacknowledged message, and send
//	                 one frame, with exponential back-off, until something is acknowledged
//	HELLO(b,0):      HELLO(a,b)
//	HELLO(b,a):      b is alive: if a higher life x waits, REFUSED(a,x,1)
//	any of b to y:   y is another life of ours: HELLO(a,b)
//	any of x < b:    REFUSED(1,x,b)
//	any of x > b:    if b may be alive: HELLO(a,0) asks it, and a moment later HELLO(a,x)
//	                 else if it is to a: b = x, both directions begin with 1, HELLO(a,x)
//	                 else HELLO(a,x)
//	DATA(b,a,n,ack): n is next: deliver. n was delivered: ACK. n is too early: drop, GAP
//	ACK(b,a,ack):    forget all messages up to ack
//	GAP(b,a,ack):    the same, and go back to ack+1, at most once in a round trip
//	any of x:        an error, if Config.Peer is another life
//	REFUSED(x,a,y):  tell the driver, unless y < a and either x < b or x = b has talked with a
//
// FIN is the last DATA. Its end has a number, too, one above the last message, and is
// acknowledged like one. BYE is an ACK of an end whose own FIN is acknowledged.
//
// # Why it is right
//
// b only rises, and so does the life of our own process. So each direction between two lives begins at most once at
// either end, a number of it stands for one message for good, and the receiver takes the numbers one by one. Hence what
// b delivers from a is, without gap or repetition, the beginning of what a sent to b; nothing of an older life comes
// after something of a newer one; and what is acknowledged was delivered. Without a and b in DATA and ACK, or if
// "different" meant "newer", old frames would break this, which the tests show one by one.
//
// That a higher life was met stays true, so REFUSED with a higher life is true however late it
// arrives, and no frame needs a nonce. A life is adopted by a frame to a only, so an old frame to
// our predecessor brings back no life that is dead.
//
// # Two processes with one number
//
// The later one has the higher life, and might replace a process that is well. So b is asked first,
// several times in 250 ms or two round trips because the question may be lost, unless it has left, or has acknowledged
// nothing for as long, or has answered less than that ago. If b answers, the driver of x learns that
// its number is taken, and x asks again after 2 s. If not, x replaces it, and the first peer that b
// then speaks to tells it of x. A late answer of b, or a copy of one, can refuse x although b is
// dead, so the driver of x gives up only when it was refused for some time.
//
// The lives guard against old frames, not against forgery. But a life above [Stream.SetMaxLife] is refused, so no
// number can be locked out for good. REFUSED may go to a stranger, so it tells one of a and b, and 1 stands for the
// other: a lower x must exceed b, and a higher one needs a, to see whether the word is out of date.
//
// # Go-back-N
//
// TCP and NATS keep the order of frames, and lose many together or none. So frames that come too early are not kept:
// the sender sends everything again, in full frames. GAP is sent once for a hole, and again if a frame was lost again.
// An ack in DATA does not tell a hole, so GAP travels alone.
//
// An acknowledgement waits for a message to travel with: up to 20 ms, or 5 ms after a PUSH, whose
// sender waits for it. It is sent at once after a repeated frame, after a hole was filled, after a
// FIN, and after a large frame, because the sender of many may have to stop.
//
// The timeout is one and a half times the smoothed round trip. A message that was sent twice is not
// measured. But if an ACK then brings nothing new, the first sending had arrived, and the round trip
// is as long as this ACK took.
//
// # The end
//
// Two streams that close at once are Gray's two generals: neither can know that the other knows. A
// stream whose FIN is acknowledged may go. One that has the peer's FIN repeats its acknowledgement,
// at growing intervals, until BYE answers, or it was repeated 12 times since the peer was heard.
// Then it may go, too: the peer knows, unless the network has lost 13 frames in a row.
package stream

import (
	"errors"
	"math"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/internal/timers"
)

// Config configures a stream. Life, MaxLife, MaxFrame and Versions must be set.
type Config struct {
	// Life is the number of this run of the process: above 1, and higher than those of all former
	// runs with the number of its node. A second stream with the same peer needs a higher one.
	Life uint64

	// Peer is the only life of the peer that is met, if the driver knows it, and 0 for any. So a
	// process of another group is not taken for the peer.
	Peer uint64

	MaxLife  uint64 // the highest life that is believed, see [Stream.SetMaxLife]
	MaxFrame int    // the size of the largest frame that the link takes, in bytes, at least 64 and the length of Settings

	// A peer is refused that speaks none of the Versions, or has other Settings, which have at
	// most MaxSettings bytes.
	Versions protocol.Versions
	Settings string
}

const (
	// MaxSettings bounds Config.Settings, in bytes.
	MaxSettings = 4096

	// Buffer bounds the messages that were accepted and not yet acknowledged, in bytes.
	Buffer = 4 << 20

	millisecond  = 1_000_000
	largeFrame   = 16 << 10          // bytes, above which a frame is acknowledged at once
	firstTimeout = 200 * millisecond // until a round trip was measured
	patience     = 12                // how often the acknowledgement of a FIN is repeated, twice after each timeout
	keep         = 64 << 10          // bytes of an empty buffer that is kept, at most
	keepMessages = 4 << 10           // the same for a list, in messages

	always = math.MinInt64
)

// What a stream does by time alone.
const (
	toHello   = iota // send HELLO(a,0)
	toAnswer         // send the answer to a life
	toResend         // go back, unless something is acknowledged
	toAck            // acknowledge
	toReplace        // let the rival replace the peer, which has not answered
)

// A pace is what the tests change, in nanoseconds. ackDelay is several ticks of an operating
// system's clock, because parking with a nearer timer costs microseconds in a virtual machine.
type pace struct {
	window     int   // bytes of messages that may be in flight, rounded up to a frame: as many as the link can queue at once
	ackDelay   int64 // how long an acknowledgement waits for a message to travel with
	pushDelay  int64 // the same for a PUSH: it gives an answer time that takes more than one hop
	minTimeout int64 // the bounds of the time until unacknowledged messages are sent again; this one is well above
	maxTimeout int64 // ackDelay, and also the least time between two answers to strangers
	grace      int64 // how long a peer has to answer before a higher life replaces it
	trips      int64 // and for how many round trips, if that is longer
}

var defaultPace = pace{
	window: 256 << 10, ackDelay: 20 * millisecond, pushDelay: 5 * millisecond,
	minTimeout: 50 * millisecond, maxTimeout: 2000 * millisecond, grace: 250 * millisecond, trips: 2,
}

// The errors of [Stream.Send], which then has changed nothing.
var (
	// ErrFull: [Buffer] is used up until the peer acknowledges more.
	ErrFull = errors.New("stream: send buffer is full")

	// ErrTooLarge: the message and [Overhead] do not fit into a frame.
	ErrTooLarge = errors.New("stream: message does not fit into a frame")

	// ErrClosed: Close was called, or the peer has closed its side.
	ErrClosed = errors.New("stream: closed")
)

// ErrBroken is the [dmutex.ErrPeer] of [Stream.Handle] for a peer whose acknowledgements have all been
// of what was never sent, for some seconds, while something waited for them. Somebody has forged a frame in our name: the peer is ahead,
// takes our messages for repeats, and cannot be acknowledged. Only another life of either mends that.
var ErrBroken = dmutex.PeerMistake("for some seconds it has acknowledged only what was never sent: another process has sent frames in this node's name, so the two cannot talk until one of them restarts")

// ErrOther is the [dmutex.ErrPeer] of [Stream.Handle] for a frame of another life than Config.Peer.
var ErrOther = dmutex.PeerMistake("it comes from another process than the member of that number. It may be a member that has just begun; if this goes on, another group uses this network: give each group addresses of its own, and over NATS a Config.Prefix of its own")

// A GroupError is the [dmutex.ErrPeer] of [Stream.Handle] for a peer with other Config.Settings
// or without a common version: these are the peer's. It is told ours, so that it reports the same.
type GroupError struct {
	Versions protocol.Versions
	Settings string
}

func (GroupError) Error() string {
	return dmutex.ErrPeer.Error() + ": it has other settings, or speaks other versions of the protocol"
}

// Unwrap returns [dmutex.ErrPeer].
func (GroupError) Unwrap() error { return dmutex.ErrPeer }

// Input is what a frame brought.
type Input struct {
	// Met is a higher life of the peer that was adopted: what was not acknowledged to its former
	// life is dropped. 0 if there is none.
	Met uint64

	// Messages of the peer, in order. They are parts of the frame and of the stream,
	// valid until the next call of Handle or until the frame is overwritten.
	Messages [][]byte
	Seq      uint64 // the number of the first of them, from 1

	Left bool // the peer has closed its side, behind all its messages

	// Taken tells of another life of our node with which the peer has a stream, 0 if none. If it is
	// higher than ours, it has replaced us: that stays true. If that is lower, Taken is some lower
	// life, and the peer may still adopt ours when that has ended.
	Taken uint64
}

// Stats counts what a stream had to do. Durations are in nanoseconds.
type Stats struct {
	RoundTrip int64  // smoothed; 0 until one was measured
	Resent    uint64 // DATA frames sent again
	Repeated  uint64 // DATA frames received again
}

// A Stream is one end of the connection with one peer. It is pure, and not safe for concurrent
// use. Time enters as nanoseconds on any scale that never goes back. After every input, and at
// [Stream.Deadline], the driver calls [Stream.Transmit] until it returns nothing, and gives each
// frame to the link before it calls again; whether the frame arrives does not matter.
type Stream struct {
	cfg   Config
	pace  pace
	stats Stats
	at    timers.Table

	// Who is there.
	peer       uint64 // the life of the peer; 0 before the first
	rival      rival
	answer     answer
	answeredAt int64 // when the last answer was sent

	// The messages that are not acknowledged are out[start:], each with its head. They have the
	// numbers acked+1 to sent; those below next are in flight.
	out    []byte
	start  int
	sent   uint64
	pushed uint64 // up to this message the frames are PUSH
	closed bool
	in     [][]byte
	conversation
}

// A conversation is what our life and the peer have said to each other so far.
type conversation struct {
	// To the peer.
	flying     int // bytes in flight
	acked      uint64
	next       uint64
	wentBackAt int64 // when we last went back; always if fresh messages were acknowledged since
	again      int   // how often we went back since the peer has acknowledged something, but for the first time
	backoff    int   // how often the timeout was doubled; -1 if a GAP, not a timeout, is why to go back
	timed      timed

	// From the peer.
	heard   uint64 // messages delivered
	left    bool   // the peer's FIN was delivered
	early   uint64 // the last frame that came too early; 0 if there is no hole
	repeats int    // how often that of a FIN will be repeated; told if it need not be
	stray   stray
}

var unused = conversation{next: 1, wentBackAt: always, timed: timed{1, always}}

// A rival is a life of the peer's node that is higher than the peer. While toReplace is set, the peer
// may answer. If it does, there is no rival any more, and the peer is not asked again before until. If
// it does not, the rival may replace it before until.
type rival struct {
	life  uint64 // 0 if there is none
	until int64
}

// An answer is a HELLO or REFUSED to a life.
type answer struct {
	to    uint64 // 0 if no answer is due
	other uint64 // the life of REFUSED; 0 for HELLO
}

// timed is the message whose round trip is measured.
type timed struct {
	seq uint64 // it was never sent before
	at  int64  // when it was sent; always if it was not yet
}

// A stray is an acknowledgement of what was never sent. One alone may be forged.
type stray struct {
	count int   // since the last acknowledgement that can be, at most enough
	since int64 // when the first of them came
	lasts bool  // the stream is broken
}

const (
	told   = -1
	enough = 3
)

// New returns a stream that has not met its peer.
func New(cfg Config) *Stream {
	s := &Stream{cfg: cfg, pace: defaultPace, at: timers.New(), answeredAt: always, conversation: unused}
	s.at[toHello] = always
	return s
}

// SetMaxLife changes the highest life that is believed, which begins at a clock that goes on. Without
// a bound, one high life could keep all others of the peer's node out.
func (s *Stream) SetMaxLife(life uint64) { s.cfg.MaxLife = life }

// Send accepts a message, which is copied. It will be delivered once and in order, unless
// the peer restarts or leaves; before the peer was met it waits. The error is [ErrFull],
// [ErrTooLarge] or [ErrClosed], or [dmutex.ErrMisuse] for an empty message.
func (s *Stream) Send(message []byte) error {
	switch {
	case s.closed || s.left:
		return ErrClosed
	case len(message) == 0:
		return dmutex.Misuse("stream: the message is empty")
	case len(message) > s.cfg.MaxFrame-Overhead:
		return ErrTooLarge
	case s.Backlog()+len(message)+maxHead > Buffer:
		return ErrFull
	}
	if need := len(message) + maxHead; len(s.out)+need > cap(s.out) {
		out := s.out[:0] // rather than grow, move down what is at most half: that pays for itself
		if s.start == 0 || s.start < s.Backlog() {
			out = make([]byte, 0, s.Backlog()+max(s.Backlog(), need)) // append would grow by less, and copy a long backlog more often
		}
		s.out, s.start = append(out, s.out[s.start:]...), 0
	}
	s.out = appendBin(s.out, message)
	s.sent++
	return nil
}

// Close ends our side after all that was sent. The peer will see Left. Closing again does nothing.
func (s *Stream) Close() { s.closed = true }

// Done reports whether there is nothing left to do after Close: the peer has everything;
// or it has left, and knows that we know it, or cannot be told; or it was never met and
// nothing was sent to it. Frames that Transmit has returned count as sent.
func (s *Stream) Done() bool {
	switch {
	case !s.closed || s.at[toAck] != due.Never:
		return false
	case s.peer == 0:
		return s.Backlog() == 0
	default:
		return s.left || s.over()
	}
}

// Peer returns the life of the peer, or 0 if the stream never met one.
func (s *Stream) Peer() uint64 { return s.peer }

// Backlog returns the size in bytes of the messages that were accepted and are
// not yet acknowledged, counting 2 to 5 bytes more for each.
func (s *Stream) Backlog() int { return len(s.out) - s.start }

// Sent returns how many messages Send has accepted for the present life of the peer;
// those before it was met count for the first.
func (s *Stream) Sent() uint64 { return s.sent }

// Push asks the peer to acknowledge soon what was sent so far and not transmitted yet.
func (s *Stream) Push() { s.pushed = s.sent }

// Acked returns how many of them the peer has acknowledged, and so delivered. Another life
// sets both back to 0.
func (s *Stream) Acked() uint64 { return min(s.acked, s.sent) }

// Broken reports whether Handle has returned [ErrBroken], and no acknowledgement of the peer was right
// since.
func (s *Stream) Broken() bool { return s.stray.lasts }

// strays takes an acknowledgement of what was never sent. It reports whether the stream is broken. While
// all that was sent is acknowledged, nothing is held up, and somebody else may have sent it.
func (s *Stream) strays(now int64) bool {
	if s.acked >= s.last() {
		return false
	}
	if s.stray.count == 0 {
		s.stray.since = now
	}
	s.stray.count = min(s.stray.count+1, enough)
	s.stray.lasts = s.stray.count == enough && now-s.stray.since >= s.pace.maxTimeout
	return s.stray.lasts
}

// Left reports whether the peer has closed its side.
func (s *Stream) Left() bool { return s.left }

// Stats returns what the stream has had to do so far.
func (s *Stream) Stats() Stats { return s.stats }

// last is the number of the last message, or of our FIN.
func (s *Stream) last() uint64 { return s.sent + one(s.closed) }

// over reports whether our FIN is acknowledged.
func (s *Stream) over() bool { return s.acked > s.sent }

// received is what we acknowledge.
func (s *Stream) received() uint64 { return s.heard + one(s.left) }

// one is the number that an end takes.
func one(end bool) uint64 {
	if end {
		return 1
	}
	return 0
}

// Handle takes a frame from the peer's node. The error is [dmutex.ErrPeer] if no correct peer of our group sends such a
// frame. Then nothing has changed, but a peer with a [GroupError] will be told ours.
func (s *Stream) Handle(now int64, b []byte) (Input, error) {
	clear(s.in)
	if s.in = s.in[:0]; cap(s.in) > keepMessages {
		s.in = nil
	}
	f, err := s.parse(b)
	if err == nil {
		return s.handle(now, &f, len(b)), nil
	}
	if err == errAck && s.strays(now) {
		err = ErrBroken
	}
	if _, ok := err.(GroupError); ok && f.to != s.cfg.Life {
		s.reply(now, f.from, 0)
	}
	return Input{}, err
}

func (s *Stream) handle(now int64, f *frame, size int) (in Input) {
	switch {
	case f.kind == refused:
		in.Taken = s.onRefused(now, f)
	case f.from != s.peer:
		in.Met = s.onStranger(now, f)
	case f.kind == hello || f.to != s.cfg.Life:
		s.onHello(now, f)
	case f.kind == data || f.kind == fin:
		s.onAck(now, f.ack)
		return s.onData(now, f, size)
	case f.kind == gap:
		s.onAck(now, f.ack)
		s.onGap(now, f.ack)
	case f.kind == bye:
		s.onAck(now, f.ack)
		s.repeats, s.at[toAck] = told, due.Never
	default:
		s.onSecondAck(now, f.ack)
		if s.onAck(now, f.ack); s.over() {
			s.at[toAck] = now // BYE is lost, or was not sent yet
		}
	}
	return in
}
