package node_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/streamnet"
	"github.com/dmutex/dmutex/internal/outside"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// tcpGroup opens n nodes over TCP on the loopback interface.
func tcpGroup(b testing.TB, a dmutex.Algorithm, n int, deadlock time.Duration) []*node.Node {
	b.Helper()
	var (
		members []dmutex.NodeID
		links   []*tcplink.Link
		nodes   []*node.Node
	)
	for id := range dmutex.NodeID(n) {
		members = append(members, id+1)
	}
	peers := make(map[dmutex.NodeID]string)
	for _, id := range members {
		peers[id] = ""
	}
	for _, id := range members {
		l, err := tcplink.New(tcplink.Config{Self: id, Listen: "127.0.0.1:0", Peers: peers})
		require.NoError(b, err)
		links = append(links, l)
	}
	for i, l := range links {
		for j, id := range members {
			if i != j {
				require.NoError(b, l.SetPeer(id, links[j].Addr().String()))
			}
		}
		n, err := node.OpenStrict(b.Context(), members[i], members, l, node.Config{Algorithm: a, Deadlock: deadlock})
		require.NoError(b, err)
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		require.NoError(b, n.Ready(b.Context()))
	}
	b.Cleanup(func() { closeAll(b, nodes) })
	return nodes
}

// A stranger on a plain link takes the place of member 3 at member 1 while the two are not connected. It claims
// a life of tomorrow and says nothing. Member 3 is refused there again and again. It grants nothing meanwhile,
// keeps what it holds, and goes on when the stranger has gone. Another stranger does not end it either.
func TestSilentStrangerInAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodetest.Today()
		network, members := streamnet.New(1), []dmutex.NodeID{1, 2, 3}
		peers := map[dmutex.NodeID]string{1: "10.0.0.1:7000", 2: "10.0.0.2:7000", 3: "10.0.0.3:7000"}
		var hosts []*streamnet.Host
		var nodes []*node.Node
		for i, id := range members {
			hosts = append(hosts, network.Host(fmt.Sprint("10.0.0.", id)))
			(&outside.Process{Network: hosts[i].Process()}).Open(func() {
				l, err := tcplink.New(tcplink.Config{Self: id, Listen: peers[id], Peers: peers, AllowPlain: true})
				require.NoError(t, err)
				n, err := node.OpenStrict(t.Context(), id, members, l, node.Config{Algorithm: central.New})
				require.NoError(t, err)
				nodes = append(nodes, n)
			})
		}
		defer func() { // at once: a Close may wait for the others
			var closing sync.WaitGroup
			defer closing.Wait()
			for _, n := range nodes {
				closing.Go(func() { _ = n.Close(nodetest.ContextFor(t, time.Minute)) })
			}
		}()
		one, three := hosts[0], hosts[2]
		elsewhere := network.Host("10.0.0.4").Process()
		held, err := nodes[2].Mutex("held").Acquire(t.Context())
		require.NoError(t, err)
		for range 2 {
			network.Cut(three, one) // so that the stranger is first
			network.Reset(one, three, 0)
			synctest.Wait()
			stranger, err := elsewhere.Dial(t.Context(), peers[1])
			require.NoError(t, err)
			greeting, err := binary.Append([]byte("dmutex\x00\x02"), binary.BigEndian, [4]uint64{3, 1, nodes[2].Status().Life + uint64(23*time.Hour), 0})
			require.NoError(t, err)
			_, err = stranger.Write(greeting)
			require.NoError(t, err)
			_, err = io.ReadFull(stranger, greeting)
			require.NoError(t, err)
			require.Zero(t, binary.BigEndian.Uint64(greeting[len(greeting)-8:]), "it has no place")
			network.Mend(three, one)
			for idle := 0; idle < 2000; idle++ { // after the first refusal member 2 denies it at once
				if time.Sleep(time.Millisecond); nodes[2].Status().View.Acts {
					idle = 0
				}
			}
			stranger.Close()
			for i, n := range nodes {
				require.NoError(t, n.Mutex(fmt.Sprint("free ", i)).Do(nodetest.ContextFor(t, time.Minute), nodetest.Nothing))
			}
			require.NoError(t, held.Err())
			require.NoError(t, nodes[2].Status().Err)
		}
		require.NoError(t, held.Release())
	})
}
