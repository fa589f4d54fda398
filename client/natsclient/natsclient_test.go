package natsclient

import (
	"encoding/binary"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"weak"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// The unread bytes of all connections together are bounded. A connection that is read can always
// receive its full share again, and every other connection can receive one message.
func TestUnread(t *testing.T) {
	const conns = 100
	var unread atomic.Int64
	send := func(c *conn, messages int) {
		for range messages {
			c.receive(append(binary.BigEndian.AppendUint32(nil, c.received), make([]byte, maxData)...))
		}
	}
	for range 10 {
		c := newConn(nil, "", "", "", &unread)
		send(c, 500)
		require.NoError(t, c.over)
		_, err := io.CopyN(io.Discard, c, 500*maxData)
		require.NoError(t, err)
		require.Zero(t, unread.Load())
	}
	var all int64
	var list []*conn
	for range conns {
		c := newConn(nil, "", "", "", &unread)
		send(c, 1)
		require.NoError(t, c.over)
		send(c, 1000)
		require.Error(t, c.over)
		all += int64(len(c.in))
		list = append(list, c)
	}
	require.Equal(t, all, unread.Load())
	require.Less(t, all, int64(allUnread+(conns+1)*someUnread))
	for _, c := range list {
		c.leave = func() {}
		require.Error(t, c.Close())
	}
	require.Zero(t, unread.Load())
}

// A client names the inbox that the member publishes to. With nats.SkipSubjectValidation, only the
// listener refuses a name with commands in it. The server would run them for the member.
func TestInboxIsASubject(t *testing.T) {
	for inbox, good := range map[string]bool{
		"_INBOX.alice.1": true,
		"_INBOX.alice.1 0\r\n\r\nSUB secrets 1\r\n": false,
		"_INBOX.alice.1\t_INBOX.bob":                false,
		"secrets":                                   false,
	} {
		l := &listener{own: "p.member", calls: make(chan *conn, 1), conns: make(map[string]*conn)}
		l.take(&nats.Msg{Subject: "p.new", Reply: "_INBOX.alice.2", Data: []byte(inbox)})
		require.Equal(t, good, len(l.calls) == 1 && len(l.conns) == 1, inbox)
	}
}

// A connection that nobody closes, such as one that a full listener drops, does not leak.
func TestDropped(t *testing.T) {
	c := weak.Make(newConn(nil, "own", "to", "peer", new(atomic.Int64)))
	runtime.GC()
	require.Nil(t, c.Value())
}
