// Package linktest tests that a kind of link keeps the contract of [transport.Link]:
// [TestLink] tests the link alone, [TestStream] streams over it, and [TestDynamicLink]
// what a [transport.DynamicLink] does in addition.
package linktest

import (
	"bytes"
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

// Links describes a kind of link to the tests of this package.
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

// TestLink tests that a kind of link keeps the contract of [transport.Link], also in a type that
// embeds it. It must not run in parallel with other tests of the link's package, because it looks
// for goroutines that were left behind.
func TestLink(t *testing.T, links Links) {
	for _, test := range []struct {
		name string
		run  func(*bench)
	}{
		{"frames arrive once, as they were sent", (*bench).frames},
		{"Send refuses what it cannot send", (*bench).refusals},
		{"Open is called once, and Close at any time", (*bench).openAndClose},
		{"Close waits for deliver", (*bench).closeWaits},
		{"deliver may send, and ends with Close", (*bench).bounce},
		{"a silent peer delays no other, and costs little", (*bench).flood},
		{"a node may restart", (*bench).restart},
	} {
		t.Run(test.name, func(t *testing.T) { links.inBench(t, test.run) })
	}
}

// inBench runs a test, in a bubble if the links work in one.
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

// make returns a link that is closed with the test. A type embeds it, as the wrapper of a user
// does: so the tests see only what is left of it then.
func (b *bench) make(self dmutex.NodeID) transport.Link {
	l := b.link(self)
	b.Cleanup(func() { require.NoError(b, l.Close()) })
	b.pkg = reflect.Indirect(reflect.ValueOf(l)).Type().PkgPath()
	if d, ok := l.(transport.DynamicLink); ok && self == dmutex.None {
		return struct{ transport.DynamicLink }{d}
	}
	return struct{ transport.Link }{l}
}

// open returns nodes that keep what arrives.
func (b *bench) open(ids ...dmutex.NodeID) (nodes []*member) {
	for _, id := range ids {
		nodes = append(nodes, b.member(id))
	}
	for _, m := range nodes {
		require.NoError(b, m.Open(host(m.keep)))
	}
	return nodes
}

// member returns a node whose link is not open yet.
func (b *bench) member(self dmutex.NodeID) *member {
	return &member{b.make(self), b, self, make(chan arrival, 1<<12)}
}

// ignore takes what arrives.
func ignore(dmutex.NodeID, []byte) {}

// Each returns a [transport.Host.Deliver] that calls deliver for one frame after the other, and with
// nil for a stranger.
func Each(deliver func(from dmutex.NodeID, frame []byte)) func(from dmutex.NodeID, frames [][]byte) {
	return func(from dmutex.NodeID, frames [][]byte) {
		if len(frames) == 0 {
			deliver(from, nil)
		}
		for _, frame := range frames {
			deliver(from, frame)
		}
	}
}

// host returns a host that gives the link nothing else.
func host(deliver func(from dmutex.NodeID, frame []byte)) transport.Host {
	return transport.Host{Deliver: Each(deliver)}
}

func (m *member) keep(from dmutex.NodeID, frame []byte) {
	if goroutine() == m.b.home {
		m.b.Error("Send delivers by itself")
	}
	m.got <- arrival{from, bytes.Clone(frame)}
}

// next waits for a frame.
func (m *member) next() arrival {
	m.b.Helper()
	return await(m.b, m.got, "a frame for node "+m.self.String())
}

// patience is long, because only a failing test waits for so long.
const patience = 2 * time.Minute

func await[T any](b *bench, c <-chan T, what string) (v T) {
	b.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		require.FailNow(b, "waited in vain for "+what)
	}
	return v
}

