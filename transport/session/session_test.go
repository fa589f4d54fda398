package session

import (
	"math"
	"testing"

	"github.com/dmutex/dmutex"
	"github.com/stretchr/testify/require"
)

const group = 77

func newSession(t testing.TB, incarnation uint64, change ...func(*Config)) *Session {
	t.Helper()
	cfg := Config{Incarnation: incarnation, Group: group, MaxFrame: 1024}
	for _, f := range change {
		f(&cfg)
	}
	s, err := New(cfg)
	require.NoError(t, err)
	return s
}

// flush returns all frames that are due.
func flush(s *Session, now int64) (frames [][]byte) {
	for {
		frame := s.Transmit(now, nil)
		if len(frame) == 0 {
			return frames
		}
		frames = append(frames, frame)
	}
}

// A pair is two sessions joined by a network that loses nothing.
type pair struct {
	t    testing.TB
	a, b *Session
	now  int64
	got  map[*Session][]string
	seen map[*Session][]Event
}

func newPair(t testing.TB, change ...func(*Config)) *pair {
	return &pair{
		t:    t,
		a:    newSession(t, 11, change...),
		b:    newSession(t, 22, change...),
		got:  make(map[*Session][]string),
		seen: make(map[*Session][]Event),
	}
}

// carry delivers one frame and notes what it brought.
func (p *pair) carry(to *Session, frame []byte) {
	p.t.Helper()
	in, err := to.Handle(p.now, frame)
	require.NoError(p.t, err)
	for _, m := range in.Messages {
		p.got[to] = append(p.got[to], string(m))
	}
	if in.Event != 0 {
		p.seen[to] = append(p.seen[to], in.Event)
	}
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

func (p *pair) send(s *Session, message string) {
	p.t.Helper()
	require.NoError(p.t, s.Send(p.now, []byte(message)))
}

func TestFirstMeeting(t *testing.T) {
	p := newPair(t)
	p.send(p.a, "early")
	p.settle()
	require.Equal(t, []Event{Met}, p.seen[p.a])
	require.Equal(t, []Event{Met}, p.seen[p.b])
	require.EqualValues(t, 22, p.a.Peer())
	require.Equal(t, []string{"early"}, p.got[p.b])

	p.send(p.b, "answer")
	p.settle()
	require.Equal(t, []string{"answer"}, p.got[p.a])
	require.EqualValues(t, 1, p.a.Acked(), "the acknowledgement travels with the answer")
	require.EqualValues(t, 0, p.b.Acked())
	p.wait()
	require.EqualValues(t, 1, p.b.Acked(), "and else by itself, a little later")
	require.EqualValues(t, math.MaxInt64, p.a.Deadline())
	require.EqualValues(t, math.MaxInt64, p.b.Deadline())
}

func TestRefusedConfig(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no incarnation", Config{MaxFrame: 1024}, "Incarnation is 0"},
		{"no frame size", Config{Incarnation: 1}, "MaxFrame"},
		{"small frames", Config{Incarnation: 1, MaxFrame: 63}, "MaxFrame"},
		{"negative window", Config{Incarnation: 1, MaxFrame: 64, Window: -1}, "Window"},
		{"large window", Config{Incarnation: 1, MaxFrame: 64, Window: 1<<16 + 1}, "Window"},
		{"small buffer", Config{Incarnation: 1, MaxFrame: 64, Buffer: 63}, "Buffer"},
		{"negative delay", Config{Incarnation: 1, MaxFrame: 64, AckDelay: -1}, "AckDelay"},
		{"negative timeout", Config{Incarnation: 1, MaxFrame: 64, MinTimeout: -1}, "MinTimeout"},
		{"timeouts crossed", Config{Incarnation: 1, MaxFrame: 64, MinTimeout: 2, MaxTimeout: 1}, "MaxTimeout"},
		{"endless timeout", Config{Incarnation: 1, MaxFrame: 64, MaxTimeout: math.MaxInt64}, "MaxTimeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(c.cfg)
			require.ErrorIs(t, err, dmutex.ErrMisuse)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestRestart(t *testing.T) {
	p := newPair(t)
	p.send(p.a, "one")
	p.settle()
	p.send(p.a, "lost with the peer")

	p.b = newSession(t, 33)
	p.settle()
	p.wait()
	p.wait()
	require.Equal(t, []Event{Met, Restarted}, p.seen[p.a])
	require.Equal(t, []Event{Met}, p.seen[p.b])
	require.Zero(t, p.a.Sent())
	p.send(p.a, "two")
	p.settle()
	require.Equal(t, []string{"two"}, p.got[p.b])
}

func TestClose(t *testing.T) {
	p := newPair(t)
	p.send(p.a, "one")
	p.a.Close(p.now)
	require.ErrorIs(t, p.a.Send(p.now, []byte("late")), ErrClosed)
	require.False(t, p.a.Done())
	p.settle()
	require.Equal(t, []string{"one"}, p.got[p.b])
	require.Equal(t, []Event{Met, Left}, p.seen[p.b])
	require.True(t, p.a.Done())
	require.ErrorIs(t, p.b.Send(p.now, []byte("late")), ErrClosed)
	p.b.Close(p.now)
	require.True(t, p.b.Done())
	require.EqualValues(t, math.MaxInt64, p.b.Deadline())
}
