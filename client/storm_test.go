package client_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/clientlink"
	"github.com/dmutex/dmutex/internal/clientsession"
	"github.com/dmutex/dmutex/internal/kit/quicktest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/internal/kit/storm"
	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
)

// Members crash, close and lose the store, and clients die, are cut off and lose connections: at
// most one handle of a lock is good, fences rise, and nobody is stuck.
func TestStorm(t *testing.T) {
	seeds := 6
	switch {
	case testing.Short():
		seeds = 1
	case racetest.On || quicktest.On():
		seeds = 2
	}
	for _, seed := range storm.Seeds(t, seeds) {
		bubble(t, func(t *testing.T, w *world) { runStorm(t, w, storm.New(t, seed)) })
	}
}

func runStorm(t *testing.T, w *world, s *storm.Storm) {
	names := []string{"m0", "m1", "m2"}
	for _, name := range names {
		w.open(name)
	}
	upTo := func(luck *rand.Rand, most time.Duration) time.Duration {
		return time.Duration(luck.Int64N(int64(most)))
	}
	ctx, stop := context.WithCancel(t.Context())
	work := func(who string) *user {
		u := w.use(who, names...)
		s.Go(ctx, storm.Caller{
			Who: who, Names: 3, Tries: 5,
			Lock:     func(name string) lock.Mutex { return u.Mutex(name) },
			Patience: func(luck *rand.Rand) time.Duration { return upTo(luck, 20*session) },
			Hold:     func(luck *rand.Rand) time.Duration { return upTo(luck, session/2) },
			TryFails: func(error) bool { return true }, // when no member is reached
			Ends:     func(error) bool { return u.dead() },
			Loses:    func(error) bool { return true },
			Margin:   session / 16,
		})
		return u
	}
	var users []*user
	var who []string
	for i := range 9 {
		who = append(who, fmt.Sprint("u", i))
		users = append(users, work(who[i]))
	}
	var closing sync.WaitGroup
	to := func(do func(m *member)) func() {
		return func() {
			if m := w.member(names[s.Luck.IntN(len(names))]); m != nil {
				do(m)
			}
		}
	}
	s.Blow(150, func() time.Duration { return s.UpTo(session) },
		storm.Fault{Name: "a client loses its connections", Rate: 4, Do: func() { users[s.Luck.IntN(len(users))].hangUp("") }},
		storm.Fault{Name: "the connections of a client lose everything", Rate: 2, Do: func() { users[s.Luck.IntN(len(users))].silence() }},
		storm.Fault{Name: "a client dies, and another begins", Rate: 1, Do: func() {
			i := s.Luck.IntN(len(users))
			users[i].die()
			_ = users[i].Close()
			users[i] = work(who[i])
		}},
		storm.Fault{Name: "a member loses the store", Rate: 1, Do: to(func(m *member) {
			m.store.Outage(true)
			time.Sleep(s.UpTo(2 * session))
			m.store.Outage(false)
		})},
		storm.Fault{Name: "a member is cut off from all but the store", Rate: 1, Do: to(func(m *member) {
			m.cut.Store(true)
			m.door.shut.Store(true)
			time.Sleep(s.UpTo(2 * session))
			m.cut.Store(false)
			m.door.shut.Store(false)
		})},
		storm.Fault{Name: "a member crashes, and another begins", Rate: 1, Do: to(func(m *member) {
			w.crash(m)
			w.end(m)
			w.open(m.name)
		})},
		storm.Fault{Name: "a member closes, and another begins", Rate: 1, Do: to(func(m *member) {
			w.forget(m.name)
			closing.Go(func() { require.NoError(t, m.Close(context.WithoutCancel(ctx))) })
			time.Sleep(s.UpTo(session))
			w.open(m.name)
		})})
	closing.Wait()
	s.Goes(20*session, who...)
	stop()
	s.Wait()
}

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
