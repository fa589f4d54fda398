package stream

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A wire is two streams that have met over a network that delays every frame by the same
// time. Functions that are not nil choose frames to lose, to change and to delay further.
type wire struct {
	*pair
	oneWay int64
	lose   func(from *Stream, frame []byte) bool
	change func(frame []byte) []byte
	delay  func(from *Stream, frame []byte) int64
	sky    []flight
}

type flight struct {
	at    int64
	to    *Stream
	frame []byte
}

func newWire(t testing.TB, oneWay int64, change ...func(*Stream)) *wire {
	w := &wire{pair: newPair(t, change...), oneWay: oneWay}
	w.until(10 * oneWay)
	require.EqualValues(t, 22, w.a.Peer())
	require.EqualValues(t, 11, w.b.Peer())
	require.Equal(t, 2*oneWay, w.a.Stats().RoundTrip)
	return w
}

// transmit puts the frames that are due into the sky.
func (w *wire) transmit() {
	for _, from := range []*Stream{w.a, w.b} {
		for _, frame := range flush(from, w.now) {
			if w.lose != nil && w.lose(from, frame) {
				continue
			}
			if w.change != nil {
				frame = w.change(frame)
			}
			to := w.a
			if from == w.a {
				to = w.b
			}
			at := w.now + w.oneWay
			if w.delay != nil {
				at += w.delay(from, frame)
			}
			w.sky = append(w.sky, flight{at, to, frame})
			slices.SortStableFunc(w.sky, func(f, g flight) int { return cmp.Compare(f.at, g.at) })
		}
		require.Greater(w.t, from.Deadline(), w.now, "the stream wants a call at once, for nothing")
	}
}

// pass lets time pass, in which no stream has a frame to send: no Deadline has forgotten anything.
func (w *wire) pass(until int64) {
	for _, s := range []*Stream{w.a, w.b} {
		if c := *s; until > w.now && len(c.Transmit(until-1, nil)) > 0 {
			require.Fail(w.t, "a frame that no deadline tells of")
		}
	}
	w.now = max(w.now, until)
}

// until lets everything happen up to the time given.
func (w *wire) until(end int64) {
	for {
		w.transmit()
		next := min(w.a.Deadline(), w.b.Deadline())
		if len(w.sky) > 0 {
			next = min(next, w.sky[0].at)
		}
		if w.pass(min(next, end)); next > end {
			return
		}
		for len(w.sky) > 0 && w.sky[0].at <= w.now {
			f := w.sky[0]
			w.sky = w.sky[1:]
			w.carry(f.to, f.frame)
		}
	}
}

// untilHeard lets things happen until b has got so many messages.
func (w *wire) untilHeard(count int) {
	for end := w.now + 10_000*millisecond; len(w.got[w.b]) < count; {
		require.Less(w.t, w.now, end, "not delivered")
		w.until(w.now + w.oneWay/4)
	}
}

// burst sends messages in a frame each.
func (w *wire) burst(count int) {
	for i := range count {
		w.send(w.a, fmt.Sprint(i))
		w.transmit()
	}
}

// TestEveryLossInABurst loses each subset of the frames of a burst, but never the last frame. A
// subset costs one round trip and one frame, and no timeout passes.
func TestEveryLossInABurst(t *testing.T) {
	const frames, oneWay = 7, millisecond / 4
	for lost := range 1 << (frames - 1) {
		w := newWire(t, oneWay)
		begin, count := w.now, 0
		w.lose = func(from *Stream, frame []byte) bool {
			ints, _ := split(frame)
			seq := ints[atSeq]
			hit := from == w.a && kind(ints[0]) == data && lost>>(seq-1)&1 == 1
			if hit {
				lost &^= 1 << (seq - 1)
				count++
			}
			return hit
		}
		all := lost
		w.burst(frames)
		w.untilHeard(frames)
		require.LessOrEqual(t, w.now-begin, int64(oneWay+min(count, 1)*2*oneWay), "lost %b", all)
		require.EqualValues(t, min(count, 1), w.a.Stats().Resent, "lost %b", all)
		require.True(t, slices.IsSorted(w.got[w.b]))
	}
}

