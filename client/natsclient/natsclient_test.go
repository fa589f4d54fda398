package natsclient

import (
	"crypto/rand"
	"encoding/binary"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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

func newListener() *listener {
	return &listener{own: "p.member", calls: make(chan *conn, 1), owners: make(map[string]int), conns: make(map[string]*conn)}
}

// call asks for a connection, and returns its subject, or nothing if the listener does not answer.
func (l *listener) call(inbox, reply string) string {
	last := func() *conn { return append([]*conn{new(conn)}, l.fresh...)[len(l.fresh)] }
	before := last().from
	l.take(&nats.Msg{Subject: "p.new", Reply: reply, Data: []byte(inbox)})
	if last().from == before {
		return ""
	}
	return last().from.String()
}

// A client names the inbox that the member publishes to, and the one where it is answered. The server
// would end the member's connection for a long one, and with nats.SkipSubjectValidation it would run
// the commands in one for the member.
func TestInboxIsASubject(t *testing.T) {
	const good = "_INBOX.alice.1"
	require.NotEmpty(t, newListener().call(good, good))
	require.NotEmpty(t, newListener().call(good, good+strings.Repeat("x", maxSubject-len(good))))
	for _, bad := range []string{
		"_INBOX.alice.1 0\r\n\r\nSUB secrets 1\r\n", "_INBOX.alice.1\t_INBOX.bob", "_INBOX.alice.\x01", "_INBOX.alice.\x7f",
		"_INBOX.alice.>", "_INBOX.*.1", "_INBOX..1", "_INBOX.", "_INBOX.alice.", "secrets", "", good + strings.Repeat("x", maxSubject),
	} {
		require.Empty(t, newListener().call(bad, good), bad)
		require.Empty(t, newListener().call(good, bad), bad)
	}
}

// A call that is answered is no connection before the client uses it. A flood of calls pushes out what
// nobody uses, and no more, and a client cannot keep the others from being answered.
func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListener()
		used, unused := l.call("_INBOX.alice.1", "_INBOX.alice.2"), l.call("_INBOX.alice.1", "_INBOX.alice.2")
		require.Empty(t, l.calls)
		say := func(subject string) {
			l.take(&nats.Msg{Subject: subject, Data: binary.BigEndian.AppendUint32(nil, 0)})
		}
		say(used)
		require.Equal(t, "_INBOX.alice.2", (<-l.calls).RemoteAddr().String())
		for second := range 2 {
			for owner, answered := range map[string]int{"a": ownCalls, "b": ownCalls, "c": ownCalls, "d": ownCalls - 2*(1-second)} {
				for range answered {
					require.NotEmpty(t, l.call("_INBOX.x", "_INBOX."+owner+".1"))
				}
				if owner != "d" {
					require.Empty(t, l.call("_INBOX.x", "_INBOX."+owner+".1"), "its share")
				}
			}
			require.Empty(t, l.call("_INBOX.x", "_INBOX.e.1"), "all have had enough")
			require.LessOrEqual(t, len(l.conns), allCalls+1)
			require.Len(t, l.fresh, allCalls)
			time.Sleep(time.Second)
		}
		say(unused)
		require.Empty(t, l.calls)
		require.Contains(t, l.conns, used)
		require.NotEmpty(t, l.call("_INBOX.x", "_INBOX.e.1"))
	})
}

// A connection that nobody closes, such as one that a full listener drops, does not leak.
func TestDropped(t *testing.T) {
	c := weak.Make(newConn(nil, "own", "to", "peer", new(atomic.Int64)))
	runtime.GC()
	require.Nil(t, c.Value())
}

func TestNilConnection(t *testing.T) {
	_, err := Listen(nil, "p")
	require.ErrorIs(t, err, errNil)
	_, err = Dialer(nil)(t.Context(), "p")
	require.ErrorIs(t, err, errNil)
}

// A prefix under which clients would believe no answer is refused.
func TestPrefix(t *testing.T) {
	nc := new(nats.Conn) // which is not asked
	for _, bad := range []string{"", ".p", "p.", "a..b", "a b", "p.*", "p.>", strings.Repeat("p", maxPrefix+1)} {
		_, err := Listen(nc, bad)
		require.ErrorContains(t, err, "give one or more tokens", bad)
	}
	require.True(t, subject(strings.Repeat("p", maxPrefix)+"."+rand.Text()+"."+rand.Text()).literal())
}
