package dmutexotel_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/dmutex/dmutex/dmutexotel"
	"github.com/dmutex/dmutex/internal/kit/servetest"
	"github.com/dmutex/dmutex/node"
)

// A member that serves clients counts them, the locks that they hold and wait for, and its refusals.
func TestClients(t *testing.T) {
	servetest.Run(t, func(t *testing.T, n *node.Node) {
		reader := sdk.NewManualReader()
		_, err := dmutexotel.Register(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test"), n, dmutexotel.Options{})
		require.NoError(t, err)
		read := lines(t, reader)
		for _, line := range []string{
			"dmutex.clients 1 {client}", "dmutex.client.locks{dmutex.state=held} 1 {lock}", "dmutex.client.locks{dmutex.state=waiting} 1 {lock}",
			"dmutex.clients.refused 1 {refusal}",
		} {
			require.Contains(t, read, line)
		}
	})
}
