package stream

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/search"
)

// A delivery is a frame on its way.
type delivery struct {
	to    int
	frame []byte
}

// A simulation is two streams over a bad network in virtual time. Its drivers
// sleep until the deadline and not longer.
type simulation struct {
	t      *testing.T
	random *rand.Rand
	lossy  bool
	fifo   bool // frames do not overtake each other
	last   [2]int64
	window int
	now    int64
	sky    search.Agenda[delivery]
	frames int // sent so far
	ends   [2]*Stream
	life   [2]uint64
	sends  [2]uint64 // of this life
	first  map[stream]uint64
	got    map[stream]uint64
}

// A stream goes from one life to another. It begins after what the sender
// dropped when it learned of the receiver.
type stream struct {
	from         int
	life, toLife uint64
}

func newSimulation(t *testing.T, seed uint64, lossy bool, window int) *simulation {
	s := &simulation{
		t:      t,
		window: window,
		random: rand.New(rand.NewPCG(seed, 0)),
		lossy:  lossy,
		first:  make(map[stream]uint64),
		got:    make(map[stream]uint64),
	}
	for side := range s.ends {
		s.begin(side)
	}
	return s
}

func (s *simulation) begin(side int) {
	s.life[side]++
	s.sends[side] = 0
	s.ends[side] = newSession(s.t, uint64(side+1)<<32|s.life[side], func(c *Stream) { c.pace.window = s.window })
}

// transmit is what a driver does after every input and at the deadline.
func (s *simulation) transmit(side int) (n int) {
	for _, frame := range flush(s.ends[side], s.now) {
		n++
		s.frames++
		copies := 1
		if s.lossy {
			switch s.random.IntN(10) {
			case 0:
				copies = 0
			case 1:
				copies = 2
			}
		}
		for range copies {
			delay := int64(millisecond)
			if s.lossy {
				delay += s.random.Int64N(4 * millisecond)
			}
			at := s.now + delay
			if s.fifo {
				at = max(at, s.last[side])
				s.last[side] = at
			}
			s.sky.Plan(at, delivery{1 - side, frame})
		}
	}
	require.Greater(s.t, s.ends[side].Deadline(), s.now, "the stream wants a call at once, for nothing")
	return n
}

// send gives a stream a message, and reports whether the stream accepted it.
func (s *simulation) send(side, size int) bool {
	m := binary.BigEndian.AppendUint64(nil, s.life[side])
	m = binary.BigEndian.AppendUint64(m, s.sends[side]+1)
	err := s.ends[side].Send(append(m, make([]byte, size)...))
	if err != nil {
		require.ErrorIs(s.t, err, ErrFull)
		return false
	}
	s.sends[side]++
	s.transmit(side)
	return true
}

func (s *simulation) arrive(side int, frame []byte) {
	former := s.ends[side].Peer()
	in, err := s.ends[side].Handle(s.now, frame)
	require.NoError(s.t, err)
	if in.Met != 0 && former != 0 {
		s.first[stream{side, s.life[side], s.ends[side].Peer() & math.MaxUint32}] = s.sends[side]
	}
	for _, m := range in.Messages {
		from := stream{1 - side, binary.BigEndian.Uint64(m), s.life[side]}
		s.got[from]++
		require.Equal(s.t, s.first[from]+s.got[from], binary.BigEndian.Uint64(m[8:]), "a message lost, repeated or out of order")
	}
	s.transmit(side)
}

// step lets the next event before until happen, and reports whether there was one. If
// not, the time is until.
func (s *simulation) step(until int64) bool {
	next, what := until, -1
	for side, end := range s.ends {
		if d := end.Deadline(); d < next {
			next, what = d, side
		}
	}
	if s.sky.Len() > 0 && s.sky.Next() < next {
		at, f := s.sky.Take()
		s.pass(at)
		s.arrive(f.to, f.frame)
		return true
	}
	if next < math.MaxInt64 {
		s.pass(next)
	}
	if what >= 0 {
		require.Positive(s.t, s.transmit(what), "a deadline with nothing to do")
	}
	return what >= 0
}

// pass lets time pass, in which no stream had a frame to send: its Deadline has forgotten nothing.
func (s *simulation) pass(until int64) {
	for _, end := range s.ends {
		if c := *end; until > s.now {
			require.Empty(s.t, c.Transmit(until-1, nil), "a frame that no deadline tells of")
		}
	}
	s.now = max(s.now, until)
}

// drain lets everything happen, and checks that all was delivered.
func (s *simulation) drain() {
	for s.step(math.MaxInt64) {
	}
	for side, end := range s.ends {
		to := stream{side, s.life[side], s.life[1-side]}
		require.Equal(s.t, s.ends[1-side].cfg.Life, end.Peer())
		require.Equal(s.t, s.sends[side], s.first[to]+s.got[to], "not all was delivered")
		require.Equal(s.t, end.Sent(), end.Acked())
		require.Zero(s.t, end.Backlog())
	}
}
func seeds() uint64 {
	if os.Getenv("DMUTEX_LONG") == "1" {
		return 2000
	}
	return 40
}

// TestBadNetwork sends messages both ways over a network that loses a tenth of
// the frames, repeats a tenth and reorders, with restarts of both ends.
// DMUTEX_LONG=1 tries more seeds.
func TestBadNetwork(t *testing.T) {
	seed := uint64(0)
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	for ; seed < seeds(); seed++ {
		s := newSimulation(t, seed, true, 100<<(seed%7))
		for range 400 {
			for until := s.now + s.random.Int64N(3*millisecond); s.step(until); {
			}
			s.send(s.random.IntN(2), s.random.IntN(300))
			if s.random.IntN(200) == 0 {
				s.begin(s.random.IntN(2))
				s.transmit(0)
				s.transmit(1)
			}
		}
		s.send(0, 0)
		s.send(1, 0)
		s.drain()
		for side, end := range s.ends {
			end.Close()
			s.transmit(side)
		}
		for s.step(math.MaxInt64) {
		}
		require.True(t, s.ends[0].Done())
		require.True(t, s.ends[1].Done())
	}
}

// TestGoodput bounds the cost of a network that loses a tenth of the frames, one by one:
// how many are sent again, and how long a stream takes.
func TestGoodput(t *testing.T) {
	const messages = 20_000
	run := func(lossy bool) *simulation {
		s := newSimulation(t, 3, lossy, 16<<10)
		s.fifo = true
		s.transmit(0)
		s.transmit(1)
		for s.sends[0] < messages {
			if !s.send(0, 84) {
				s.step(math.MaxInt64)
			}
		}
		s.drain()
		return s
	}
	good, bad := run(false), run(true)
	require.Zero(t, good.ends[0].Stats().Resent)
	require.Zero(t, good.ends[1].Stats().Repeated)
	require.Less(t, bad.ends[0].Stats().Resent, uint64(bad.frames*2/3))
	require.Less(t, bad.now, int64(10_000*millisecond))
	t.Logf("%d frames in %d ms; over a bad network %d frames in %d ms, %d of them sent again",
		good.frames, good.now/millisecond, bad.frames, bad.now/millisecond, bad.ends[0].Stats().Resent)
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
