package serve

import (
	"strings"
	"testing"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/kit/servetest"
	"github.com/dmutex/dmutex/internal/metrics"
	"github.com/dmutex/dmutex/metrics/prom"
	"github.com/dmutex/dmutex/node"
)

// The page, which has no library for it, has what the adapter for that library exports.
func TestPage(t *testing.T) {
	servetest.Run(t, func(t *testing.T, n *node.Node, _ *client.Client) {
		h, err := dmutexprom.NewHistograms(dmutexprom.Options{})
		require.NoError(t, err)
		p := newPage()
		for _, o := range []*node.Observer{h.Observer(), p.observer()} {
			for i := range 40 {
				took := time.Duration(1<<i) * time.Nanosecond
				o.Wait(node.Event{Outcome: "granted", Took: took})
				o.Hold(node.Event{Outcome: "lost", Took: took})
			}
			o.View(node.ViewStatus{Took: 200 * time.Microsecond})
		}
		registry := prom.NewPedanticRegistry()
		require.NoError(t, registry.Register(h))
		require.NoError(t, registry.Register(dmutexprom.NewCollector(n)))
		var text strings.Builder
		require.NoError(t, p.write(&text, metrics.Node(n)))
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(text.String())))
	})
}
