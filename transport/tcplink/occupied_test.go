package tcplink

import (
	"encoding/binary"
	"io"
	"math"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

func (g greeting) write(w io.Writer) error {
	_, err := w.Write(g.bytes())
	return err
}

// writeGreeting greets without telling a life.
func writeGreeting(w io.Writer, from, to dmutex.NodeID) error {
	return greeting{From: from, To: to}.write(w)
}

// readGreeting returns the sender of a greeting to self.
func readGreeting(r io.Reader, self dmutex.NodeID) (from dmutex.NodeID, err error) {
	var g greeting
	if err := g.read(r); err != nil {
		return dmutex.None, err
	}
	if g.To != self {
		return dmutex.None, misled(g.To)
	}
	return g.From, nil
}

// greetAs connects to link 1 as a process of node 2, and returns the answer.
func greetAs(t *testing.T, l *Link, life uint64) (net.Conn, greeting) {
	t.Helper()
	c := dialByHand(t, l)
	require.NoError(t, greeting{From: 2, To: 1, Life: life}.write(c))
	var answer greeting
	require.NoError(t, answer.read(c))
	return c, answer
}

// answerByHand waits until the other side asks for a heartbeat, and sends a frame. An empty
// frame is a heartbeat.
func answerByHand(t *testing.T, c net.Conn, frame string) {
	var size [headerSize]byte
	for binary.BigEndian.Uint32(size[:]) != question {
		if _, err := io.ReadFull(c, size[:]); err != nil {
			t.Error(err)
			return
		}
	}
	if _, err := c.Write(appendFrame(nil, []byte(frame))); err != nil {
		t.Error(err)
	}
}

// A process whose connection answers is not replaced. Another process with its number is told that
// the first has a lower life, and none of the two lives that are connected. Any frame is an answer: behind many frames a heartbeat comes
// too late, or finds no room.
func TestConnectedProcessStays(t *testing.T) {
	l, got := openLinkFor(t, transport.Host{Life: func() (own, highest uint64) { return 5, 100 }}, Config{Self: 1}, slowGrace())
	first, answer := greetAs(t, l, 10)
	require.Equal(t, greeting{From: 1, To: 2}, answer)
	for _, frame := range []string{"", "", "busy"} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			answerByHand(t, first, frame)
		}()
		second, answer := greetAs(t, l, 20) // with the higher life
		require.Equal(t, greeting{From: 1, To: 2, Taken: 1}, answer)
		requireEnd(t, second)
		<-done
	}
	require.Equal(t, arrival{2, "busy"}, next(t, got))
	sendByHand(t, first, "still here")
	require.Equal(t, arrival{2, "still here"}, next(t, got))
	require.NoError(t, l.Send(2, []byte("so am I")))
	require.Equal(t, "so am I", readByHand(t, first))
}

// slowGrace gives a connection all the time that it needs to answer.
func slowGrace() pace {
	pace := defaultPace
	pace.grace = time.Hour
	return pace
}

// A connection that does not answer is replaced by one of the same life or of a higher
// life.
func TestSilentProcessIsReplaced(t *testing.T) {
	pace := defaultPace
	pace.grace = time.Millisecond
	for _, life := range []uint64{10, 20} {
		l, got := openLink(t, 1, pace)
		first, _ := greetAs(t, l, 10)
		second, answer := greetAs(t, l, life)
		require.Zero(t, answer.Taken)
		requireEnd(t, first)
		sendByHand(t, second, "hello")
		require.Equal(t, arrival{2, "hello"}, next(t, got))
		require.NoError(t, l.Send(2, []byte("welcome")))
		require.Equal(t, "welcome", readByHand(t, second))
	}
}

// A process with a lower life is refused and told the higher life. The first process is not asked.
func TestLowerLifeIsRefused(t *testing.T) {
	l, got := openLink(t, 1, slowGrace())
	first, _ := greetAs(t, l, 20)
	second, answer := greetAs(t, l, 10)
	require.Equal(t, greeting{From: 1, To: 2, Taken: 20}, answer)
	requireEnd(t, second)
	sendByHand(t, first, "hello")
	require.Equal(t, arrival{2, "hello"}, next(t, got))
}

// A life that no correct process can have is refused, so it cannot keep the true process out.
func TestLifeFarAheadIsRefused(t *testing.T) {
	l, got := openLinkFor(t, transport.Host{Life: func() (own, highest uint64) { return 5, 100 }}, Config{Self: 1}, slowGrace())
	impostor := dialByHand(t, l)
	require.NoError(t, greeting{From: 2, To: 1, Life: 101}.write(impostor))
	requireEnd(t, impostor)
	require.ErrorContains(t, l.Trouble(2), "far ahead of the clock")
	peer, answer := greetAs(t, l, 100)
	require.Zero(t, answer.Taken)
	sendByHand(t, peer, "hello")
	require.Equal(t, arrival{2, "hello"}, next(t, got))
}

// Two links with one number: the second is told that its number is taken, and connects when
// the first has closed.
func TestTwoLinksWithOneNumber(t *testing.T) {
	one, got := openLink(t, 1, slowGrace())
	book := map[dmutex.NodeID]string{1: one.Addr().String()}
	first, err := newLink(Config{Self: 2, Listen: "127.0.0.1:0", Peers: book}, defaultPace)
	require.NoError(t, err)
	defer first.Close()
	require.NoError(t, first.Open(transport.Host{
		Deliver: func(dmutex.NodeID, [][]byte) {},
		Life:    func() (own, highest uint64) { return 10, math.MaxUint64 },
		Taken:   func(dmutex.NodeID, uint64) { t.Error("the first is refused") },
	}))
	require.NoError(t, first.Send(1, []byte("first")))
	require.Equal(t, arrival{2, "first"}, next(t, got))

	type word struct {
		peer dmutex.NodeID
		life uint64
	}
	taken := make(chan word, 1000)
	second, err := newLink(Config{Self: 2, Listen: "127.0.0.1:0", Peers: book}, defaultPace)
	require.NoError(t, err)
	defer second.Close()
	require.NoError(t, second.Open(transport.Host{
		Deliver: func(dmutex.NodeID, [][]byte) {},
		Life:    func() (own, highest uint64) { return 20, math.MaxUint64 },
		Taken:   func(peer dmutex.NodeID, life uint64) { taken <- word{peer, life} },
	}))
	for range 2 { // at the second refusal, Trouble knows the first
		require.Equal(t, word{1, 1}, <-taken)
	}
	require.ErrorContains(t, second.Trouble(1), "another process that uses the number of this node, 2")
	require.NoError(t, first.Send(1, []byte("again")))
	require.Equal(t, arrival{2, "again"}, next(t, got))

	require.NoError(t, first.Close())
	require.NoError(t, second.Send(1, []byte("second")))
	require.Equal(t, arrival{2, "second"}, next(t, got))
}

// A peer that asks and does not read the answers takes bounded memory.
func TestFloodOfQuestions(t *testing.T) {
	l, _ := openLink(t, 1, defaultPace)
	c, _ := greetAs(t, l, 10)
	l.mu.RLock()
	p := l.peers[2]
	l.mu.RUnlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn.out = []byte{0} // as if drain were stuck while writing it
	for range backlog {
		p.say(heartbeat)
	}
	require.LessOrEqual(t, len(p.pending), backlog)
	p.pending, p.conn.out = nil, nil
	c.Close()
}
