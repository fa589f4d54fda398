package linktest

import (
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
		{"a number makes it a link", (*bench).become},
		{"a former number is not reached", (*bench).former},
		{"what waited for a removed peer is dropped", (*bench).dropped},
		{"a stranger is noticed", (*bench).stranger},
		{"members come and go", (*bench).churn},
		{"deliver may change everything", (*bench).fromDeliver},
		{"everything at once", (*bench).atOnce},
	} {
		t.Run(test.name, func(t *testing.T) { links.inBench(t, test.run) })
	}
}

// A dynamic is a member whose link is dynamic.
type dynamic struct {
	*member
	transport.DynamicLink
	hellos  chan uint64        // see greet
	noticed chan dmutex.NodeID // the first node that sent something
}

// dynamic returns a link that is not yet open and is closed with the test. Unless self is
// [dmutex.None] it has that number.
func (b *bench) dynamic(self dmutex.NodeID) *dynamic {
	l, ok := b.make(dmutex.None).(transport.DynamicLink)
	require.True(b, ok, "it is no DynamicLink")
	require.LessOrEqual(b, len(l.Address()), 256)
	m := &dynamic{&member{l, b, self, make(chan arrival, 1<<12)}, l, make(chan uint64, 1), make(chan dmutex.NodeID, 1)}
	m.become(self)
	return m
}

// open opens the link. Frames of strangers, and hellos, do not reach deliver.
func (m *dynamic) open(deliver func(from dmutex.NodeID, frame []byte)) {
	m.b.Helper()
	require.NoError(m.b, m.Open(host(func(from dmutex.NodeID, frame []byte) {
		select {
		case m.noticed <- from:
		default:
		}
		switch len(frame) {
		case 0:
		case helloSize:
			select {
			case m.hellos <- binary.BigEndian.Uint64(frame):
			default: // a repeated hello
			}
		default:
			deliver(from, frame)
		}
	})))
}

func (m *dynamic) become(self dmutex.NodeID) {
	m.b.Helper()
	require.NoError(m.b, m.Become(self))
	m.self = self
}

// join opens n links, as nodes 1 to n, all of them peers.
func (b *bench) join(n int) (members []*dynamic) {
	for i := range n {
		m := b.dynamic(dmutex.NodeID(i + 1))
		m.open(m.keep)
		for _, other := range members {
			b.meet(m, other)
		}
		members = append(members, m)
	}
	return members
}

const helloSize = 99 // no other frame here has this size

// greet makes two members peers of each other, and lets them send hellos until they hear
// each other: before that the network may lose frames for a new number.
func (b *bench) greet(one, two *dynamic) {
	b.Helper()
	require.NoError(b, one.SetPeer(two.self, two.Address()))
	require.NoError(b, two.SetPeer(one.self, one.Address()))
	for _, way := range []struct{ from, to *dynamic }{{one, two}, {two, one}} {
		b.hellos++
		frame := make([]byte, helloSize)
		binary.BigEndian.PutUint64(frame, b.hellos)
		for until(b, way.from, way.to.self, frame, way.to.hellos) != b.hellos {
		}
	}
}

// until sends a frame again and again, as a stream does, until something comes.
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

// talk sends a frame to and fro, and requires that no other frame comes first.
func (b *bench) talk(one, two *dynamic) {
	b.Helper()
	b.hellos++
	frame := binary.BigEndian.AppendUint64(nil, b.hellos)
	one.tell(two.member, frame)
	two.tell(one.member, frame)
}

func (b *bench) meet(one, two *dynamic) {
	b.Helper()
	b.greet(one, two)
	b.talk(one, two)
}

// refused requires that Send does not know a node.
func (m *dynamic) refused(to dmutex.NodeID) {
	m.b.Helper()
	require.ErrorIs(m.b, m.Send(to, []byte{255}), transport.ErrUnknownNode)
}

