// Package linktest tests that a kind of link keeps the contract of [transport.Link]:
// [TestLink] tests the link alone, [TestSession] sessions over it, and [TestDynamicLink]
// what a [transport.DynamicLink] does in addition.
package linktest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// Links describes a kind of link to [TestLink] and [TestSession].
type Links struct {
	// New makes a network that loses nothing unless a test disturbs it, and returns
	// a function that makes links on it, not yet open. A second link for a node,
	// made after the first is closed, stands for that node after a restart. Every
	// node can reach every other for which a link was made. New cleans up with
	// t.Cleanup.
	New func(t *testing.T) (link func(self dmutex.NodeID) transport.Link)

	Ordered bool // frames of one node to another arrive in the order sent
	AnyNode bool // Send takes frames to any node, since the network has no address book

	// Synctest says that the links work in a bubble of testing/synctest. The
	// tests then run in bubbles, which makes them fast and strict.
	Synctest bool
}

// TestLink tests that a kind of link keeps the contract of [transport.Link], and of
// [transport.BurstLink] if it is one. It must not run in parallel with other tests of
// the link's package, because it looks for goroutines that were left behind.
func TestLink(t *testing.T, links Links) {
	for _, test := range []struct {
		name string
		run  func(*bench)
	}{
		{"frames arrive as they were sent", (*bench).unaltered},
		{"frames arrive once", (*bench).once},
		{"Send refuses what it cannot send", (*bench).refusals},
		{"bursts are what Open would deliver", (*bench).bursts},
		{"deliver may send", (*bench).bounce},
		{"many goroutines may send", (*bench).crowd},
		{"Open is called once", (*bench).openOnce},
		{"Close may be called at any time", (*bench).closings},
		{"Close waits for deliver", (*bench).closeWaits},
		{"nothing is delivered after Close", (*bench).closeEnds},
		{"a peer that does not read delays no other", (*bench).deaf},
		{"an absent peer delays no other", (*bench).absent},
		{"what waits for a peer is bounded", (*bench).bounded},
		{"a node may restart", (*bench).restart},
	} {
		t.Run(test.name, func(t *testing.T) { links.inBench(t, test.run) })
	}
}

// inBench runs a test, in a bubble if the links can do with one.
func (links Links) inBench(t *testing.T, test func(*bench)) {
	run := func(t *testing.T) {
		b := &bench{T: t, links: links, home: goroutine()}
		t.Cleanup(b.checkGoroutines)
		b.link = links.New(t)
		test(b)
	}
	if links.Synctest {
		synctest.Test(t, run)
	} else {
		run(t)
	}
}

// A bench is one test of one network.
type bench struct {
	*testing.T
	links  Links
	link   func(self dmutex.NodeID) transport.Link
	home   string // the goroutine of the test
	pkg    string // of the links
	hellos uint64 // so far, in tests of dynamic links
}

// A member is a node of the group under test.
type member struct {
	transport.Link
	b    *bench
	self dmutex.NodeID
	got  chan arrival
}

type arrival struct {
	from  dmutex.NodeID
	frame []byte
}

// make returns a link that is closed with the test.
func (b *bench) make(self dmutex.NodeID) transport.Link {
	l := b.link(self)
	b.Cleanup(func() { require.NoError(b, l.Close()) })
	typ := reflect.TypeOf(l)
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	b.pkg = typ.PkgPath()
	return l
}

// open returns nodes that keep what arrives.
func (b *bench) open(ids ...dmutex.NodeID) (nodes []*member) {
	for _, id := range ids {
		nodes = append(nodes, b.member(id))
	}
	for _, s := range nodes {
		require.NoError(b, s.Open(s.keep))
	}
	return nodes
}

// member returns a node whose link is not open yet.
func (b *bench) member(self dmutex.NodeID) *member {
	return &member{b.make(self), b, self, make(chan arrival, 1<<12)}
}

// ignore takes what arrives.
func ignore(dmutex.NodeID, []byte) {}

func (s *member) keep(from dmutex.NodeID, frame []byte) {
	if goroutine() == s.b.home {
		s.b.Error("Send delivers by itself")
	}
	s.got <- arrival{from, bytes.Clone(frame)}
}

// next waits for a frame.
func (s *member) next() arrival {
	s.b.Helper()
	return await(s.b, s.got, "a frame for node "+s.self.String())
}

// patience is long, because only a failing test waits for so long.
const patience = 30 * time.Second

func await[T any](b *bench, c <-chan T, what string) (v T) {
	b.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		require.FailNow(b, "waited in vain for "+what)
	}
	return v
}

