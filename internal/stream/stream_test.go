package stream

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/protocol"
)

const settings = "settings"

func greeting(from, to uint64, settings string) []byte {
	return join([]uint64{uint64(hello), 1, 1, from, to}, appendBin(nil, []byte(settings)))
}

func newSession(t testing.TB, life uint64, change ...func(*Stream)) *Stream {
	t.Helper()
	s := New(Config{Life: life, MaxLife: math.MaxUint64, Versions: protocol.Spoken, Settings: settings, MaxFrame: 1024})
	for _, f := range change {
		f(s)
	}
	return s
}

// flush returns all frames that are due.
func flush(s *Stream, now int64) (frames [][]byte) {
	for {
		frame := s.Transmit(now, nil)
		if len(frame) == 0 {
			return frames
		}
		frames = append(frames, frame)
	}
}

// A pair is two streams joined by a network that loses nothing.
type pair struct {
	t    testing.TB
	a, b *Stream
	now  int64
	got  map[*Stream][]string
	seen map[*Stream][]event
}

func newPair(t testing.TB, change ...func(*Stream)) *pair {
	return &pair{
		t:    t,
		a:    newSession(t, 11, change...),
		b:    newSession(t, 22, change...),
		got:  make(map[*Stream][]string),
		seen: make(map[*Stream][]event),
	}
}

// An event is what a frame brought beside messages.
type event string

const met, left, taken event = "met", "left", "taken"

// carry delivers one frame and notes what it brought.
func (p *pair) carry(to *Stream, frame []byte) {
	p.t.Helper()
	in, err := to.Handle(p.now, frame)
	require.NoError(p.t, err)
	for _, m := range in.Messages {
		p.got[to] = append(p.got[to], string(m))
	}
	note := func(e event, seen bool) {
		if seen {
			p.seen[to] = append(p.seen[to], e)
		}
	}
	note(met, in.Met != 0)
	note(left, in.Left)
	note(taken, in.Taken != 0)
}

// settle lets frames flow until there are none.
func (p *pair) settle() {
	p.t.Helper()
	for {
		fromA, fromB := flush(p.a, p.now), flush(p.b, p.now)
		if len(fromA)+len(fromB) == 0 {
			return
		}
		for _, f := range fromA {
			p.carry(p.b, f)
		}
		for _, f := range fromB {
			p.carry(p.a, f)
		}
	}
}

// wait lets time pass until the next deadline.
func (p *pair) wait() {
	p.t.Helper()
	next := min(p.a.Deadline(), p.b.Deadline())
	require.Less(p.t, next, int64(math.MaxInt64), "nothing will ever happen")
	p.now = max(p.now, next)
	p.settle()
}

func (p *pair) send(s *Stream, message string) {
	p.t.Helper()
	require.NoError(p.t, s.Send([]byte(message)))
}

func TestFirstMeeting(t *testing.T) {
	p := newPair(t)
	p.send(p.a, "early")
	p.settle()
	require.Equal(t, []event{met}, p.seen[p.a])
	require.Equal(t, []event{met}, p.seen[p.b])
	require.EqualValues(t, 22, p.a.Peer())
	require.Equal(t, []string{"early"}, p.got[p.b])

	p.send(p.b, "answer")
	p.settle()
	require.Equal(t, []string{"answer"}, p.got[p.a])
	require.EqualValues(t, 1, p.a.Acked(), "the acknowledgement travels with the answer")
	require.EqualValues(t, 0, p.b.Acked())
	p.wait()
	require.EqualValues(t, 1, p.b.Acked(), "and else by itself, a little later")
	require.Equal(t, int64(math.MaxInt64), p.a.Deadline())
	require.Equal(t, int64(math.MaxInt64), p.b.Deadline())
}

// LESSONS L68: a peer that restarts is another peer: messages for its former life do not
// reach the new one.
func TestRestart(t *testing.T) {
	p := newPair(t)
	p.send(p.a, "one")
	p.settle()
	p.send(p.a, "lost with the peer")

	p.b = newSession(t, 33)
	p.settle()
	died := p.now
	for len(p.seen[p.a]) < 2 {
		p.wait()
	}
	require.GreaterOrEqual(t, p.now-died, defaultPace.grace)
	require.LessOrEqual(t, p.now-died, defaultPace.grace+defaultPace.minTimeout)
	require.Equal(t, []event{met, met}, p.seen[p.a])
	require.Equal(t, []event{met}, p.seen[p.b])
	require.Zero(t, p.a.Sent())
	p.send(p.a, "two")
	p.settle()
	require.Equal(t, []string{"two"}, p.got[p.b])
}

