package memlink_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
)

var links = dmutextest.Links{
	New: func(t *testing.T) func(dmutex.NodeID) transport.Link {
		network, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		return network.Link
	},
	Ordered:  true,
	Synctest: true,
}

func TestLink(t *testing.T) { dmutextest.TestLink(t, links) }
func TestSession(t *testing.T) {
	dmutextest.TestSession(t, links, dmutextest.Faults{Seed: 1, Loss: .1, Duplicate: .1, Reorder: .1}, nil)
}