// A gate holds a deliver up until it is opened, at the latest before the links are closed.
type gate struct {
	b       *bench
	reached chan bool // by the first
	end     chan bool
	open    func()
	inside  atomic.Int32 // delivers that have not returned
}

func (b *bench) gate() *gate {
	g := &gate{b: b, reached: make(chan bool, 1), end: make(chan bool)}
	g.open = sync.OnceFunc(func() { close(g.end) })
	b.Cleanup(g.open)
	return g
}

func (g *gate) pass(dmutex.NodeID, []byte) {
	g.inside.Add(1)
	defer g.inside.Add(-1)
	select {
	case g.reached <- true:
	default:
	}
	<-g.end
}

// holds sends a frame that is held up.
func (g *gate) holds(from transport.Link, to dmutex.NodeID, frame []byte) {
	require.NoError(g.b, from.Send(to, frame))
	await(g.b, g.reached, "deliver")
}

// settle lets the other goroutines run: in a bubble until they all wait, else
// for a moment.
func (b *bench) settle() {
	if b.links.Synctest {
		synctest.Wait()
		return
	}
	for range 100 {
		runtime.Gosched()
	}
}

// tell sends a frame and waits for it to arrive.
func (s *member) tell(to *member, frame []byte) {
	s.b.Helper()
	require.NoError(s.b, s.Send(to.self, frame))
	require.Equal(s.b, arrival{s.self, frame}, to.next())
}

func (b *bench) unaltered() {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 0))
	nodes := b.open(1, 2, 3)
	buf := make([]byte, nodes[0].MaxFrame())
	sizes := []int{len(buf), len(buf) - 1, 1}
	for range 100 {
		sizes = append(sizes, 1+random.IntN(200))
	}
	for i, size := range sizes {
		for _, step := range []int{1, 2} {
			from, to := nodes[i%3], nodes[(i+step)%3]
			for j := range buf[:size] {
				buf[j] = byte(random.Uint32())
			}
			sent := bytes.Clone(buf[:size])
			require.NoError(b, from.Send(to.self, buf[:size]))
			clear(buf) // the caller's buffer is the caller's again
			require.Equal(b, arrival{from.self, sent}, to.next(), "seed %d", seed)
		}
	}
}

func (b *bench) once() {
	nodes := b.open(1, 2)
	from, to := nodes[0], nodes[1]
	const bursts, burst = 20, 100
	for i := range bursts {
		for j := range burst {
			require.NoError(b, from.Send(to.self, numeral(i*burst+j)))
		}
		to.counts(i*burst, burst)
	}
}

