package stream

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
)

func TestRefusedFrames(t *testing.T) {
	message := []byte("\xc4\x01m")
	p := meet(t, func(s *Stream) { s.cfg.MaxLife = 1000 })
	p.send(p.b, "one")
	p.settle()
	p.a.Close()
	p.settle() // b has sent frame 1, and has got frame 1, which was the last
	for _, c := range []struct {
		name  string
		frame []byte
		want  string
	}{
		{"nothing", nil, "too early"},
		{"noise", []byte("noise"), "kind of frame"},
		{"an array", []byte("\xdd\x7f\xff\xff\xff"), "wrong type"},
		{"kind 0", join([]uint64{0, 11, 22, 1}, nil), "kind of frame"},
		{"kind to come", join([]uint64{9, 11, 22, 1}, nil), "kind of frame"},
		{"HELLO too short", join([]uint64{uint64(hello), 1, 1, 11}, nil), "too early"},
		{"HELLO with too much", greeting(33, 1, strings.Repeat("x", MaxSettings+1)), "too long"},
		{"HELLO of nobody", greeting(0, 1, settings), "is zero"},
		{"HELLO of ourselves", greeting(22, 1, settings), "it is us"},
		{"HELLO ahead of the clock", greeting(1001, 22, settings), "ahead of the clock"},
		{"HELLO and something more", append(greeting(33, 1, settings), 0), "bytes follow"},
		{"REFUSED for nobody", join([]uint64{uint64(refused), 11, 22, 0}, nil), "is zero"},
		{"REFUSED for itself", join([]uint64{uint64(refused), 11, 22, 22}, nil), "for itself"},
		{"REFUSED ahead of the clock", join([]uint64{uint64(refused), 11, 22, 1001}, nil), "ahead of the clock"},
		{"DATA ahead of the clock", join([]uint64{uint64(data), 1001, 22, 1, 0}, message), "ahead of the clock"},
		{"ACK too long", join([]uint64{uint64(ack), 11, 22, 1, 1}, nil), "bytes follow"},
		{"ACK of ourselves", join([]uint64{uint64(ack), 22, 22, 1}, nil), "it is us"},
		{"ACK to nobody", join([]uint64{uint64(ack), 11, 0, 1}, nil), "is zero"},
		{"ACK of a frame never sent", join([]uint64{uint64(ack), 11, 22, 2}, nil), "never sent"},
		{"BYE too long", join([]uint64{uint64(bye), 11, 22, 1, 1}, nil), "bytes follow"},
		{"BYE with an ACK of a frame never sent", join([]uint64{uint64(bye), 11, 22, 2}, nil), "never sent"},
		{"GAP too long", join([]uint64{uint64(gap), 11, 22, 0, 1}, nil), "bytes follow"},
		{"GAP with an ACK of a frame never sent", join([]uint64{uint64(gap), 11, 22, 2}, nil), "never sent"},
		{"GAP before a frame never sent", join([]uint64{uint64(gap), 11, 22, 0}, nil), "never sent"},
		{"DATA with an ACK of a frame never sent", join([]uint64{uint64(data), 11, 22, 1, 2}, message), "never sent"},
		{"DATA without a number", join([]uint64{uint64(data), 11, 22, 0, 1}, message), "is zero"},
		{"DATA without a message", join([]uint64{uint64(data), 11, 22, 1, 1}, nil), "no message"},
		{"PUSH without a message", join([]uint64{uint64(push), 11, 22, 1, 1}, nil), "no message"},
		{"DATA with an empty message", join([]uint64{uint64(data), 11, 22, 1, 1}, []byte("\xc4\x00")), "empty one"},
		{"DATA cut short", []byte("\x04\x0b\x16\x01\x01\xc4\x05m"), "too early"},
		{"DATA after the end", join([]uint64{uint64(data), 11, 22, 2, 1}, message), "after its end"},
		{"another end", join([]uint64{uint64(fin), 11, 22, 3, 1}, nil), "after its end"},
		{"an end far away", join([]uint64{uint64(fin), 11, 22, 1<<64 - 1, 1}, nil), "after its end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, stats := string(p.b.appendState(nil)), p.b.Stats()
			in, err := p.b.Handle(p.now, c.frame)
			require.ErrorIs(t, err, dmutex.ErrPeer)
			require.ErrorContains(t, err, c.want)
			require.Zero(t, in)
			require.Equal(t, before, string(p.b.appendState(nil)))
			require.Equal(t, stats, p.b.Stats())
			require.Zero(t, testing.AllocsPerRun(10, func() { _, _ = p.b.Handle(p.now, c.frame) }))
		})
	}
}

