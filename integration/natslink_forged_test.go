package integration

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/message"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/natslink"
)

// What docs/security.md says of a user who may publish in a member's name: one forged GRANT gives a
// lock to a member that waits for it, while another one holds it.
func TestForgedGrant(t *testing.T) {
	s := startNATS(t, server.Options{Port: -1})
	nodes, members := make(map[dmutex.NodeID]*node.Node), []dmutex.NodeID{1, 2, 3}
	for _, id := range members {
		l, err := natslink.New(connect(t, s), natslink.Config{Self: id, Prefix: prefix})
		require.NoError(t, err)
		nodes[id], err = node.OpenStrict(t.Context(), id, members, l, node.Config{Algorithm: central.At(1)})
		require.NoError(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = nodes[id].Close(ctx) // the others cannot all answer: 2 is ahead of 1
		})
	}
	for _, n := range nodes {
		require.NoError(t, n.Ready(t.Context()))
	}
	first, err := nodes[3].Mutex("x").Acquire(t.Context())
	require.NoError(t, err)
	granted := make(chan lock.Held)
	go func() {
		second, _ := nodes[2].Mutex("x").Acquire(t.Context())
		granted <- second
	}()
	eventually(t, "member 2 does not wait", func() bool { return nodes[2].Status().Waiting == 1 })

	message := message.Append(nil, "x", dmutex.Message{Kind: dmutex.Grant, Attempt: 1, Fence: first.Fence()})
	message = slices.Concat([]byte{0xc4, byte(len(message))}, message)
	frame := []byte{4} // DATA, of the member 1 to the member 2
	for _, id := range []dmutex.NodeID{1, 2} {
		frame = binary.BigEndian.AppendUint64(append(frame, 0xcf), nodes[id].Status().Life)
	}
	frame = append(frame, 1, 0) // the first message has the number 1, and nothing is acknowledged
	nc := connect(t, s)
	for n := range 20 { // one of them is the next that member 2 takes from member 1
		require.NoError(t, nc.Publish(prefix+".2.1", append(frame, bytes.Repeat(message, n+1)...)))
	}
	second := await(t, granted)
	require.NotNil(t, second)
	require.NoError(t, first.Err())
	require.NoError(t, second.Err())
}
