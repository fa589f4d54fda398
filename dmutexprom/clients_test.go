package dmutexprom_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/dmutexprom"
	"github.com/dmutex/dmutex/internal/servetest"
	"github.com/dmutex/dmutex/node"
)

// A member that serves clients counts them, the locks that they hold and wait for, and its refusals.
func TestClients(t *testing.T) {
	servetest.Run(t, func(t *testing.T, n *node.Node) {
		require.NoError(t, testutil.CollectAndCompare(dmutexprom.NewCollector(n), strings.NewReader(`
# HELP dmutex_client_locks Locks that clients of this node hold or wait for.
# TYPE dmutex_client_locks gauge
dmutex_client_locks{state="held"} 1
dmutex_client_locks{state="waiting"} 1
# HELP dmutex_clients Clients that this node serves.
# TYPE dmutex_clients gauge
dmutex_clients 1
# HELP dmutex_clients_refused_total Clients and requests of clients that were not allowed, or too many.
# TYPE dmutex_clients_refused_total counter
dmutex_clients_refused_total 1
`), "dmutex_client_locks", "dmutex_clients", "dmutex_clients_refused_total"))
	})
}
