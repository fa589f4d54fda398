//go:build unix

package faults

import (
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/store/natsstore"
)

// A natsServer starts again at another port, because another program may have taken the old one. The cables to it
// know the port.
type natsServer struct {
	t       *testing.T
	records string // where JetStream keeps its streams
	server  *server.Server
	where   atomic.Value
}

func newNATSServer(t *testing.T) *natsServer {
	s := &natsServer{t: t, records: t.TempDir()}
	s.Start()
	t.Cleanup(s.Crash)
	nc, err := nats.Connect("nats://" + s.address())
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = natsstore.Open(t.Context(), js, bucket, "first") // makes the bucket
	require.NoError(t, err)
	return s
}

func (s *natsServer) Start() {
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: s.records})
	require.NoError(s.t, err)
	ns.Start()
	require.True(s.t, ns.ReadyForConnections(patience))
	s.server = ns
	s.where.Store(ns.Addr().String())
}

// Crash ends the server.
func (s *natsServer) Crash() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
}

// address is where the server is, or was.
func (s *natsServer) address() string { return s.where.Load().(string) }