func (b *bench) become() {
	never := b.dynamic(dmutex.None)
	require.NoError(b, never.Close())
	require.ErrorIs(b, never.Become(1), transport.ErrClosed)
	require.ErrorIs(b, never.SetPeer(2, never.Address()), transport.ErrClosed)
	never.RemovePeer(2)
	require.ErrorIs(b, never.Send(2, []byte{1}), transport.ErrClosed)
	require.ErrorIs(b, never.Open(host(ignore)), transport.ErrClosed)

	one, two := b.dynamic(1), b.dynamic(dmutex.None)
	require.ErrorIs(b, two.Send(1, []byte{1}), transport.ErrClosed, "it is not open")
	one.open(one.keep)
	two.open(two.keep)
	require.ErrorIs(b, two.Open(host(ignore)), dmutex.ErrMisuse)
	two.isNobody()
	two.become(2)
	one.refused(2)
	for _, id := range []dmutex.NodeID{dmutex.None, 1} {
		require.ErrorIs(b, one.SetPeer(id, one.Address()), dmutex.ErrMisuse)
	}
	b.meet(one, two)
	b.meet(one, two) // again, which changes nothing

	two.become(dmutex.None)
	two.isNobody()
	two.become(3)
	two.refused(1) // the peers are forgotten
	one.RemovePeer(2)
	b.meet(one, two)
	one.become(4)
	b.meet(one, two)
}

// isNobody requires that a link without a number has no peers.
func (m *dynamic) isNobody() {
	m.b.Helper()
	require.ErrorIs(m.b, m.SetPeer(1, m.Address()), dmutex.ErrMisuse)
	m.RemovePeer(1)
	m.refused(1)
}

// former blocks the receiver, so that frames for its old number wait when it gets a new one.
func (b *bench) former() {
	one, two := b.dynamic(1), b.dynamic(2)
	gate := b.gate()
	one.open(one.keep)
	two.open(func(from dmutex.NodeID, frame []byte) {
		two.keep(from, frame)
		gate.pass(from, frame)
	})
	b.greet(one, two)
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
	b.greet(one, two)
	for range 10 {
		b.talk(one, two)
		require.NoError(b, one.Send(2, []byte{5}))
	}
}

func (b *bench) dropped() {
	one, two := b.dynamic(1), b.dynamic(2)
	one.open(one.keep)
	require.NoError(b, one.SetPeer(2, two.Address()))
	require.NoError(b, one.Send(2, []byte{1}))
	one.RemovePeer(2)
	two.open(two.keep)
	b.meet(one, two)
}

// stranger lets a newcomer send to a member that does not know it yet.
func (b *bench) stranger() {
	old, young := b.dynamic(1), b.dynamic(2)
	old.open(old.keep)
	young.open(young.keep)
	require.NoError(b, young.SetPeer(1, old.Address()))
	require.Equal(b, young.self, until(b, young, 1, []byte{1}, old.noticed))
	b.greet(old, young)
	old.tell(young.member, []byte{2})
	require.NoError(b, young.Send(1, []byte{3}))
	old.skips(young.self, 1, 3)
}

// skips requires the frame last. Frames equal to others may come before it.
func (m *dynamic) skips(from dmutex.NodeID, others, last byte) {
	m.b.Helper()
	a := m.next()
	for ; a.frame[0] == others; a = m.next() {
	}
	require.Equal(m.b, arrival{from, []byte{last}}, a)
}

