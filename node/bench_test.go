package node_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/suzukikasami"
	"github.com/dmutex/dmutex/transport/memlink"
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

// openLeases opens n nodes with a store over TCP on the loopback interface.
func openLeases(b testing.TB, a dmutex.Algorithm, n int) (nodes []*node.Node) {
	b.Helper()
	s := new(store.Memory)
	for i := range n {
		l, err := tcplink.New(tcplink.Config{Listen: "127.0.0.1:0"})
		require.NoError(b, err)
		joined := make(chan struct{}, 64)
		observer := &node.Observer{View: func(v node.ViewStatus) {
			if len(v.Members) == i+1 {
				joined <- struct{}{}
			}
		}}
		n, err := node.Open(b.Context(), s, l, node.Config{Algorithm: a, Lease: time.Second, Observer: observer})
		require.NoError(b, err)
		<-joined // so that they are numbered in this order
		nodes = append(nodes, n)
	}
	b.Cleanup(func() { closeAll(b, nodes) })
	return nodes
}

// BenchmarkAcquire measures an uncontended Acquire and Release over TCP, beside the cost of the
// messages alone: raw/1 is a request and an answer, raw/2 a fan-out to two peers, and so on. Groups
// with names that end in "lease" have a store.
func BenchmarkAcquire(b *testing.B) {
	for _, peers := range []int{1, 2, 7} {
		b.Run(fmt.Sprintf("raw/%d", peers), func(b *testing.B) { benchmarkRaw(b, peers) })
	}
	for _, tc := range []struct {
		name string
		a    dmutex.Algorithm
		n    int
		who  int
	}{
		{"central/own", central.New, 2, 0},
		{"central/witnessed/own", central.Witnessed, 2, 0}, // the witness is asked
		{"carvalho/again", ricart.Carvalho, 3, 0},
		{"ring/own", ring.New, 3, 0},
		{"suzukikasami/own", suzukikasami.New, 3, 0},
		{"central", central.New, 2, 1},
		{"ricart/2", ricart.New, 3, 0},
		{"ricart/7", ricart.New, 8, 0},
	} {
		run := func(b *testing.B, nodes []*node.Node) {
			m := nodes[tc.who].Mutex(nameAt(nodes[0].Self(), nodes[0].Status().View.Members))
			h, err := m.Acquire(b.Context()) // only the first one may need messages
			require.NoError(b, err)
			h.Release()
			before := nodes[tc.who].Status()
			b.ReportAllocs()
			for b.Loop() {
				h, err := m.Acquire(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				h.Release()
			}
			b.StopTimer()
			after, messages := nodes[tc.who].Status(), uint64(0)
			for k := range dmutex.Kinds {
				messages += after.Sent[k] - before.Sent[k] + after.Received[k] - before.Received[k]
			}
			b.ReportMetric(float64(messages)/float64(b.N), "messages/op")
		}
		b.Run(tc.name, func(b *testing.B) { run(b, tcpGroup(b, tc.a, tc.n, 0)) })
		b.Run(tc.name+"/lease", func(b *testing.B) { run(b, openLeases(b, tc.a, tc.n)) })
	}
}

// BenchmarkAcquireInMemory measures a node without a network: Acquire and Release over memlink,
// with each algorithm, in a group of three.
func BenchmarkAcquireInMemory(b *testing.B) {
	for _, a := range algorithms.All {
		b.Run(a.Name, func(b *testing.B) {
			nodes := memoryGroup(b, a.Algorithm, 3)
			m := nodes[1].Mutex(nameAt(nodes[0].Self(), nodes[0].Status().View.Members))
			b.ReportAllocs()
			for b.Loop() {
				h, err := m.Acquire(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				h.Release()
			}
			b.StopTimer()
			closeAll(b, nodes)
		})
	}
}

// benchmarkRaw sends 32 bytes to each peer, which answers with 32 bytes, with nothing around them.
func benchmarkRaw(b *testing.B, peers int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer l.Close()
	var conns []net.Conn
	answers := make(chan struct{}, peers)
	for range peers {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(b, err)
		defer c.Close()
		s, err := l.Accept()
		require.NoError(b, err)
		defer s.Close()
		go func() { // the peer
			buf := make([]byte, 32)
			for {
				if _, err := io.ReadFull(s, buf); err != nil {
					return
				}
				s.Write(buf)
			}
		}()
		go func() { // our reader
			buf := make([]byte, 32)
			for {
				if _, err := io.ReadFull(c, buf); err != nil {
					return
				}
				answers <- struct{}{}
			}
		}()
		conns = append(conns, c)
	}
	buf := binary.BigEndian.AppendUint64(make([]byte, 24), 1)
	b.ReportAllocs()
	for b.Loop() {
		for _, c := range conns {
			if _, err := c.Write(buf); err != nil {
				b.Fatal(err)
			}
		}
		for range conns {
			<-answers
		}
	}
}

// BenchmarkObserver measures an Acquire and a Release that need no message, without and with an
// Observer.
func BenchmarkObserver(b *testing.B) {
	var told int
	for _, tc := range []struct {
		name string
		*node.Observer
	}{
		{"nil", nil},
		{"told", &node.Observer{Wait: func(node.Event) { told++ }, Hold: func(node.Event) { told++ }}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			net, err := memlink.New(memlink.Config{})
			require.NoError(b, err)
			n, err := node.OpenStrict(b.Context(), 1, []dmutex.NodeID{1}, net.Link(1), node.Config{
				Observer: tc.Observer,
			})
			require.NoError(b, err)
			defer n.Close(b.Context())
			m := n.Mutex("x")
			b.ReportAllocs()
			for b.Loop() {
				h, err := m.Acquire(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				h.Release()
			}
		})
	}
}

// BenchmarkShared measures over TCP: join is one more reader of a node that shares the lock, and
// the others are 64 goroutines of two nodes over 100 names, which take each lock to read it, or in one
// of a hundred cases to write. In exclusive the readers take it alone, too.
func BenchmarkShared(b *testing.B) {
	b.Run("join", func(b *testing.B) {
		nodes := tcpGroup(b, central.New, 2, 0)
		m := nodes[1].Mutex(nameAt(nodes[0].Self(), nodes[0].Status().View.Members)).Shared()
		h, err := m.Acquire(b.Context())
		require.NoError(b, err)
		before := nodes[1].Status().Sent
		b.ReportAllocs()
		for b.Loop() {
			h, err := m.Acquire(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			h.Release()
		}
		require.Equal(b, before, nodes[1].Status().Sent)
		require.NoError(b, h.Release())
	})
	for _, name := range []string{"exclusive", "shared"} {
		b.Run(name, func(b *testing.B) {
			nodes := tcpGroup(b, central.New, 2, 0)
			b.SetParallelism(64 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					m := nodes[rand.IntN(2)].Mutex(fmt.Sprint("lock ", rand.IntN(100)))
					var way lock.Mutex = m
					if name == "shared" && rand.IntN(100) > 0 {
						way = m.Shared()
					}
					h, err := way.Acquire(b.Context())
					if err != nil {
						b.Error(err)
						return
					}
					h.Release()
				}
			})
		})
	}
}