// TestGapIsNeeded turns every GAP into an ACK: then a lost frame waits for the timeout.
func TestGapIsNeeded(t *testing.T) {
	const oneWay = millisecond / 4
	lone := func(change func([]byte) []byte, talks bool) (cost int64) {
		w := newWire(t, oneWay)
		begin, first := w.now, true
		w.change = change
		w.lose = func(from *Stream, frame []byte) bool {
			if from == w.a && kind(frame[0]) == data && first {
				first = false
				return true
			}
			return false
		}
		w.burst(2)
		if talks {
			w.until(w.now + oneWay - 1)
			w.send(w.b, "talk") // is ready when the gap opens, and goes first
			for _, f := range w.sky {
				w.now = f.at
				w.carry(f.to, f.frame)
			}
			w.sky = nil
		}
		w.untilHeard(2)
		return w.now - begin
	}
	require.LessOrEqual(t, lone(nil, false), int64(3*oneWay))
	require.LessOrEqual(t, lone(nil, true), int64(3*oneWay), "also beside DATA")
	require.GreaterOrEqual(t, lone(func(frame []byte) []byte {
		ints, body := split(frame)
		if kind(ints[0]) == gap {
			ints[0] = uint64(ack)
		}
		return join(ints, body)
	}, false), defaultPace.minTimeout)
}

// TestGapsAreRepairedOnceInARoundTrip: if frames overtake each other, GAPs are false
// alarms, and few of them make a stream resend.
func TestGapsAreRepairedOnceInARoundTrip(t *testing.T) {
	const oneWay, pairs = 3 * millisecond, 60
	w, gaps := newWire(t, oneWay), 0
	w.delay = func(from *Stream, frame []byte) int64 {
		ints, _ := split(frame)
		if kind(ints[0]) == gap {
			gaps++
		}
		if from == w.a && kind(ints[0]) == data && ints[atSeq]%2 == 1 {
			return millisecond / 2
		}
		return 0
	}
	begin := w.now
	for range pairs {
		w.burst(2)
		w.until(w.now + millisecond)
	}
	took := w.now - begin
	w.untilHeard(2 * pairs)
	require.Greater(t, gaps, pairs/2)
	require.Positive(t, w.a.Stats().Resent)
	require.LessOrEqual(t, w.a.Stats().Resent, uint64(took/(2*oneWay)+1))
}

// TestRepeatedGap: a GAP that the network repeats, or that was under way when the frame
// was sent again, has no effect if an acknowledgement follows.
func TestRepeatedGap(t *testing.T) {
	w := newWire(t, millisecond/4)
	w.lose = func(from *Stream, _ []byte) bool { return from == w.a && len(w.sky) == 0 }
	w.burst(1)
	w.lose = nil
	w.burst(1)
	w.until(w.now + millisecond/4)
	require.Equal(t, "GAP[22 11 0] ", show(w.sky[0].frame))
	w.sky = append(w.sky, w.sky[0], w.sky[0])
	w.until(w.now + 100*millisecond)
	require.Len(t, w.got[w.b], 2)
	require.EqualValues(t, 1, w.a.Stats().Resent)
}

// TestFrameThatIsNeverTaken: a frame that the link loses each time, and none behind it, is sent more and more rarely. The
// rest follows at once when the link takes it.
func TestFrameThatIsNeverTaken(t *testing.T) {
	w := newWire(t, millisecond/4)
	w.lose = func(from *Stream, frame []byte) bool { return from == w.a && len(frame) > 900 }
	w.send(w.a, string(make([]byte, 950)))
	w.transmit()
	w.burst(50)
	w.until(w.now + 1000*millisecond)
	require.Less(t, w.a.Stats().Resent, uint64(51*(inVain+1)+10))
	w.until(w.now + 10_000*millisecond)
	require.Less(t, w.a.Stats().Resent, uint64(51*(inVain+1)+20))
	w.lose = nil
	w.until(w.now + w.a.pace.maxTimeout + 10*millisecond)
	require.Len(t, w.got[w.b], 51)
}

