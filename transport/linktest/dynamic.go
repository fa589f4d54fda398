package linktest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// TestDynamicLink tests that a kind of link keeps the contract of
// [transport.DynamicLink]. Links.New is called with [dmutex.None] and returns dynamic
// links. Like TestLink it must not run in parallel with other tests of the package.
func TestDynamicLink(t *testing.T, links Links) {
	for _, test := range []struct {
		name string
		run  func(*bench)
	}{
		{"a link without a number carries nothing", (*bench).nobody},
		{"a number makes it a link", (*bench).become},
		{"a former number is not reached", (*bench).former},
		{"a removed peer is not reached", (*bench).removed},
		{"what waited for a removed peer is dropped", (*bench).dropped},
		{"a stranger is noticed", (*bench).stranger},
		{"members come and go", (*bench).churn},
		{"deliver may change everything", (*bench).fromDeliver},
		{"everything at once", (*bench).atOnce},
		{"a closed link refuses", (*bench).closedDynamic},
	} {
		t.Run(test.name, func(t *testing.T) { links.inBench(t, test.run) })
	}
}

// A dynamic is a member whose link is dynamic.
type dynamic struct {
	*member
	transport.DynamicLink
	hellos chan uint64 // see meet
}

// dynamic returns a link without a number, not yet open, that is closed with the test.
func (b *bench) dynamic() *dynamic {
	l, ok := b.make(dmutex.None).(transport.DynamicLink)
	require.True(b, ok, "it is no DynamicLink")
	require.LessOrEqual(b, len(l.Address()), 256)
	return &dynamic{
		member:      &member{l, b, dmutex.None, make(chan arrival, 1<<12)},
		DynamicLink: l,
		hellos:      make(chan uint64, 1),
	}
}

func (m *dynamic) open() {
	m.b.Helper()
	require.NoError(m.b, m.Open(func(from dmutex.NodeID, frame []byte) {
		if !m.aside(frame) {
			m.keep(from, frame)
		}
	}))
}

const hello = "hello"

// aside takes hellos, and empty frames. It reports whether the frame was one.
func (m *dynamic) aside(frame []byte) bool {
	switch {
	case len(frame) == 0: // of a stranger
	case len(frame) == len(hello)+8 && string(frame[:len(hello)]) == hello:
		select {
		case m.hellos <- binary.BigEndian.Uint64(frame[len(hello):]):
		default: // it comes again
		}
	default:
		return false
	}
	return true
}

func (m *dynamic) become(self dmutex.NodeID) {
	m.b.Helper()
	require.NoError(m.b, m.Become(self))
	m.self = self
}

// join opens n links, as nodes 1 to n, all of them peers.
func (b *bench) join(n int) []*dynamic {
	members := make([]*dynamic, n)
	for i := range members {
		m := b.dynamic()
		m.open()
		m.become(dmutex.NodeID(i + 1))
		for _, other := range members[:i] {
			b.meet(m, other)
		}
		members[i] = m
	}
	return members
}

// meet makes two members peers of each other, and lets them send hellos until they hear
// each other: before that the network may lose frames for a new number.
func (b *bench) meet(one, two *dynamic) {
	b.Helper()
	require.NoError(b, one.SetPeer(two.self, two.Address()))
	require.NoError(b, two.SetPeer(one.self, one.Address()))
	for _, way := range []struct{ from, to *dynamic }{{one, two}, {two, one}} {
		b.hellos++
		frame := binary.BigEndian.AppendUint64([]byte(hello), b.hellos)
		for until(b, way.from, way.to.self, frame, way.to.hellos) != b.hellos {
		}
	}
}

// until sends a frame again and again, as a session does, until something comes.
func until[T any](b *bench, from *dynamic, to dmutex.NodeID, frame []byte, c <-chan T) (v T) {
	b.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(patience)
	for {
		require.NoError(b, from.Send(to, frame))
		select {
		case v = <-c:
			return v
		case <-again.C:
		case <-deadline:
			require.FailNow(b, "waited in vain for what node "+from.self.String()+" sends to node "+to.String())
		}
	}
}

// talk sends frames to and fro.
func (b *bench) talk(one, two *dynamic, content byte) {
	b.Helper()
	one.tell(two.member, []byte{content})
	two.tell(one.member, []byte{content})
}

// refused requires that Send does not send.
func (m *dynamic) refused(to dmutex.NodeID) {
	m.b.Helper()
	require.ErrorIs(m.b, m.Send(to, []byte{255}), transport.ErrUnknownNode)
}

