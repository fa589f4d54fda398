package tcplink_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// Every node listens on a free port, another one after a restart.
var links = dmutextest.Links{
	New: func(t *testing.T) func(dmutex.NodeID) transport.Link {
		nodes := make(map[dmutex.NodeID]*tcplink.Link)
		return func(self dmutex.NodeID) transport.Link {
			l, err := tcplink.New(tcplink.Config{Self: self, Listen: "127.0.0.1:0"})
			require.NoError(t, err)
			delete(nodes, self)
			for id, other := range nodes {
				require.NoError(t, l.SetPeer(id, other.Addr().String()))
				if err := other.SetPeer(self, l.Addr().String()); !errors.Is(err, transport.ErrClosed) {
					require.NoError(t, err)
				}
			}
			nodes[self] = l
			return l
		}
	},
	Ordered: true,
}

func TestLink(t *testing.T) { dmutextest.TestLink(t, links) }

func TestSession(t *testing.T) {
	dmutextest.TestSession(t, links, dmutextest.Faults{Seed: 1, Loss: .1, Duplicate: .1, Reorder: .1}, nil)
}
