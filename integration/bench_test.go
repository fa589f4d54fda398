package integration

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/linktest"
	"github.com/dmutex/dmutex/transport/natslink"
)

// The link should cost little compared with NATS itself: see BenchmarkNATS.
func BenchmarkNATSLink(b *testing.B) {
	s := open(b)
	nodes := make([]*natslink.Link, 2)
	for i := range nodes {
		l, err := natslink.New(connect(b, s), natslink.Config{Self: dmutex.NodeID(i + 1), Prefix: prefix})
		require.NoError(b, err)
		b.Cleanup(func() { l.Close() })
		nodes[i] = l
	}
	pong := make(chan struct{}, 1)
	require.NoError(b, nodes[0].Open(transport.Host{Deliver: linktest.Each(func(dmutex.NodeID, []byte) { pong <- struct{}{} })}))
	require.NoError(b, nodes[1].Open(transport.Host{Deliver: linktest.Each(func(from dmutex.NodeID, frame []byte) { nodes[1].Send(from, frame) })}))
	frame := make([]byte, 32)
	b.ReportAllocs()
	for b.Loop() {
		nodes[0].Send(2, frame)
		<-pong
	}
}

// The same work on two connections without links.
func BenchmarkNATS(b *testing.B) {
	s := open(b)
	near, far := connect(b, s), connect(b, s)
	pong := make(chan struct{}, 1)
	subscribe := func(nc *nats.Conn, subject string, deliver nats.MsgHandler) {
		_, err := nc.Subscribe(subject, deliver)
		require.NoError(b, err)
		require.NoError(b, nc.Flush())
	}
	subscribe(near, prefix+".1.*", func(*nats.Msg) { pong <- struct{}{} })
	subscribe(far, prefix+".2.*", func(m *nats.Msg) { far.Publish(prefix+".1.2", m.Data) })
	frame := make([]byte, 32)
	b.ReportAllocs()
	for b.Loop() {
		near.Publish(prefix+".2.1", frame)
		<-pong
	}
}

// An uncontended Acquire and Release, in a group of three over
// NATS.
func BenchmarkAcquire(b *testing.B) {
	for _, a := range []struct {
		name string
		dmutex.Algorithm
	}{{"central", central.New}, {"ricart", ricart.New}} {
		b.Run(a.name, func(b *testing.B) {
			s := open(b)
			members := []dmutex.NodeID{1, 2, 3}
			var nodes []*node.Node
			for _, id := range members {
				l, err := natslink.New(connect(b, s), natslink.Config{Self: id, Prefix: prefix})
				require.NoError(b, err)
				n, err := node.OpenStrict(b.Context(), id, members, l, node.Config{Algorithm: a.Algorithm})
				require.NoError(b, err)
				nodes = append(nodes, n)
			}
			m := nodes[1].Mutex("x")
			require.NoError(b, nodes[1].Ready(b.Context()))
			b.ReportAllocs()
			for b.Loop() {
				h, err := m.Acquire(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				h.Release()
			}
			b.StopTimer()
			for _, n := range nodes {
				go n.Close(context.Background())
			}
			for _, n := range nodes {
				require.NoError(b, n.Close(context.Background()))
			}
		})
	}
}
