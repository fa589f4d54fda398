package stream

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
)

// TestGoodput bounds the cost of a network that loses a tenth of the frames, one by one:
// how many are sent again, and how long a stream takes.
func TestGoodput(t *testing.T) {
	const messages = 20_000
	run := func(lossy bool) (w *wire, frames int, took int64) {
		luck := rand.New(rand.NewPCG(3, 0))
		w = newWire(t, 2*millisecond, func(s *Stream) { s.pace.window = 16 << 10 })
		begin := w.now
		w.lose = func(*Stream, []byte) bool {
			frames++
			return lossy && luck.IntN(10) == 0
		}
		for sent := 0; sent < messages; {
			if w.a.Send(make([]byte, 100)) == nil {
				sent++
				w.transmit()
			} else {
				w.until(w.now + w.oneWay/4)
			}
		}
		w.untilHeard(messages)
		return w, frames, (w.now - begin) / millisecond
	}
	good, all, took := run(false)
	require.Zero(t, good.a.Stats().Resent)
	require.Zero(t, good.b.Stats().Repeated)
	bad, frames, long := run(true)
	require.Less(t, bad.a.Stats().Resent, uint64(frames*2/3))
	require.Less(t, long, int64(10_000))
	t.Logf("%d frames in %d ms; over a bad network %d frames in %d ms, %d of them sent again",
		all, took, frames, long, bad.a.Stats().Resent)
}

// TestNoAllocations: in the long run a message costs no memory.
func TestNoAllocations(t *testing.T) {
	p := meet(t)
	cycle := roundTrip(t, p)
	require.Zero(t, testing.AllocsPerRun(1000, cycle))
}

// roundTrip returns a function that takes a message to b and an answer to a.
func roundTrip(t testing.TB, p *pair) func() {
	message := []byte("a message of 24 bytes...")
	frame := make([]byte, 0, 1024)
	one := func(from, to *Stream) {
		if err := from.Send(message); err != nil {
			t.Fatal(err)
		}
		for {
			frame = from.Transmit(p.now, frame[:0])
			if len(frame) == 0 {
				return
			}
			if in, err := to.Handle(p.now, frame); err != nil || len(in.Messages) != 1 {
				t.Fatal(in, err)
			}
		}
	}
	return func() {
		one(p.a, p.b)
		one(p.b, p.a)
		p.now += 100_000
	}
}

func TestNoAllocationsAfterALoss(t *testing.T) {
	p := meet(t)
	message := []byte("a message of 24 bytes...")
	frame := make([]byte, 0, 1024)
	handle := func(s *Stream) int {
		in, err := s.Handle(p.now, frame)
		if err != nil {
			t.Fatal(err)
		}
		return len(in.Messages)
	}
	cycle := func() {
		_ = p.a.Send(message)
		frame = p.a.Transmit(p.now, frame[:0]) // lost
		_ = p.a.Send(message)
		frame = p.a.Transmit(p.now, frame[:0])
		handle(p.b)
		frame = p.b.Transmit(p.now, frame[:0]) // a GAP
		handle(p.a)
		frame = p.a.Transmit(p.now, frame[:0])
		if handle(p.b) != 2 {
			t.Fatal("not delivered")
		}
		frame = p.b.Transmit(p.now, frame[:0])
		handle(p.a)
		p.now += millisecond
	}
	require.Zero(t, testing.AllocsPerRun(1000, cycle))
	require.Zero(t, p.a.Backlog())
}

// FuzzHandle checks that no frames make a stream panic or send too long a frame, and
// that a refused frame changes nothing, unless it is of another group. Each frame of the
// input is preceded by its length, and every stream in turn gets them all.
func FuzzHandle(f *testing.F) {
	pack := func(frames ...[]byte) (input []byte) {
		for _, frame := range frames {
			input = append(append(input, byte(len(frame))), frame...)
		}
		return input
	}
	message := []byte("\xc4\x01m")
	one := join([]uint64{uint64(data), 11, 22, 1, 0}, message)
	two := join([]uint64{uint64(data), 11, 22, 2, 0}, message)
	end := join([]uint64{uint64(fin), 11, 22, 3, 1}, nil)
	f.Add(pack(one, two, end))
	f.Add(pack(two, end, one, one, two))
	f.Add(pack(greeting(33, 0, settings), greeting(33, 22, settings)))
	f.Add(pack(join([]uint64{uint64(refused), 11, 22, 33}, nil), join([]uint64{uint64(ack), 11, 22, 1}, nil)))
	f.Add(pack(join([]uint64{uint64(fin), 11, 22, 1, 0}, nil), join([]uint64{uint64(bye), 11, 22, 0}, nil)))
	f.Add(pack(join([]uint64{uint64(gap), 11, 22, 0}, nil), two, join([]uint64{uint64(gap), 11, 22, 1}, nil)))
	f.Add(pack([]byte("\x04\x0b\x16\x01\x01\xc6\xff\xff\xff\xff")))
	f.Add(pack(join([]uint64{uint64(ack), 11, 22, 99}, nil), join([]uint64{uint64(data), 11, 22, 1, 99}, message)))
	f.Add(pack(greeting(33, 1, "other"), join([]uint64{uint64(data), 0, 22, 0, 0}, nil)))

	f.Fuzz(func(t *testing.T, input []byte) {
		small := func(s *Stream) { s.cfg.MaxFrame, s.pace.window = 256, 512 }
		unmet := newSession(t, 22, small)
		met := meet(t, small).b
		busy := meet(t, small).b
		require.NoError(t, busy.Send([]byte("one")))
		flush(busy, 0)
		require.NoError(t, busy.Send([]byte("two")))
		leaving := meet(t, small).b
		leaving.Close()
		for _, s := range []*Stream{unmet, met, busy, leaving} {
			rest, now := input, int64(0)
			for len(rest) > 0 {
				n := min(int(rest[0]), len(rest)-1)
				frame := rest[1 : 1+n]
				rest = rest[1+n:]
				before, stats := string(s.appendState(nil)), s.Stats()
				in, err := s.Handle(now, frame)
				if err != nil {
					require.ErrorIs(t, err, dmutex.ErrPeer)
					if _, ok := err.(GroupError); !ok {
						require.Equal(t, before, string(s.appendState(nil)))
					}
					require.Equal(t, stats, s.Stats())
					require.Zero(t, in)
				}
				for _, out := range flush(s, now) {
					require.LessOrEqual(t, len(out), s.cfg.MaxFrame)
				}
				require.Greater(t, s.Deadline(), now)
				now += 3 * millisecond
			}
		}
	})
}

func BenchmarkRoundTrip(b *testing.B) {
	p := meet(b)
	cycle := roundTrip(b, p)
	b.ReportAllocs()
	for b.Loop() {
		cycle()
	}
}

// BenchmarkStream sends many messages that share frames.
func BenchmarkStream(b *testing.B) {
	p := meet(b, func(s *Stream) { s.cfg.MaxFrame = 32 << 10 })
	message := []byte("a message of 24 bytes...")
	frame := make([]byte, 0, p.a.cfg.MaxFrame)
	carry := func(from, to *Stream) {
		for {
			frame = from.Transmit(p.now, frame[:0])
			if len(frame) == 0 {
				return
			}
			if _, err := to.Handle(p.now, frame); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if err := p.a.Send(message); err != nil {
			b.Fatal(err)
		}
		if n%100 == 0 {
			carry(p.a, p.b)
			p.now += 10 * millisecond
			carry(p.b, p.a)
		}
	}
}