func (b *bench) nobody() {
	m := b.dynamic()
	require.ErrorIs(b, m.Send(1, []byte{1}), transport.ErrClosed, "it is not open")
	m.open()
	require.ErrorIs(b, m.Open(ignore), dmutex.ErrMisuse)
	m.refused(1)
	require.ErrorIs(b, m.SetPeer(1, m.Address()), dmutex.ErrMisuse)
	m.RemovePeer(1)
	m.refused(1)
	require.NoError(b, m.Become(dmutex.None))
	m.refused(1)
}

func (b *bench) become() {
	one, two := b.dynamic(), b.dynamic()
	one.become(1) // before it is open
	one.open()
	two.open()
	two.become(2)
	one.refused(2)
	for _, id := range []dmutex.NodeID{dmutex.None, 1} {
		require.ErrorIs(b, one.SetPeer(id, one.Address()), dmutex.ErrMisuse)
	}
	b.meet(one, two)
	b.talk(one, two, 1)
	b.meet(one, two) // again, which changes nothing
	b.talk(one, two, 2)

	two.become(dmutex.None)
	two.refused(1)
	require.ErrorIs(b, two.SetPeer(1, one.Address()), dmutex.ErrMisuse)
	two.become(3)
	two.refused(1) // the peers are forgotten
	one.RemovePeer(2)
	b.meet(one, two)
	b.talk(one, two, 3)
	one.become(4)
	b.meet(one, two)
	b.talk(one, two, 4)
}

// former holds the receiver up, so that frames wait for its number when it changes.
func (b *bench) former() {
	one, two := b.dynamic(), b.dynamic()
	gate := b.gate()
	require.NoError(b, two.Open(func(from dmutex.NodeID, frame []byte) {
		if !two.aside(frame) {
			two.keep(from, frame)
			gate.pass(from, frame)
		}
	}))
	one.open()
	one.become(1)
	two.become(2)
	b.meet(one, two)
	gate.holds(one, 2, []byte{1})
	require.Equal(b, arrival{1, []byte{1}}, two.next())
	for range 100 {
		require.NoError(b, one.Send(2, []byte{2}))
	}
	b.settle()
	two.become(dmutex.None)
	require.NoError(b, one.Send(2, []byte{3}))
	two.become(3)
	require.NoError(b, one.Send(2, []byte{4}))
	gate.open()
	b.meet(one, two)
	for i := range byte(10) {
		b.talk(one, two, 100+i) // and before it comes nothing else
		require.NoError(b, one.Send(2, []byte{5}))
	}
}

func (b *bench) removed() {
	members := b.join(3)
	one, two, three := members[0], members[1], members[2]
	for i := range byte(4) {
		b.talk(one, two, i)
		one.RemovePeer(2)
		one.refused(2)
		one.RemovePeer(2)
		one.RemovePeer(99)
		two.RemovePeer(1)
		b.talk(one, three, i) // the others notice nothing
		b.talk(two, three, i)
		b.meet(one, two)
	}
	b.talk(one, two, 4)
}

func (b *bench) dropped() {
	one, two := b.dynamic(), b.dynamic()
	one.open()
	one.become(1)
	two.become(2)
	require.NoError(b, one.SetPeer(2, two.Address()))
	require.NoError(b, one.Send(2, []byte{1}))
	one.RemovePeer(2)
	require.NoError(b, one.SetPeer(2, two.Address()))
	two.open()
	b.meet(one, two)
	b.talk(one, two, 2)
}

// stranger is a newcomer that knows a member which does not know it yet.
func (b *bench) stranger() {
	old, young := b.dynamic(), b.dynamic()
	noticed := make(chan arrival, 1)
	require.NoError(b, old.Open(func(from dmutex.NodeID, frame []byte) {
		select {
		case noticed <- arrival{from, bytes.Clone(frame)}:
		default:
		}
		if !old.aside(frame) {
			old.keep(from, frame)
		}
	}))
	young.open()
	old.become(1)
	young.become(2)
	require.NoError(b, young.SetPeer(1, old.Address()))
	a := until(b, young, 1, []byte{1}, noticed)
	require.Equal(b, young.self, a.from)
	if len(a.frame) > 0 { // else it waits, or is lost
		require.Equal(b, []byte{1}, a.frame)
	}
	b.meet(old, young)
	old.tell(young.member, []byte{2})
	require.NoError(b, young.Send(1, []byte{3}))
	for old.next().frame[0] != 3 {
	}
}

