package node_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// tcpGroup opens n nodes over TCP on the loopback interface.
func tcpGroup(b testing.TB, a dmutex.Algorithm, n int, deadlock time.Duration) []*node.Node {
	b.Helper()
	var (
		members []dmutex.NodeID
		links   []*tcplink.Link
		nodes   []*node.Node
	)
	for id := range dmutex.NodeID(n) {
		members = append(members, id+1)
	}
	peers := make(map[dmutex.NodeID]string)
	for _, id := range members {
		peers[id] = ""
	}
	for _, id := range members {
		l, err := tcplink.New(tcplink.Config{Self: id, Listen: "127.0.0.1:0", Peers: peers})
		require.NoError(b, err)
		links = append(links, l)
	}
	for i, l := range links {
		for j, id := range members {
			if i != j {
				require.NoError(b, l.SetPeer(id, links[j].Addr().String()))
			}
		}
		n, err := node.OpenStrict(b.Context(), members[i], members, l, node.Config{Algorithm: a, Deadlock: deadlock})
		require.NoError(b, err)
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		require.NoError(b, n.Ready(b.Context()))
	}
	b.Cleanup(func() { closeAll(b, nodes) })
	return nodes
}

// A cycle through three nodes over TCP has one victim. Once the victim has released its locks, all
// others get theirs.
func TestCycleOverTCP(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, a := range algorithms.Some() {
		t.Run(a.Name, func(t *testing.T) {
			nodes := tcpGroup(t, a.Algorithm, 3, 5*time.Millisecond)
			ctx := nodetest.ContextFor(t, time.Minute)
			var txns []*node.Txn
			for i, n := range nodes {
				txn := n.Txn()
				_, err := txn.Acquire(ctx, fmt.Sprint(i))
				require.NoError(t, err)
				txns = append(txns, txn)
			}
			errs := make(chan error)
			for i, txn := range txns {
				go func() {
					_, err := txn.Acquire(ctx, fmt.Sprint((i+1)%3))
					errs <- errors.Join(txn.Release(), err)
				}()
			}
			victims := 0
			for range txns {
				if err := <-errs; err != nil {
					require.ErrorIs(t, err, node.ErrDeadlock)
					victims++
				}
			}
			require.Equal(t, 1, victims)
			for _, n := range nodes { // no lock is still held, and no withdrawn request is in the way
				for i := range nodes {
					h, err := n.Mutex(fmt.Sprint(i)).Acquire(ctx)
					require.NoError(t, err)
					require.NoError(t, h.Release())
				}
			}
		})
	}
}

// A stranger on a plain link takes the place of member 3 at member 1 while the two are not connected. It claims
// a life of tomorrow and says nothing. Member 3 is refused there again and again. It grants nothing meanwhile,
// keeps what it holds, and goes on when the stranger has gone. Another stranger does not end it either.
func TestSilentStrangerInAPlace(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ctx := nodetest.ContextFor(t, time.Minute)
	members, peers := []dmutex.NodeID{1, 2, 3}, map[dmutex.NodeID]string{1: "", 2: "", 3: ""}
	var links []*tcplink.Link
	for _, id := range members {
		l, err := tcplink.New(tcplink.Config{Self: id, Listen: "127.0.0.1:0", Peers: peers})
		require.NoError(t, err)
		links = append(links, l)
	}
	one := links[0].Addr().String()
	way := newWay(t, one) // from member 3 to member 1
	require.NoError(t, links[1].SetPeer(1, one))
	require.NoError(t, links[2].SetPeer(2, links[1].Addr().String()))
	require.NoError(t, links[2].SetPeer(1, way.Addr().String()))
	var nodes []*node.Node
	for i, l := range links { // the higher number dials
		n, err := node.OpenStrict(ctx, members[i], members, l, node.Config{Algorithm: central.New})
		require.NoError(t, err)
		nodes = append(nodes, n)
	}
	t.Cleanup(func() { closeAll(t, nodes) })
	for _, n := range nodes {
		require.NoError(t, n.Ready(ctx))
	}
	held, err := nodes[2].Mutex("held").Acquire(ctx)
	require.NoError(t, err)
	for range 2 {
		way.close()
		stranger := takePlace(t, one, 3, 1, nodes[2].Status().Life+uint64(23*time.Hour))
		way.open()
		for range 3 { // at the third attempt it has been refused twice
			select {
			case <-way.used:
			case <-nodes[2].Done():
				require.NoError(t, nodes[2].Status().Err)
			}
		}
		stranger.Close()
		for i, n := range nodes {
			h, err := n.Mutex(fmt.Sprint("free ", i)).Acquire(ctx)
			require.NoError(t, err)
			require.NoError(t, h.Release())
		}
		require.NoError(t, held.Err())
		require.NoError(t, nodes[2].Status().Err)
	}
	require.NoError(t, held.Release())
}

// takePlace connects in the name of a node, as soon as the other one has lost its connection with it.
func takePlace(t *testing.T, address string, from, to dmutex.NodeID, life uint64) net.Conn {
	greeting, err := binary.Append([]byte("dmutex\x00\x02"), binary.BigEndian, [4]uint64{uint64(from), uint64(to), life, 0})
	require.NoError(t, err)
	answer := make([]byte, len(greeting))
	for {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		_, err = c.Write(greeting)
		require.NoError(t, err)
		_, err = io.ReadFull(c, answer)
		require.NoError(t, err)
		if binary.BigEndian.Uint64(answer[len(answer)-8:]) == 0 {
			return c
		}
		c.Close()
	}
}

// A way carries connections to an address while it is open.
type way struct {
	net.Listener
	used chan struct{} // receives one for each connection while the way is open

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

func newWay(t *testing.T, address string) *way {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &way{Listener: l, used: make(chan struct{}, 1000)}
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(w.close)
	t.Cleanup(func() { l.Close() })
	running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", address)
			w.mu.Lock()
			if w.closed || err != nil {
				w.mu.Unlock()
				near.Close()
				if far != nil {
					far.Close()
				}
				continue
			}
			w.conns = append(w.conns, near, far)
			w.used <- struct{}{}
			w.mu.Unlock()
			carry := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				to.Close()
				from.Close()
			}
			running.Go(func() { carry(far, near) })
			running.Go(func() { carry(near, far) })
		}
	})
	return w
}

func (w *way) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

// open opens the way. What used it before counts no more.
func (w *way) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = false
	for len(w.used) > 0 {
		<-w.used
	}
}