// TestLossyFirstSending loses the first sending of every frame, on its own. Each
// costs one timeout: the network is bad, but the peer is there.
func TestLossyFirstSending(t *testing.T) {
	w := newWire(t, millisecond/4)
	last := uint64(0)
	w.lose = func(from *Stream, frame []byte) bool {
		ints, _ := split(frame)
		lost := from == w.a && kind(ints[0]) == data && ints[atSeq] > last
		if lost {
			last = ints[atSeq]
		}
		return lost
	}
	for i := range 50 {
		begin := w.now
		w.send(w.a, "m")
		w.untilHeard(i + 1)
		require.LessOrEqual(t, w.now-begin, int64(55*millisecond), "message %d", i)
		w.until(w.now + 100*millisecond)
	}
}

// TestTimeoutFollowsAGrowingRoundTrip: at first no frame is acknowledged before it is
// sent again. The timeout grows until one is, because the peer acknowledges each
// sending.
func TestTimeoutFollowsAGrowingRoundTrip(t *testing.T) {
	w := newWire(t, millisecond/4)
	w.oneWay = 100 * millisecond
	for i := range 20 {
		w.send(w.a, "m")
		w.untilHeard(i + 1)
		w.until(w.now + 500*millisecond)
	}
	before := w.a.Stats()
	require.Greater(t, w.a.timeout(), int64(200*millisecond))
	for i := range 20 {
		w.send(w.a, "m")
		w.untilHeard(20 + i + 1)
		w.until(w.now + 500*millisecond)
	}
	require.Equal(t, before.Resent, w.a.Stats().Resent, "no later frame is sent again")
	require.Less(t, before.Resent, uint64(12))
}

// TestPauseIsNoRoundTrip: a process that was paused for an hour before it saw an acknowledgement does not
// wait for later ones as if they took as long.
func TestPauseIsNoRoundTrip(t *testing.T) {
	p := meet(t)
	p.send(p.a, "first")
	p.settle()
	p.wait()
	p.send(p.a, "m")
	p.carry(p.b, flush(p.a, p.now)[0])
	answer := flush(p.b, p.now+defaultPace.ackDelay)[0]
	p.now += 3600 * 1000 * millisecond
	p.carry(p.a, answer)
	require.LessOrEqual(t, p.a.Stats().RoundTrip, defaultPace.maxTimeout)
	p.send(p.a, "lost")
	flush(p.a, p.now)
	require.Less(t, p.a.Deadline()-p.now, defaultPace.maxTimeout/2)
}

// TestAnswerEndsTheBackOff: an answer also proves that the peer hears us.
func TestAnswerEndsTheBackOff(t *testing.T) {
	p := meet(t)
	p.send(p.a, "m")
	for range 8 { // the peer is away
		flush(p.a, p.now)
		p.now = p.a.Deadline()
	}
	flush(p.a, p.now)
	require.Greater(t, p.a.Deadline()-p.now, int64(1000*millisecond))
	p.a.Ask()
	for _, f := range flush(p.a, p.now) {
		p.carry(p.b, f)
	}
	for _, f := range flush(p.b, p.now) {
		p.carry(p.a, f)
	}
	flush(p.a, p.now)
	require.LessOrEqual(t, p.a.Deadline()-p.now, int64(60*millisecond))
}

// TestLongRoundTripFromTheStart: a HELLO that is sent again before its answer can come does not
// make the round trip look shorter than it is.
func TestLongRoundTripFromTheStart(t *testing.T) {
	for oneWay := int64(20); oneWay <= 190; oneWay += 10 {
		w := &wire{pair: newPair(t), oneWay: oneWay * millisecond}
		w.until(10 * w.oneWay)
		w.send(w.a, "a")
		w.send(w.b, "b")
		w.until(20 * w.oneWay)
		for _, s := range []*Stream{w.a, w.b} {
			require.GreaterOrEqual(t, s.Stats().RoundTrip, 2*w.oneWay, "%d ms", oneWay)
			require.Zero(t, s.Stats().Resent, "%d ms", oneWay)
		}
	}
}