// A gate blocks calls of deliver until it is opened, at the latest before the links are closed.
type gate struct {
	b       *bench
	reached chan bool // by the first deliver
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

// holds sends a frame and waits until the gate blocks its delivery.
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
func (m *member) tell(to *member, frame []byte) {
	m.b.Helper()
	require.NoError(m.b, m.Send(to.self, frame))
	require.Equal(m.b, arrival{m.self, frame}, to.next())
}

// frames lets several goroutines of two nodes send at once to a third node. That one is blocked
// meanwhile, so that frames can gather in bursts.
func (b *bench) frames() {
	const senders, frames = 8, 200
	to, gate := b.member(1), b.gate()
	require.ErrorIs(b, to.Open(transport.Host{}), dmutex.ErrMisuse, "it has no Deliver")
	require.NoError(b, to.Open(transport.Host{Deliver: func(from dmutex.NodeID, frames [][]byte) {
		if len(frames) == 0 {
			b.Error("a burst without frames")
		}
		for _, frame := range frames {
			to.keep(from, frame)
		}
		gate.pass(from, nil)
	}}))
	require.ErrorIs(b, to.Open(host(ignore)), dmutex.ErrMisuse)
	content := func(from dmutex.NodeID, sender, i byte) []byte {
		frame := make([]byte, 3+int(i)*int(i)%200)
		if sender == 0 && i < 2 {
			frame = make([]byte, to.MaxFrame()-int(i))
		}
		_, _ = rand.NewChaCha8([32]byte{byte(from), sender, i}).Read(frame)
		frame[0], frame[1] = sender, i
		return frame
	}
	var sending sync.WaitGroup
	for _, from := range b.open(2, 3) {
		for sender := range byte(senders) {
			sending.Go(func() {
				for i := range byte(frames) {
					frame := content(from.self, sender, i)
					if err := from.Send(1, frame); err != nil {
						b.Errorf("Send: %v", err)
					}
					clear(frame) // it is the caller's again
				}
			})
		}
	}
	sending.Wait()
	gate.open()
	var heard [4][senders][]byte // by node and goroutine of the sender
	for range 2 * senders * frames {
		a := to.next()
		require.Greater(b, len(a.frame), 1)
		sender, i := a.frame[0], a.frame[1]
		require.Equal(b, content(a.from, sender, i), a.frame)
		before := heard[a.from][sender]
		require.NotContains(b, string(before), string([]byte{i}), "frame %d comes a second time", i)
		if b.links.Ordered {
			require.Len(b, before, int(i), "out of order, or one is lost")
		}
		heard[a.from][sender] = append(before, i)
	}
	b.settle()
	require.Empty(b, to.got, "a frame comes a second time, and last")
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

func (b *bench) openAndClose() {
	never := b.link(1)
	require.ErrorIs(b, never.Send(2, []byte{1}), transport.ErrClosed, "it is not open")
	require.NoError(b, never.Close())
	require.NoError(b, never.Close())
	require.ErrorIs(b, never.Open(host(ignore)), transport.ErrClosed)
	require.ErrorIs(b, never.Trouble(2), transport.ErrClosed)

	nodes := b.open(1, 2)
	require.ErrorIs(b, nodes[0].Open(host(ignore)), dmutex.ErrMisuse)
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
	require.NoError(b, to.Open(host(gate.pass)))
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
		nodes[0].tell(nodes[1], []byte{1}) // also a Close that ends only some round trips later
	}
	gate.open()
	await(b, closed, "Close")
}

// bounce sends frames to and fro between two nodes, and then closes one of them.
func (b *bench) bounce() {
	const enough, balls = 2000, 50
	nodes := []*member{b.member(1), b.member(2)}
	var arrived atomic.Int32
	var closing, closed atomic.Bool
	flowing := make(chan bool)
	for _, m := range nodes {
		require.NoError(b, m.Open(host(func(from dmutex.NodeID, ball []byte) {
			if m.self == 2 && closed.Load() {
				b.Error("delivered after Close")
			}
			if arrived.Add(1) == enough {
				close(flowing)
			}
			if err := m.Send(from, ball); err != nil && !closing.Load() {
				b.Errorf("Send from deliver: %v", err)
			}
		})))
	}
	throw := func() {
		for range balls {
			require.NoError(b, nodes[0].Send(2, []byte{1}))
		}
	}
	throw()
	await(b, flowing, "frames")
	closing.Store(true)
	require.NoError(b, nodes[1].Close())
	closed.Store(true)
	throw()
	if b.links.Synctest {
		time.Sleep(time.Minute) // of the bubble's clock: what is late comes now
	}
	b.settle()
	require.NoError(b, nodes[0].Close())
}

// flood sends 128 MiB to an absent peer, and to one that does not read. A good part of it
// must be refused or lost, because the link must not keep it all. (Where a server runs in
// this process, its buffers count too: a NATS server keeps up to 64 MiB for a slow client.)
// Meanwhile the others still reach each other.
func (b *bench) flood() {
	const (
		flood = 128 << 20
		limit = 96 << 20
	)
	nodes := b.open(1, 3)
	require.NoError(b, b.link(2).Close()) // absent
	frame := make([]byte, min(32<<10, nodes[0].MaxFrame()))
	before := heap()
	for _, peer := range []string{"absent", "deaf"} {
		if peer == "deaf" {
			require.NoError(b, b.make(2).Open(host(b.gate().pass)))
		}
		for i := range flood / len(frame) {
			for range 20 { // while it is refused the others may run
				err := nodes[0].Send(2, frame)
				if err == nil {
					break
				}
				require.ErrorIs(b, err, transport.ErrFull)
				runtime.Gosched()
			}
			if i%16 == 0 {
				nodes[0].tell(nodes[1], []byte{1})
				nodes[1].tell(nodes[0], []byte{2})
			}
		}
		require.Less(b, heap()-before, int64(limit), "bytes are kept of 128 MiB for a peer that is %s", peer)
	}
}

// heap returns how many bytes are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func (b *bench) restart() {
	nodes := b.open(1, 2, 3)
	for round := range byte(4) {
		i := int(round) % 2 * 2 // the node with the lowest id, and the one with the highest
		for _, other := range nodes {
			if other != nodes[i] {
				other.tell(nodes[i], []byte{round})
			}
		}
		require.NoError(b, nodes[i].Close())
		s := b.member(nodes[i].self)
		require.NoError(b, s.Open(host(s.keep)))
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

// checkGoroutines runs after all links are closed. In a bubble, synctest checks the
// same. A goroutine may need a moment to end.
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