func numeral(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// counts requires that the frames of some numbers come next, each once.
func (s *member) counts(first, n int) {
	s.b.Helper()
	seen := make(map[int]bool)
	for i := range n {
		got := int(binary.BigEndian.Uint64(s.next().frame))
		require.False(s.b, got < first || got >= first+n || seen[got], "frame %d comes a second time", got)
		seen[got] = true
		if s.b.links.Ordered {
			require.Equal(s.b, first+i, got, "out of order")
		}
	}
}

func (b *bench) refusals() {
	nodes := b.open(1, 2)
	from, to := nodes[0], nodes[1]
	require.GreaterOrEqual(b, from.MaxFrame(), 1024)
	frame := make([]byte, from.MaxFrame()+1)
	require.ErrorIs(b, from.Send(to.self, frame), transport.ErrFrameSize)
	require.ErrorIs(b, from.Send(to.self, nil), transport.ErrFrameSize)
	require.ErrorIs(b, from.Send(dmutex.None, frame[:1]), transport.ErrUnknownNode)
	require.ErrorIs(b, from.Send(from.self, frame[:1]), transport.ErrUnknownNode)
	if err := from.Send(99, frame[:1]); !b.links.AnyNode {
		require.ErrorIs(b, err, transport.ErrUnknownNode)
	}
	from.tell(to, frame[:7]) // and what was refused did not come before it
	require.Empty(b, to.got)
}

// bursts holds the receiver up, so that frames have time to come together.
func (b *bench) bursts() {
	from, to := b.member(1), b.member(2)
	link, ok := to.Link.(transport.BurstLink)
	if !ok {
		b.Skip("it is no BurstLink")
	}
	require.NoError(b, from.Open(ignore))
	gate := b.gate()
	require.NoError(b, link.OpenBursts(func(id dmutex.NodeID, frames [][]byte) {
		if len(frames) == 0 {
			b.Error("a burst without frames")
		}
		for _, frame := range frames {
			if len(frame) == 0 {
				b.Error("a frame without bytes")
			}
			to.keep(id, frame)
		}
		gate.pass(id, nil)
	}))
	require.ErrorIs(b, link.Open(ignore), dmutex.ErrMisuse)
	const count = 1000
	gate.holds(from, to.self, numeral(0))
	for i := range count - 1 {
		require.NoError(b, from.Send(to.self, numeral(i+1)))
	}
	b.settle()
	gate.open()
	to.counts(0, count)
	require.NoError(b, link.Close())
	require.ErrorIs(b, link.OpenBursts(func(dmutex.NodeID, [][]byte) {}), transport.ErrClosed)
}

func (b *bench) bounce() {
	const rounds = 2000
	ends := make([]transport.Link, 2)
	done := make(chan struct{})
	for i := range ends {
		ends[i] = b.make(dmutex.NodeID(i + 1))
	}
	var frame [8]byte
	for i, l := range ends {
		require.NoError(b, l.Open(func(from dmutex.NodeID, ball []byte) {
			n := binary.BigEndian.Uint64(ball)
			if n == rounds {
				close(done)
				return
			}
			binary.BigEndian.PutUint64(frame[:], n+1)
			if err := ends[i].Send(from, frame[:]); err != nil {
				b.Errorf("Send from deliver: %v", err)
			}
		}))
	}
	require.NoError(b, ends[0].Send(2, make([]byte, 8)))
	await(b, done, "the last bounce")
}

func (b *bench) crowd() {
	const senders, frames = 8, 200
	nodes := b.open(1, 2, 3)
	room := make(chan struct{}, 256) // frames that are under way
	var sending sync.WaitGroup
	for _, from := range nodes[1:] {
		for sender := range senders {
			sending.Go(func() {
				for i := range frames {
					room <- struct{}{}
					name := append(bytes.Repeat([]byte{byte(sender)}, 1+i%50), byte(i))
					if err := from.Send(1, name); err != nil {
						b.Errorf("Send: %v", err)
					}
				}
			})
		}
	}
	heard := make(map[[2]dmutex.NodeID]int) // from a node and one of its goroutines
	for range 2 * senders * frames {
		a := nodes[0].next()
		<-room
		sender, i := a.frame[0], a.frame[len(a.frame)-1]
		require.Equal(b, append(bytes.Repeat([]byte{sender}, 1+int(i)%50), i), a.frame)
		source := [2]dmutex.NodeID{a.from, dmutex.NodeID(sender)}
		if b.links.Ordered {
			require.Equal(b, heard[source], int(i), "node and goroutine %v", source)
		}
		heard[source]++
	}
	sending.Wait()
	require.Len(b, heard, 2*senders)
	for source, n := range heard {
		require.Equal(b, frames, n, "of node and goroutine %v a frame came twice, and another not at all", source)
	}
}

func (b *bench) openOnce() {
	l := b.make(1)
	require.ErrorIs(b, l.Send(2, []byte{1}), transport.ErrClosed)
	require.NoError(b, l.Open(ignore))
	require.ErrorIs(b, l.Open(ignore), dmutex.ErrMisuse)
}

func (b *bench) closings() {
	never := b.link(1)
	require.NoError(b, never.Close())
	require.NoError(b, never.Close())
	require.ErrorIs(b, never.Open(ignore), transport.ErrClosed)

	nodes := b.open(1, 2)
	nodes[0].tell(nodes[1], []byte{1})
	var closing sync.WaitGroup
	for range 4 {
		closing.Go(func() {
			if err := nodes[0].Close(); err != nil {
				b.Errorf("Close: %v", err)
			}
		})
	}
	closing.Wait()
	require.NoError(b, nodes[0].Close())
	require.ErrorIs(b, nodes[0].Send(2, []byte{1}), transport.ErrClosed)
}

func (b *bench) closeWaits() {
	to, nodes, gate := b.make(2), b.open(1, 3), b.gate()
	require.NoError(b, to.Open(gate.pass))
	gate.holds(nodes[0], 2, []byte{1})
	closing, closed := make(chan bool), make(chan bool)
	go func() {
		close(closing)
		if err := to.Close(); err != nil {
			b.Errorf("Close: %v", err)
		}
		if gate.inside.Load() > 0 {
			b.Error("Close has not waited for deliver")
		}
		close(closed)
	}()
	<-closing
	b.settle() // so that a Close that does not wait shows it
	for range 100 {
		nodes[0].tell(nodes[1], []byte{1}) // also one that takes some round trips
	}
	gate.open()
	await(b, closed, "Close")
}

func (b *bench) closeEnds() {
	const enough, ahead = 1000, 50
	from, to := b.make(1), b.make(2)
	require.NoError(b, from.Open(ignore))
	var closed atomic.Bool
	var arrived atomic.Int32
	flowing := make(chan bool)
	require.NoError(b, to.Open(func(dmutex.NodeID, []byte) {
		if closed.Load() {
			b.Error("delivered after Close")
		}
		if arrived.Add(1) == enough {
			close(flowing)
		}
		_ = from.Send(2, []byte{1}) // as many as there were remain under way
	}))
	for range ahead {
		_ = from.Send(2, []byte{1})
	}
	await(b, flowing, "frames")
	require.NoError(b, to.Close())
	closed.Store(true)
	for range ahead {
		_ = from.Send(2, []byte{1})
	}
	if b.links.Synctest {
		time.Sleep(time.Minute) // of the bubble's clock: what is late comes now
	}
	b.settle()
	require.NoError(b, from.Close())
}

func (b *bench) deaf() {
	to, nodes, gate := b.make(2), b.open(1, 3), b.gate()
	require.NoError(b, to.Open(gate.pass))
	gate.holds(nodes[0], 2, []byte{1})
	b.flood(nodes, 64)
}

// bounded floods an absent peer, and a peer that does not read, with 128 MiB each. A
// good part of it must be refused or lost, because the link must not keep it all.
// (Where a server runs in this process, its buffers count too: a NATS server keeps up
// to 64 MiB for a slow client.)
func (b *bench) bounded() {
	const (
		flood = 128 << 20
		limit = 96 << 20
	)
	from, deaf := b.make(1), b.make(2)
	require.NoError(b, b.link(3).Close()) // absent
	require.NoError(b, from.Open(ignore))
	require.NoError(b, deaf.Open(b.gate().pass))
	frame := make([]byte, min(32<<10, from.MaxFrame()))
	before := heap()
	for _, to := range []dmutex.NodeID{3, 2} {
		for range flood / len(frame) {
			b.pour(from, to, frame)
		}
		require.Less(b, heap()-before, int64(limit), "bytes are kept of 128 MiB for node %d", to)
	}
}

// pour sends a frame. While it is refused the others may run, for a moment.
func (b *bench) pour(from transport.Link, to dmutex.NodeID, frame []byte) {
	for range 20 {
		err := from.Send(to, frame)
		if err == nil {
			return
		}
		require.ErrorIs(b, err, transport.ErrFull)
		runtime.Gosched()
	}
}

// heap returns how many bytes are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func (b *bench) absent() {
	require.NoError(b, b.link(2).Close())
	b.flood(b.open(1, 3), 16)
}

