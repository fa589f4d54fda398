package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
	"github.com/dmutex/dmutex/transport/session"
)

// A node that gets ready in the middle of a frame hears what was before that
// first. (Another peer's frame may bring it about at any point; here it is the
// frame itself.)
func TestReadyInTheMiddleOfAFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		n, err := Open(t.Context(), Config{Self: 1, Members: []dmutex.NodeID{1, 2}, Algorithm: ricart.New, Link: net.Link(1)})
		require.NoError(t, err)
		stopped := func(culprit uint64) []byte {
			return append(binary.BigEndian.AppendUint64([]byte{saysStopped}, culprit), reasonLeft, 'x')
		}
		p := n.peers[0]
		p.recv.Lock()
		p.meet()
		p.hear([][]byte{stopped(7), {saysReady}, stopped(8)})
		p.recv.Unlock()
		require.Equal(t, &PeerError{7, ErrLeft}, n.Mutex("x").Status().Err)
		require.Empty(t, p.early)
		require.EqualValues(t, 3, p.heardTo)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, n.Close(ctx), context.DeadlineExceeded)
	})
}

// A hold that is lost while its MaxHold begins is lost.
func TestMaxHoldOfALostHold(t *testing.T) {
	n := lone(t, 0)
	h, err := n.Mutex("x").Acquire(t.Context())
	require.NoError(t, err)
	h.lock.shard.abandon()
	h.limit(time.Hour)
	require.ErrorIs(t, h.Err(), ErrLost)
	require.ErrorIs(t, context.Cause(h.Context()), ErrLost)
	require.ErrorIs(t, h.Release(), ErrLost)
}

// What is said of a lock whose name is too long is said of none.
func TestStoppedNameIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		n, err := Open(t.Context(), Config{Self: 1, Members: []dmutex.NodeID{1, 2}, Algorithm: ricart.New, Link: net.Link(1)})
		require.NoError(t, err)
		message := append(make([]byte, 10), strings.Repeat("x", transport.MaxName+1)...)
		message[0] = saysStopped
		n.peers[0].handle(message)
		require.Zero(t, n.Status().Locks)
		require.Error(t, n.Status().Err)
		require.NoError(t, n.Close(t.Context()))
	})
}

// A peer that asks for what has no name of a lock is refused, and nothing
// else. It may ask as often as it likes: that makes no lock and takes no memory,
// of a lock that is held here or not.
func TestAskedByALiar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		n, err := Open(t.Context(), Config{Self: 1, Members: []dmutex.NodeID{1, 2}, Algorithm: ricart.New, Link: net.Link(1)})
		require.NoError(t, err)
		ask := func(name string) { n.peers[0].handle(append([]byte{saysAsk}, name...)) }
		for i, name := range []string{"", strings.Repeat("x", transport.MaxName+1), strings.Repeat("x", 60<<10)} {
			ask(name)
			require.EqualValues(t, i+1, n.Status().Refused)
		}
		for i := range 10_000 {
			ask(fmt.Sprint("name ", i))
		}
		ask(strings.Repeat("x", transport.MaxName))
		require.Zero(t, n.Status().Locks)
		require.EqualValues(t, 3, n.Status().Refused)
		require.NoError(t, n.Status().Err)
		require.NoError(t, n.Close(t.Context()))
	})

	n := lone(t, 0)
	h, err := n.Mutex("held").Acquire(t.Context())
	require.NoError(t, err)
	held, free := []byte("held"), []byte("free")
	n.asked(2, held)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		n.asked(2, held)
		n.asked(2, free)
	}))
	<-h.Asked()
	require.NoError(t, h.Release())
	require.EqualValues(t, 1, n.Status().Locks)
}

// Who led and left before this node was ready does not lead when it hears of that.
func TestEarlyTermOfALeaver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		n, err := Open(t.Context(), Config{Self: 1, Members: []dmutex.NodeID{1, 2, 3}, Algorithm: ricart.New, Link: net.Link(1)})
		require.NoError(t, err)
		hear := func(p *peer, event session.Event, messages ...[]byte) {
			p.recv.Lock()
			defer p.recv.Unlock()
			p.act(session.Input{Messages: messages, Event: event})
		}
		two, three := n.peers[0], n.peers[1]
		hear(two, session.Met, []byte{saysReady}, announcement(1, 5, "x"))
		hear(three, session.Met)
		hear(two, session.Left) // in a hurry, without the end of its term
		hear(three, 0, []byte{saysReady})
		n.terms.mu.Lock()
		leads := n.terms.elections["x"].term
		n.terms.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, n.Close(ctx), context.DeadlineExceeded)
		require.Equal(t, term{dmutex.None, 5}, leads)
	})
}

// That a lock is stopped is told, also if a peer says that it is for us that have
// left.
func TestStoppedByALiar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		var text bytes.Buffer
		n, err := Open(t.Context(), Config{
			Self: 1, Members: []dmutex.NodeID{1, 2}, Algorithm: ricart.New, Link: net.Link(1),
			Logger: slog.New(slog.NewTextHandler(&text, nil)),
		})
		require.NoError(t, err)
		message := append(make([]byte, 10), 'x')
		message[0], message[8], message[9] = saysStopped, 1, reasonLeft
		n.peers[0].handle(message)
		require.NoError(t, n.Close(t.Context()))
		require.Contains(t, text.String(), `msg="lock stopped" node=1 peer=1 lock=x`)
	})
}
