//go:build unix

package faults

import (
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
)

// A natsServer stops and starts again at another port, because another program may
// have taken the old one. The cables to it know the port.
type natsServer struct {
	t       *testing.T
	records string // where JetStream keeps its streams; empty without it
	mu      sync.Mutex
	server  *server.Server
	where   string
	running bool
}

func newNATSServer(t *testing.T, records string) *natsServer {
	s := &natsServer{t: t, records: records}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *natsServer) start() {
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: s.records != "", StoreDir: s.records})
	require.NoError(s.t, err)
	ns.Start()
	require.True(s.t, ns.ReadyForConnections(patience))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server, s.where, s.running = ns, ns.Addr().String(), true
}

// stop reports whether the server was running.
func (s *natsServer) stop() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return false
	}
	s.running = false
	s.server.Shutdown()
	s.server.WaitForShutdown()
	return true
}

func (s *natsServer) isRunning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// address is where the server is, or was.
func (s *natsServer) address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.where
}