// flood sends half a megabyte to node 2, which is more than any socket buffers, some
// times. The others still reach each other.
func (b *bench) flood(others []*member, times int) {
	frame := make([]byte, min(8<<10, others[0].MaxFrame()))
	for range times {
		for range 64 {
			if err := others[0].Send(2, frame); err != nil {
				require.ErrorIs(b, err, transport.ErrFull)
			}
		}
		others[0].tell(others[1], []byte{1})
		others[1].tell(others[0], []byte{2})
	}
}

func (b *bench) restart() {
	nodes := b.open(1, 2, 3)
	for round := range byte(4) {
		i := int(round) % 2 * 2 // the one of the lowest id, and the one of the highest
		for _, other := range nodes {
			if other != nodes[i] {
				other.tell(nodes[i], []byte{round})
			}
		}
		require.NoError(b, nodes[i].Close())
		s := b.member(nodes[i].self)
		require.NoError(b, s.Open(s.keep))
		nodes[i] = s
		for _, other := range nodes {
			if other != s {
				// What the others send meanwhile may be lost. But once they
				// have heard from the new one they can answer.
				s.tell(other, []byte{round})
				other.tell(s, []byte{round})
			}
		}
	}
}

// checkGoroutines runs after all links are closed. In a bubble, the bubble's
// end does it. A goroutine may need a moment more to die.
func (b *bench) checkGoroutines() {
	if b.links.Synctest || b.Failed() || b.pkg == "" {
		return
	}
	left, buf := "", make([]byte, 1<<20)
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); runtime.Gosched() {
		left = ""
		for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(stack, b.pkg+".") && !strings.Contains(stack, "testing.tRunner(") {
				left += stack + "\n\n"
			}
		}
		if left == "" {
			return
		}
	}
	require.Fail(b, "goroutines are left after Close", left)
}

// goroutine returns the name of the present goroutine, such as "goroutine 17".
func goroutine() string {
	buf := make([]byte, 64)
	name, _, _ := strings.Cut(string(buf[:runtime.Stack(buf, false)]), " [")
	return name
}
