package tcplink_test

import (
	"crypto/tls"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/linktest"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// The link should cost little beside the socket: compare with BenchmarkRaw.
func BenchmarkPingPong(b *testing.B) {
	b.Run("plain", func(b *testing.B) { benchmarkPingPong(b, plain) })
	b.Run("TLS", func(b *testing.B) { benchmarkPingPong(b, overTLS(b)) })
}

func benchmarkPingPong(b *testing.B, secure func(dmutex.NodeID) *tls.Config) {
	pong := make(chan struct{}, 1)
	ping := pingPong(b, secure, func() { pong <- struct{}{} })
	frame := make([]byte, 32)
	ping(frame)
	<-pong
	b.ReportAllocs()
	for b.Loop() {
		ping(frame)
		<-pong
	}
}

// BenchmarkBounce has no goroutine that waits: the pong's delivery sends the next
// ping, as machines do.
func BenchmarkBounce(b *testing.B) {
	b.Run("plain", func(b *testing.B) { benchmarkBounce(b, plain) })
	b.Run("TLS", func(b *testing.B) { benchmarkBounce(b, overTLS(b)) })
}

func benchmarkBounce(b *testing.B, secure func(dmutex.NodeID) *tls.Config) {
	var ping func([]byte)
	frame := make([]byte, 32)
	left := b.N
	done := make(chan struct{})
	ping = pingPong(b, secure, func() {
		if left--; left <= 0 {
			close(done)
			return
		}
		ping(frame)
	})
	b.ReportAllocs()
	b.ResetTimer()
	ping(frame)
	<-done
}

// pingPong returns a function that sends a frame to a node, which sends it back.
func pingPong(t testing.TB, secure func(dmutex.NodeID) *tls.Config, pong func()) (ping func(frame []byte)) {
	nodes := make([]*tcplink.Link, 2)
	for i := range nodes {
		self := dmutex.NodeID(i + 1)
		l, err := tcplink.New(tcplink.Config{Self: self, Listen: "127.0.0.1:0", TLS: secure(self)})
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		nodes[i] = l
	}
	for i, l := range nodes {
		require.NoError(t, l.SetPeer(dmutex.NodeID(2-i), nodes[1-i].Addr().String()))
	}
	require.NoError(t, nodes[0].Open(transport.Host{Deliver: linktest.Each(func(dmutex.NodeID, []byte) { pong() })}))
	require.NoError(t, nodes[1].Open(transport.Host{Deliver: linktest.Each(func(from dmutex.NodeID, frame []byte) { nodes[1].Send(from, frame) })}))
	return func(frame []byte) { nodes[0].Send(2, frame) }
}

// BenchmarkRaw does the same work over a bare connection.
func BenchmarkRaw(b *testing.B) {
	b.Run("plain", func(b *testing.B) { benchmarkRaw(b, nil) })
	b.Run("TLS", func(b *testing.B) {
		c := overTLS(b)(1)
		c.InsecureSkipVerify = true
		benchmarkRaw(b, c)
	})
}

func benchmarkRaw(b *testing.B, secure *tls.Config) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer listener.Close()
	near, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(b, err)
	defer near.Close()
	far, err := listener.Accept()
	require.NoError(b, err)
	defer far.Close()
	if secure != nil {
		near, far = tls.Client(near, secure), tls.Server(far, secure)
	}
	go func() {
		frame := make([]byte, 4+32)
		for {
			if _, err := io.ReadFull(far, frame); err != nil {
				return
			}
			far.Write(frame)
		}
	}()
	frame := make([]byte, 4+32)
	b.ReportAllocs()
	for b.Loop() {
		near.Write(frame)
		io.ReadFull(near, frame)
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	pong := make(chan struct{}, 1)
	ping := pingPong(t, plain, func() { pong <- struct{}{} })
	frame := make([]byte, 32)
	ping(frame)
	<-pong
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		ping(frame)
		<-pong
	}))
}