// churn replaces one member after the other: by the same link under a new number, and
// by a new link.
func (b *bench) churn() {
	members := b.join(3)
	last := dmutex.NodeID(3)
	for round := range byte(12) {
		i := int(round) % 3
		gone := members[i]
		for _, other := range members {
			if other != gone {
				other.RemovePeer(gone.self)
			}
		}
		if round%2 == 0 {
			gone.become(dmutex.None)
		} else {
			require.NoError(b, gone.Close())
			members[i] = b.dynamic()
			members[i].open()
		}
		last++
		members[i].become(last)
		for _, other := range members {
			if other != members[i] {
				b.meet(members[i], other)
				b.talk(members[i], other, round)
			}
		}
		b.talk(members[(i+1)%3], members[(i+2)%3], round) // they have noticed nothing
	}
}

// fromDeliver leaves, comes back under a new number, and answers, all in deliver.
func (b *bench) fromDeliver() {
	const rounds = 20
	one, two := b.dynamic(), b.dynamic()
	known := make(chan dmutex.NodeID, 1) // that two has become
	last := dmutex.NodeID(2)
	become := func() error {
		last++
		err := errors.Join(two.Become(dmutex.None), two.Become(last), two.SetPeer(last+100, two.Address()), two.SetPeer(1, one.Address()))
		two.RemovePeer(last + 100)
		known <- last
		return err
	}
	require.NoError(b, two.Open(func(from dmutex.NodeID, frame []byte) {
		if two.aside(frame) || frame[0] != byte(last) {
			return
		}
		if err := become(); err != nil {
			b.Errorf("from deliver: %v", err)
		}
		if err := two.Send(1, binary.BigEndian.AppendUint64(nil, uint64(last))); err != nil {
			b.Errorf("Send from deliver: %v", err)
		}
	}))
	one.open()
	one.become(1)
	two.become(last)
	b.meet(one, two)
	id := two.self
	for range rounds {
		require.NoError(b, one.SetPeer(id, two.Address()))
		next := until(b, one, id, []byte{byte(id)}, known)
		require.NoError(b, one.SetPeer(next, two.Address()))
		one.RemovePeer(id)
		require.Equal(b, arrival{next, binary.BigEndian.AppendUint64(nil, uint64(next))}, one.next())
		id = next
	}
}

// atOnce lets goroutines do everything at the same time. Afterwards the links still
// work.
func (b *bench) atOnce() {
	const rounds = 100
	one, two := b.dynamic(), b.dynamic()
	one.open()
	two.open()
	one.become(1)
	two.become(2)
	var running sync.WaitGroup
	for _, pair := range []struct{ m, other *dynamic }{{one, two}, {two, one}} {
		m, other := pair.m, pair.other
		base := m.self
		for _, do := range []func(i int) error{
			func(i int) error {
				if i%20 > 0 {
					return nil
				}
				return errors.Join(m.Become(dmutex.None), m.Become(base+dmutex.NodeID(i)))
			},
			func(i int) error { return m.SetPeer(dmutex.NodeID(i/20*20)+3-base, other.Address()) },
			func(i int) error { return m.Send(dmutex.NodeID(i/20*20)+3-base, []byte{1}) },
			func(i int) error { m.RemovePeer(dmutex.NodeID(i)); return nil },
			func(int) error {
				if r, ok := m.DynamicLink.(transport.Reporter); ok {
					_ = r.Trouble(1)
				}
				return nil
			},
		} {
			running.Go(func() {
				for i := range rounds {
					err := do(i)
					if err != nil && !errors.Is(err, dmutex.ErrMisuse) && !errors.Is(err, transport.ErrUnknownNode) && !errors.Is(err, transport.ErrFull) {
						b.Errorf("%v", err)
					}
				}
			})
		}
	}
	running.Wait()
	one.become(1001)
	two.become(1002)
	b.meet(one, two)
	// Frames from former numbers may still be in flight.
	for _, way := range []struct{ from, to *dynamic }{{one, two}, {two, one}} {
		require.NoError(b, way.from.Send(way.to.self, []byte{2}))
		for way.to.next().frame[0] != 2 {
		}
	}
}

func (b *bench) closedDynamic() {
	nobody := b.dynamic()
	require.NoError(b, nobody.Close())
	members := b.join(2)
	b.talk(members[0], members[1], 1)
	address := members[0].Address()
	require.NoError(b, members[0].Close())
	for _, m := range []*dynamic{nobody, members[0]} {
		require.ErrorIs(b, m.Become(5), transport.ErrClosed)
		require.ErrorIs(b, m.Become(dmutex.None), transport.ErrClosed)
		require.ErrorIs(b, m.SetPeer(2, members[1].Address()), transport.ErrClosed)
		m.RemovePeer(2)
		require.ErrorIs(b, m.Send(2, []byte{1}), transport.ErrClosed)
		require.ErrorIs(b, m.Open(ignore), transport.ErrClosed)
	}
	require.Equal(b, address, members[0].Address())
}
