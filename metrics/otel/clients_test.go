package dmutexotel_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/kit/servetest"
	"github.com/dmutex/dmutex/metrics/otel"
	"github.com/dmutex/dmutex/node"
)

// A member that serves clients counts them, the locks that they hold and wait for, and its refusals.
func TestClients(t *testing.T) {
	servetest.Run(t, func(t *testing.T, n *node.Node, _ *client.Client) {
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

// A client has metrics of its session.
func TestRegisterClient(t *testing.T) {
	servetest.Run(t, func(t *testing.T, _ *node.Node, c *client.Client) {
		reader := sdk.NewManualReader()
		registered, err := dmutexotel.RegisterClient(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test"), c, dmutexotel.Options{})
		require.NoError(t, err)
		read := lines(t, reader)
		for _, line := range []string{
			"dmutex.session.up 1 ", "dmutex.session.begun 1 {session}", "dmutex.session.lost 0 {session}", "dmutex.session.refused 1 {request}",
			"dmutex.session.locks{dmutex.state=held} 1 {lock}", "dmutex.session.locks{dmutex.state=waiting} 1 {lock}",
		} {
			require.Contains(t, read, line)
		}
		require.NoError(t, registered.Unregister())
		require.Empty(t, lines(t, reader))
	})
}