func TestClose(t *testing.T) {
	p := newPair(t)
	p.send(p.a, "one")
	p.a.Close()
	require.ErrorIs(t, p.a.Send([]byte("late")), ErrClosed)
	require.False(t, p.a.Done())
	p.settle()
	require.Equal(t, []string{"one"}, p.got[p.b])
	require.Equal(t, []event{met, left}, p.seen[p.b])
	require.True(t, p.a.Done())
	require.ErrorIs(t, p.b.Send([]byte("late")), ErrClosed)
	p.b.Close()
	require.True(t, p.b.Done())
	require.Equal(t, int64(math.MaxInt64), p.b.Deadline())
}

// meet makes a pair that has met.
func meet(t testing.TB, change ...func(*Stream)) *pair {
	t.Helper()
	p := newPair(t, change...)
	p.settle()
	require.EqualValues(t, 22, p.a.Peer())
	require.EqualValues(t, 11, p.b.Peer())
	return p
}

func TestWaitingMessagesShareAFrame(t *testing.T) {
	p := meet(t)
	for _, m := range []string{"one", "two", "three"} {
		p.send(p.a, m)
	}
	frames := flush(p.a, p.now)
	require.Len(t, frames, 1)
	p.carry(p.b, frames[0])
	require.Equal(t, []string{"one", "two", "three"}, p.got[p.b])
}

func TestFramesAreFilledAndNeverTooLarge(t *testing.T) {
	for size := 1; size <= 128-Overhead; size++ {
		p := meet(t, func(s *Stream) { s.cfg.MaxFrame = 128 })
		for range 20 {
			p.send(p.a, strings.Repeat("m", size))
		}
		frames := flush(p.a, p.now)
		for i, f := range frames {
			require.LessOrEqual(t, len(f), 128)
			if i < len(frames)-1 {
				require.Greater(t, len(f)+size+2, 128-header, "another message would have gone in")
			}
			p.carry(p.b, f)
		}
		require.Len(t, p.got[p.b], 20)
	}
}

func TestRefusedMessages(t *testing.T) {
	p := meet(t, func(s *Stream) { s.cfg.MaxFrame = Buffer / 4 })
	before := string(p.a.appendState(nil))
	require.ErrorIs(t, p.a.Send(nil), dmutex.ErrMisuse)
	require.ErrorIs(t, p.a.Send(make([]byte, p.a.cfg.MaxFrame-Overhead+1)), ErrTooLarge)
	require.Equal(t, before, string(p.a.appendState(nil)))
	for range 4 {
		require.NoError(t, p.a.Send(make([]byte, p.a.cfg.MaxFrame-Overhead)))
	}
	require.ErrorIs(t, p.a.Send(make([]byte, 200)), ErrFull)
	require.NoError(t, p.a.Send(make([]byte, 10)), "a smaller one fits")
	require.EqualValues(t, 5, p.a.Sent())
	require.LessOrEqual(t, p.a.Backlog(), Buffer)
	p.settle()
	p.wait()
	require.Zero(t, p.a.Backlog())
	require.NoError(t, p.a.Send(make([]byte, 200)), "room again")
}

func TestWindow(t *testing.T) {
	p := meet(t, func(s *Stream) { s.pace.window = 9 })
	for range 3 {
		p.send(p.a, "m") // with its head 3 bytes
		require.Len(t, flush(p.a, p.now), 1)
	}
	p.send(p.a, "m")
	p.send(p.a, "m")
	require.Empty(t, flush(p.a, p.now), "the window is full")
	p.wait() // all three were lost
	require.Len(t, p.got[p.b], 5)
	require.EqualValues(t, 1, p.a.Stats().Resent)
}

// TestBackOff: while nothing is heard, one frame is repeated, and ever more rarely.
//
// LESSONS L54.
func TestBackOff(t *testing.T) {
	p := meet(t)
	large := strings.Repeat("x", p.a.cfg.MaxFrame-Overhead)
	p.send(p.a, large)
	flush(p.a, p.now)
	p.send(p.a, large)
	flush(p.a, p.now)
	var waits []int64
	for range 10 {
		last := p.now
		p.now = p.a.Deadline()
		waits = append(waits, (p.now-last)/millisecond)
		frames := flush(p.a, p.now)
		require.Len(t, frames, 1)
		ints, _ := split(frames[0])
		require.EqualValues(t, 1, ints[atSeq])
	}
	require.Equal(t, []int64{50, 100, 200, 400, 800, 1600, 2000, 2000, 2000, 2000}, waits)
	p.wait() // the peer is back
	require.Len(t, p.got[p.b], 1)
	p.wait() // and its acknowledgement shows that it hears us
	require.Len(t, p.got[p.b], 2)
	require.Less(t, p.a.timeout(), int64(60*millisecond))
	p.wait()
	require.EqualValues(t, 2, p.a.Acked())
}

