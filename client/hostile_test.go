package client_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/clientlink"
	"github.com/dmutex/dmutex/internal/clientsession"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/node"
)

// A client that sends nonsense is cut off, and its cost to a member is bounded. It cannot resume
// the session of another client, because nobody can guess the name of that session.
func TestHostile(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.open("a", func(c *node.Clients) { c.Max = 5 })
		one := w.use("one")
		h := one.acquire("l")
		connect := func() net.Conn {
			near, far := net.Pipe()
			a.door.calls <- far
			return near
		}
		say := func(nc net.Conn, msgs ...clientsession.Message) string {
			var b []byte
			for i := range msgs {
				b = clientlink.Append(b, &msgs[i])
			}
			_, _ = nc.Write(b)
			_ = nc.SetReadDeadline(time.Now().Add(time.Minute))
			answer, _ := io.ReadAll(nc)
			nc.Close()
			return string(answer)
		}
		hello := clientsession.Message{Kind: clientsession.Hello, Speaks: protocol.Spoken, Number: 1, Session: "guess", Name: "one"}
		require.Contains(t, say(connect(), hello), "does not know the session")
		nc := connect()
		_, _ = nc.Write([]byte("\x00\x10GET / HTTP/1.1\r\n\r\n"))
		require.Empty(t, say(nc))
		require.Empty(t, say(connect(), clientsession.Message{Kind: clientsession.Ask, Number: 1, Lock: "l"}))
		require.Empty(t, say(connect(), clientsession.Message{Kind: clientsession.Confirm, For: 1 << 60, Length: 1}))
		begin := time.Now()
		require.Empty(t, say(connect()), "it says nothing")
		require.Less(t, time.Since(begin), 6*time.Second)

		hello.Fresh = true
		for i := range 5 { // Drop and Granted do not touch the locks of others
			hello.Session = fmt.Sprint("s", i)
			answer := say(connect(), hello, clientsession.Message{Kind: clientsession.Drop, Number: 1}, clientsession.Message{Kind: clientsession.Granted, Number: 1, Fence: 1})
			require.Equal(t, i == 4, strings.Contains(answer, "as many clients as it may"))
		}
		deaf := connect() // reads nothing
		hello.Session, hello.Number = "s0", 2
		ask := clientsession.Message{Kind: clientsession.Ask, Number: 1, Lock: "x", Try: true}
		for range 20_000 {
			_ = deaf.SetWriteDeadline(time.Now().Add(time.Second))
			if _, err := deaf.Write(clientlink.Append(clientlink.Append(nil, &hello), &ask)); err != nil {
				break
			}
			hello = clientsession.Message{Kind: clientsession.Beat}
		}
		time.Sleep(2 * session)
		require.Len(t, a.Status().Clients, 1)
		require.NoError(t, h.Err())
		require.NoError(t, h.Release())
	})
}

// A connected client costs a member at most 10 kB, even if it holds a lock and waits for another
// one. That includes both ends of the connection, in memory.
func TestMemory(t *testing.T) {
	if racetest.On {
		t.Skip("the race detector takes memory")
	}
	holds := memoryOf(t, false)
	waits := memoryOf(t, true)
	t.Logf("%d bytes a client that holds a lock, %d if it waits for another one", holds, waits)
	require.Less(t, holds, 10_000)
	require.Less(t, waits, 10_000)
}

// memoryOf returns how many bytes a client costs.
func memoryOf(t *testing.T, waits bool) (each int) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.open("a")
		h, err := a.Mutex("busy").Acquire(t.Context())
		require.NoError(t, err)
		measure := func() uint64 {
			for range 5 { // stacks shrink little by little
				runtime.GC()
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc + m.StackInuse
		}
		const clients = 500
		var conns []net.Conn
		begin := func(from int) uint64 {
			for i := from; i < from+clients; i++ {
				near, far := net.Pipe()
				a.door.calls <- far
				hello := clientsession.Message{Kind: clientsession.Hello, Speaks: protocol.Spoken, Number: 1, Session: fmt.Sprint(i), Name: fmt.Sprint("client-", i), Fresh: true}
				b := clientlink.Append(nil, &hello)
				b = clientlink.Append(b, &clientsession.Message{Kind: clientsession.Ask, Number: 1, Lock: fmt.Sprint("own-", i)})
				if waits {
					b = clientlink.Append(b, &clientsession.Message{Kind: clientsession.Ask, Number: 2, Lock: "busy"})
				}
				_, err := near.Write(b)
				require.NoError(t, err)
				r := clientlink.New(near, 0)
				for range 2 { // a confirmation and a grant
					_, err := r.Read()
					require.NoError(t, err)
				}
				conns = append(conns, near)
			}
			synctest.Wait()
			return measure()
		}
		before := begin(0) // the first clients fill the stacks and spans that earlier tests have left
		each = int(begin(clients)-before) / clients
		require.Len(t, a.Status().Clients, 2*clients)
		for _, nc := range conns {
			nc.Close()
		}
		require.NoError(t, h.Release())
	})
	return each
}

// A member that confirms each session, and ends the connection at once, is asked more and more rarely.
func TestConfirmedAndEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		c, err := client.New(client.Config{Members: []string{"m"}, Dial: func(context.Context, string) (net.Conn, error) {
			dials++
			here, there := net.Pipe()
			go func() {
				member := clientlink.New(there, 1<<16)
				if _, err := member.Read(); err == nil {
					member.Send(clientsession.Message{Kind: clientsession.Confirm, For: int64(10 * time.Second), Length: int64(10 * time.Second)})
				}
				_ = member.Close()
			}()
			return here, nil
		}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err = c.Mutex("x").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, c.Close())
		require.Less(t, dials, 80)
	})
}