// churn replaces one member after the other: by the same link under a new number, by a
// new link, and by itself.
func (b *bench) churn() {
	members := b.join(3)
	for round := range 9 {
		i := round / 3
		gone, stay := members[i], []*dynamic{members[(i+1)%3], members[(i+2)%3]}
		for _, other := range stay {
			other.RemovePeer(gone.self)
			other.RemovePeer(gone.self)
			other.RemovePeer(99)
			other.refused(gone.self)
		}
		number := dmutex.NodeID(4 + round)
		switch round % 3 {
		case 0:
			gone.become(dmutex.None)
			gone.become(number)
		case 1:
			address := gone.Address()
			require.NoError(b, gone.Close())
			require.ErrorIs(b, gone.Become(number), transport.ErrClosed)
			require.ErrorIs(b, gone.Become(dmutex.None), transport.ErrClosed)
			require.ErrorIs(b, gone.SetPeer(stay[0].self, stay[0].Address()), transport.ErrClosed)
			gone.RemovePeer(stay[0].self)
			require.ErrorIs(b, gone.Send(stay[0].self, []byte{1}), transport.ErrClosed)
			require.ErrorIs(b, gone.Open(host(ignore)), transport.ErrClosed)
			require.Equal(b, address, gone.Address())
			members[i] = b.dynamic(dmutex.None)
			members[i].open(members[i].keep)
			members[i].become(number)
		case 2:
			gone.RemovePeer(stay[0].self)
			gone.RemovePeer(stay[1].self)
		}
		b.talk(stay[0], stay[1]) // they have noticed nothing
		b.meet(members[i], stay[0])
		b.meet(members[i], stay[1])
	}
}

// fromDeliver lets a link leave, come back under a new number and answer, all in deliver.
func (b *bench) fromDeliver() {
	one, two := b.dynamic(1), b.dynamic(2)
	one.open(one.keep)
	last := two.self
	became := make(chan dmutex.NodeID, 1)
	two.open(func(_ dmutex.NodeID, frame []byte) {
		if frame[0] != byte(last) {
			return
		}
		last++
		err := errors.Join(two.Become(dmutex.None), two.Become(last), two.SetPeer(last+100, two.Address()), two.SetPeer(1, one.Address()))
		two.RemovePeer(last + 100)
		became <- last
		if err = errors.Join(err, two.Send(1, []byte{byte(last)})); err != nil {
			b.Errorf("from deliver: %v", err)
		}
	})
	b.greet(one, two)
	for id := two.self; id < 22; id++ {
		require.Equal(b, id+1, until(b, one, id, []byte{byte(id)}, became))
		require.NoError(b, one.SetPeer(id+1, two.Address()))
		one.RemovePeer(id)
		require.Equal(b, arrival{id + 1, []byte{byte(id + 1)}}, one.next())
	}
}

// atOnce lets goroutines do everything at the same time. Afterwards the links still
// work.
func (b *bench) atOnce() {
	members := b.join(2)
	var running sync.WaitGroup
	for i, m := range members {
		self, other := m.self, members[1-i]
		peer := func(n int) dmutex.NodeID { return dmutex.NodeID(n/20*20) + other.self }
		for _, do := range []func(n int) error{
			func(n int) error {
				if n%20 > 0 {
					return nil
				}
				return errors.Join(m.Become(dmutex.None), m.Become(self+dmutex.NodeID(n)))
			},
			func(n int) error { return m.SetPeer(peer(n), other.Address()) },
			func(n int) error { return m.Send(peer(n), []byte{1}) },
			func(n int) error { m.RemovePeer(dmutex.NodeID(n)); return nil },
			func(int) error { _ = m.DynamicLink.Trouble(1); return nil },
		} {
			running.Go(func() {
				for n := range 100 {
					err := do(n)
					if err != nil && !errors.Is(err, dmutex.ErrMisuse) && !errors.Is(err, transport.ErrUnknownNode) && !errors.Is(err, transport.ErrFull) {
						b.Errorf("%v", err)
					}
				}
			})
		}
	}
	running.Wait()
	one, two := members[0], members[1]
	one.become(1001)
	two.become(1002)
	b.greet(one, two)
	require.NoError(b, one.Send(1002, []byte{2}))
	require.NoError(b, two.Send(1001, []byte{2}))
	two.skips(1001, 1, 2) // frames for former numbers may still have been in flight
	one.skips(1002, 1, 2)
}