// LESSONS L69: the timer follows the network.
func TestRoundTripIsMeasured(t *testing.T) {
	p := newPair(t)
	const oneWay = 50 * millisecond
	exchange := func() {
		fromA, fromB := flush(p.a, p.now), flush(p.b, p.now)
		p.now += oneWay
		for _, f := range fromA {
			p.carry(p.b, f)
		}
		for _, f := range fromB {
			p.carry(p.a, f)
		}
	}
	for range 4 {
		exchange()
	}
	for range 50 {
		p.send(p.a, "m")
		exchange()
		p.send(p.b, "m")
		exchange()
	}
	require.InDelta(t, 2*oneWay, p.a.Stats().RoundTrip, millisecond)
	require.Greater(t, p.a.timeout(), 2*oneWay+defaultPace.ackDelay)
	require.Less(t, p.a.timeout(), int64(4*oneWay))
	require.Zero(t, p.a.Stats().Resent)
}

func TestAcknowledgements(t *testing.T) {
	p := meet(t)
	var frames [][]byte
	for range 5 {
		p.send(p.a, "m")
		frames = append(frames, flush(p.a, p.now)...)
	}
	says := func(want ...string) {
		t.Helper()
		var said []string
		for _, f := range flush(p.b, p.now) {
			said = append(said, show(f))
		}
		require.Equal(t, want, said)
	}
	p.carry(p.b, frames[0])
	says()
	require.Equal(t, p.now+defaultPace.ackDelay, p.b.Deadline(), "one frame is acknowledged later")
	p.carry(p.b, frames[0])
	says("ACK[22 11 1] ") // a repeated one at once
	p.carry(p.b, frames[2])
	says("GAP[22 11 1] ") // a gap at once
	p.carry(p.b, frames[3])
	p.carry(p.b, frames[4])
	says() // and once
	p.carry(p.b, frames[2])
	says("GAP[22 11 1] ") // and again if the peer has gone back
	p.carry(p.b, frames[1])
	says("ACK[22 11 2] ") // a filled hole at once
	require.Len(t, p.got[p.b], 2)
	p.send(p.b, "m")
	p.carry(p.b, frames[2])
	says("DATA[22 11 1 3] c4016d") // a message takes it along
	p.send(p.a, "m")
	p.a.Push()
	pushed := flush(p.a, p.now)
	require.Equal(t, "PUSH[11 22 6 0] c4016d", show(pushed[0]))
	p.carry(p.b, frames[3])
	p.carry(p.b, frames[4])
	p.carry(p.b, pushed[0])
	require.Equal(t, p.now+defaultPace.pushDelay, p.b.Deadline(), "a PUSH is acknowledged sooner")
}

// TestHandshakeIsPatient: a node alone asks ever more rarely. A peer that arrives at last
// is met within a round trip.
func TestHandshakeIsPatient(t *testing.T) {
	a := newSession(t, 11)
	var waits []int64
	now := int64(0)
	require.Len(t, flush(a, now), 1)
	for range 6 {
		waits = append(waits, (a.Deadline()-now)/millisecond)
		now = a.Deadline()
		require.Len(t, flush(a, now), 1)
	}
	require.Equal(t, []int64{200, 400, 800, 1600, 2000, 2000}, waits)

	p := &pair{t: t, a: a, b: newSession(t, 22), now: now + 100*millisecond,
		got: make(map[*Stream][]string), seen: make(map[*Stream][]event)}
	p.settle()
	require.Equal(t, []event{met}, p.seen[p.a])
	require.Equal(t, []event{met}, p.seen[p.b])
	require.Zero(t, a.Stats().RoundTrip, "nobody knows which HELLO was answered")
}

// TestFloodOfStrangers: whatever old frames arrive, a stream sends at most one answer in
// MinTimeout.
func TestFloodOfStrangers(t *testing.T) {
	p := meet(t)
	old := join([]uint64{uint64(data), 9, 11, 1, 0}, []byte("\xc4\x01m"))
	toOld := join([]uint64{uint64(data), 22, 9, 1, 0}, []byte("\xc4\x01m"))
	answers := 0
	for range 1000 {
		p.carry(p.a, old)
		p.carry(p.a, toOld)
		answers += len(flush(p.a, p.now))
		p.now += millisecond
	}
	require.LessOrEqual(t, answers, 1+1000/20)
	require.Greater(t, answers, 10)
	require.Equal(t, []event{met}, p.seen[p.a])
	require.Empty(t, p.got[p.a])
}

// Of two strangers that come soon after an answer to another one, the higher is answered.
func TestHigherStrangerIsAnswered(t *testing.T) {
	p := meet(t)
	greet := func(life uint64) { p.carry(p.a, greeting(life, 0, settings)) }
	told := func(life uint64) [][]byte { return [][]byte{join([]uint64{uint64(refused), 1, life, 22}, nil)} }
	p.now += 1000 * millisecond
	greet(9)
	require.Equal(t, told(9), flush(p.a, p.now))
	greet(8)
	greet(7)
	require.Empty(t, flush(p.a, p.now))
	p.now += p.a.pace.minTimeout
	require.Equal(t, told(8), flush(p.a, p.now))
}

