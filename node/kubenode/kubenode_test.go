package kubenode_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/kubetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/kubenode"
	"github.com/dmutex/dmutex/store/kubestore"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// Three pods find each other by the Lease, and take turns. One leaves, and the others go on.
func TestThreePods(t *testing.T) {
	s := kubetest.New(t)
	var nodes []*node.Node
	for range 3 {
		n, err := kubenode.Open(t.Context(), kubestore.Config{Server: s.URL, Namespace: s.Namespace}, "invoices",
			tcplink.Config{Listen: "127.0.0.1:0"}, node.Config{Lease: time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { _ = n.Close(context.Background()) })
		nodes = append(nodes, n)
	}
	turns := func(nodes []*node.Node) {
		var (
			all    sync.WaitGroup
			mu     sync.Mutex
			inside bool
			last   uint64
		)
		for _, n := range nodes {
			all.Go(func() {
				for range 5 {
					err := n.Mutex("invoices/42").Do(t.Context(), func(_ context.Context, fence uint64) error {
						mu.Lock()
						if inside || fence <= last {
							t.Errorf("inside: %v, fence %d after %d", inside, fence, last)
						}
						inside, last = true, fence
						mu.Unlock()
						mu.Lock()
						inside = false
						mu.Unlock()
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	}
	turns(nodes)
	require.NotNil(t, s.Lease("invoices"))
	require.NoError(t, nodes[0].Close(t.Context()))
	turns(nodes[1:])
}

func TestRefused(t *testing.T) {
	s := kubetest.New(t)
	_, err := kubenode.Open(t.Context(), kubestore.Config{Server: s.URL, Namespace: s.Namespace}, "No Name", tcplink.Config{}, node.Config{})
	require.ErrorContains(t, err, "is no name of a Lease")
	_, err = kubenode.Open(t.Context(), kubestore.Config{Server: s.URL, Namespace: s.Namespace}, "invoices", tcplink.Config{Listen: "nowhere"}, node.Config{})
	require.Error(t, err)
}