// TestMemoryIsBounded: a stream that never pauses does not make the buffer grow
// with it, and a burst leaves nothing behind.
func TestMemoryIsBounded(t *testing.T) {
	p := meet(t)
	for range 1000 {
		for range 100 {
			p.send(p.a, "a message of 24 bytes...")
		}
		frames := flush(p.a, p.now)
		for range 100 {
			p.send(p.a, "a message of 24 bytes...")
		}
		for _, f := range frames {
			p.carry(p.b, f)
		}
		p.now += defaultPace.ackDelay
		for _, f := range flush(p.b, p.now) {
			p.carry(p.a, f)
		}
		require.Positive(t, p.a.Backlog(), "never empty")
		require.Less(t, cap(p.a.out), 32<<10)
	}

	for p.a.Send(make([]byte, 900)) == nil {
	}
	require.Greater(t, cap(p.a.out), 4<<20)
	for p.settle(); p.a.Backlog() > 0; {
		p.wait()
	}
	require.LessOrEqual(t, cap(p.a.out), keep)
}

// TestBurstLeavesNothing: the memory of a burst is not kept after its delivery.
func TestBurstLeavesNothing(t *testing.T) {
	p := meet(t, func(s *Stream) { s.cfg.MaxFrame = 1 << 20 })
	for range 20_000 {
		p.send(p.a, "a message of 24 bytes...")
	}
	p.settle()
	require.Len(t, p.got[p.b], 20_000)
	p.send(p.a, "one more")
	p.settle()
	require.Len(t, p.got[p.b], 20_001)
	require.LessOrEqual(t, cap(p.b.in), keepMessages)
}

// A peer is broken if it acknowledges what was never sent three times, for as long as the longest timeout,
// while something waits, and nothing that was sent. Each part is needed: a stranger can forge
// acknowledgements, too.
func TestBroken(t *testing.T) {
	stray := func(p *pair) error {
		_, err := p.a.Handle(p.now, join([]uint64{uint64(ack), 22, 11, 127}, nil))
		require.ErrorIs(p.t, err, dmutex.ErrPeer)
		return err
	}
	met := func(t *testing.T) *pair {
		p := newPair(t)
		p.send(p.a, "first")
		p.settle()
		for p.a.Backlog() > 0 {
			p.wait()
		}
		return p
	}
	long := defaultPace.maxTimeout

	t.Run("broken", func(t *testing.T) {
		p := met(t)
		p.send(p.a, "waits")
		require.NotErrorIs(t, stray(p), ErrBroken)
		p.now += long
		require.NotErrorIs(t, stray(p), ErrBroken, "two are not enough")
		require.False(t, p.a.Broken())
		require.ErrorIs(t, stray(p), ErrBroken)
		require.True(t, p.a.Broken())
		p.settle()
		for p.a.Backlog() > 0 {
			p.wait()
		}
		require.False(t, p.a.Broken(), "an acknowledgement was right")
	})
	t.Run("too soon", func(t *testing.T) {
		p := met(t)
		p.send(p.a, "waits")
		for range 10 {
			require.NotErrorIs(t, stray(p), ErrBroken)
		}
		p.now += long - 1
		require.NotErrorIs(t, stray(p), ErrBroken)
	})
	t.Run("nothing waits", func(t *testing.T) {
		p := met(t)
		for range 10 {
			require.NotErrorIs(t, stray(p), ErrBroken)
			p.now += long
		}
		require.False(t, p.a.Broken())
	})
	t.Run("one is right", func(t *testing.T) {
		p := met(t)
		for range 10 {
			p.send(p.a, "waits")
			require.NotErrorIs(t, stray(p), ErrBroken)
			p.settle()
			for p.a.Backlog() > 0 {
				p.wait()
			}
			p.now += long
		}
	})
}