func TestCloseOfOneNeverMet(t *testing.T) {
	a := newSession(t, 11)
	flush(a, 0)
	a.Close()
	require.True(t, a.Done(), "nobody to say farewell to")

	p := newPair(t)
	p.send(p.a, "m")
	p.a.Close()
	require.False(t, p.a.Done())
	p.settle()
	require.True(t, p.a.Done())
	require.Equal(t, []string{"m"}, p.got[p.b])
	require.Equal(t, []event{met, left}, p.seen[p.b])
}

func TestPeerLeavesAndReturns(t *testing.T) {
	p := meet(t)
	p.a.Close()
	p.send(p.b, "in vain")
	for _, f := range flush(p.a, p.now) {
		p.carry(p.b, f)
	}
	require.Equal(t, []event{met, left}, p.seen[p.b])
	require.EqualValues(t, 1, p.b.Sent())
	require.EqualValues(t, 0, p.b.Acked(), "Acked shows that the message was not delivered")
	require.Zero(t, p.b.Backlog())

	p.a = newSession(t, 33)
	p.now += 1000 * millisecond
	p.settle()
	require.Equal(t, []event{met, left, met}, p.seen[p.b], "its place was free")
	require.Equal(t, []event{met}, p.seen[p.a])
	p.send(p.b, "welcome")
	p.settle()
	require.Equal(t, []string{"welcome"}, p.got[p.a])
}

// TestDoneOwesNothing: two streams that close together are done after a round trip:
// first the one that sends BYE, then the one that gets it.
func TestDoneOwesNothing(t *testing.T) {
	p := meet(t)
	p.a.Close()
	p.b.Close()
	fin := flush(p.a, p.now)
	require.Len(t, fin, 1)
	p.carry(p.b, fin[0])
	require.False(t, p.b.Done())
	ack := flush(p.b, p.now)
	require.Len(t, ack, 1)
	require.False(t, p.b.Done(), "it may be lost")
	p.carry(p.a, ack[0])
	require.False(t, p.a.Done())
	bye := flush(p.a, p.now)
	require.Len(t, bye, 1)
	require.True(t, p.a.Done())
	p.carry(p.b, bye[0])
	require.True(t, p.b.Done())
	p.carry(p.b, fin[0]) // late
	require.True(t, p.b.Done())
	require.Equal(t, int64(math.MaxInt64), p.b.Deadline())
}

// TestPatience: an end is acknowledged until the peer must know of it, or is gone.
func TestPatience(t *testing.T) {
	p := meet(t)
	p.a.Close()
	fin := flush(p.a, p.now)
	p.carry(p.b, fin[0])
	p.b.Close()
	repeat := func(times int) (waits []int64) {
		require.Len(t, flush(p.b, p.now), 1)
		for range times {
			require.False(t, p.b.Done())
			last := p.now
			p.now = p.b.Deadline()
			waits = append(waits, (p.now-last)/millisecond)
			require.Len(t, flush(p.b, p.now), 1)
		}
		return waits
	}
	repeat(7)
	p.carry(p.b, fin[0]) // it is there
	require.Equal(t, []int64{50, 50, 100, 100, 200, 200, 400, 400, 800, 800, 1600, 1600}, repeat(12))
	require.True(t, p.b.Done())
	require.Equal(t, int64(math.MaxInt64), p.b.Deadline())
	require.False(t, p.a.Done(), "all were lost")
}

// TestByeIsRepeated: if BYE is lost, the next acknowledgement of our end is answered by another.
func TestByeIsRepeated(t *testing.T) {
	p := meet(t)
	p.a.Close()
	p.carry(p.b, flush(p.a, p.now)[0])
	p.b.Close()
	p.carry(p.a, flush(p.b, p.now)[0])
	require.Len(t, flush(p.a, p.now), 1) // lost
	require.True(t, p.a.Done())
	p.wait()
	require.True(t, p.b.Done())
	require.True(t, p.a.Done())
	require.Equal(t, int64(math.MaxInt64), min(p.a.Deadline(), p.b.Deadline()))
}

// TestByeTooEarly: a BYE of a peer whose FIN has not arrived is refused.
func TestByeTooEarly(t *testing.T) {
	p := meet(t)
	before := string(p.b.appendState(nil))
	_, err := p.b.Handle(p.now, join([]uint64{uint64(bye), 11, 22, 0}, nil))
	require.ErrorIs(t, err, dmutex.ErrPeer)
	require.Equal(t, before, string(p.b.appendState(nil)))
}
