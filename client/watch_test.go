package client_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/clientlink"
	"github.com/dmutex/dmutex/internal/clientsession"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
)

// Ready waits for a session and begins one, before any lock is asked for, and says why there is none.
func TestReady(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one := w.use("one", "a")
		require.Equal(t, client.Status{}, one.Status())
		ctx := nodetest.ContextFor(t, time.Second)
		err := one.Ready(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, "client: context deadline exceeded: no session: member a: nobody listens")
		require.ErrorIs(t, one.Ready(ctx), context.DeadlineExceeded, "it has ended before")

		ready := make(chan error)
		go func() { ready <- one.Ready(t.Context()) }()
		time.Sleep(time.Minute)
		a := w.open("a")
		require.NoError(t, <-ready)
		require.NoError(t, one.Ready(t.Context()))
		require.NotNil(t, a.client("one"))
		require.Equal(t, "a", one.Status().Member)

		two, closing := w.use("two", "b"), w.use("three", "b")
		go func() { ready <- two.Ready(t.Context()) }()
		go func() { ready <- closing.Ready(t.Context()) }()
		synctest.Wait()
		require.NoError(t, closing.Close())
		require.ErrorIs(t, <-ready, client.ErrClosed)
		require.ErrorIs(t, closing.Ready(t.Context()), client.ErrClosed)
		w.open("b")
		require.NoError(t, <-ready)
	})
}

// The status has the session, the locks and what went wrong; so does the log.
func TestStatus(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var log bytes.Buffer
		handler := slog.NewTextHandler(writer(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return log.Write(b)
		}), nil)
		logged := func() string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			defer log.Reset()
			return log.String()
		}
		w.watch = func(c *client.Config) { c.Logger = slog.New(handler) }
		w.open("a", func(c *node.Clients) {
			c.Allow = func(_ net.Conn, _, lock string, _ bool) error {
				if lock == "secret" {
					return fmt.Errorf("not for you")
				}
				return nil
			}
		})
		one := w.use("one", "a")
		h, held := one.acquire("x"), one.acquire("y")
		_, err := one.Mutex("secret").Acquire(t.Context())
		require.ErrorIs(t, err, client.ErrRefused)
		one.eventually("x")
		synctest.Wait()
		st := one.Status()
		require.LessOrEqual(t, st.Remaining, session)
		require.Greater(t, st.Remaining, session/2)
		st.Remaining = 0
		require.Equal(t, client.Status{Member: "a", Holds: []string{"x", "y"}, WaitsFor: []string{"x"}, Sessions: 1, Refused: 1}, st)
		require.Contains(t, logged(), `level=INFO msg="client: a session has begun" address=a`)

		w.member("a").door.shut.Store(true)
		one.hangUp("")
		<-h.Context().Done()
		require.Error(t, held.Err())
		synctest.Wait()
		st = one.Status()
		require.ErrorContains(t, st.Trouble, "no session: member a: nobody listens")
		st.Trouble = nil
		require.Equal(t, client.Status{WaitsFor: []string{"x"}, Sessions: 1, Lost: 1, Refused: 1}, st)
		text := logged()
		require.Contains(t, text, `level=WARN msg="client: the session is lost" address=a err="no member has confirmed it in time"`)
		require.Contains(t, text, `level=WARN msg="client: a member is not reached" address=a err="no session: member a: nobody listens"`)
		require.Less(t, strings.Count(text, "nobody listens"), 4, "equal records are counted, not repeated")

		w.member("a").door.shut.Store(false)
		require.NoError(t, one.Ready(t.Context()))
		require.Equal(t, uint64(2), one.Status().Sessions)
		require.Equal(t, "a", one.Status().Member)
	})
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// An Observer sees each wait and each hold once, with its outcome, and the wait first.
func TestWatch(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var seen []string
		tell := func(what string) func(lock.Event) {
			return func(e lock.Event) {
				mu.Lock()
				defer mu.Unlock()
				took := e.Took.Round(time.Second)
				if e.Outcome == "lost" { // when depends on the last beat
					require.LessOrEqual(t, took, session)
					took = 0
				}
				seen = append(seen, fmt.Sprintf("%s %s: %s, %v, fence %v, err %v", what, e.Lock, e.Outcome, took, e.Fence != 0, e.Err != nil))
			}
		}
		saw := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, want, seen)
			seen = nil
		}
		w.watch = func(c *client.Config) { c.Observer = &client.Observer{Wait: tell("wait"), Hold: tell("hold")} }
		w.open("a")
		one, two := w.use("one", "a"), w.use("two", "a")
		h := one.acquire("x")
		saw("wait x: granted, 0s, fence true, err false")
		_, err := two.Mutex("x").TryAcquire(t.Context())
		require.ErrorIs(t, err, lock.ErrBusy)
		saw("wait x: busy, 0s, fence false, err true")
		ctx := nodetest.ContextFor(t, 7*time.Second)
		for range 2 {
			_, err = two.Mutex("x").Acquire(ctx)
			require.Error(t, err)
		}
		saw("wait x: deadline, 7s, fence false, err true", "wait x: deadline, 0s, fence false, err true")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = two.Mutex("x").Acquire(ctx)
		require.Error(t, err)
		saw("wait x: canceled, 0s, fence false, err true")
		require.NoError(t, h.Release())
		require.NoError(t, h.Release())
		saw("hold x: released, 7s, fence true, err false")

		h = one.acquire("x")
		one.die()
		<-h.Context().Done()
		require.Error(t, h.Release())
		saw("wait x: granted, 0s, fence true, err false", "hold x: lost, 0s, fence true, err true")

		two.acquire("y")
		require.NoError(t, two.Close())
		saw("wait y: granted, 0s, fence true, err false", "hold y: lost, 0s, fence true, err true")
		_, err = two.Mutex("y").Acquire(t.Context())
		require.ErrorIs(t, err, client.ErrClosed)
		saw("wait y: failed, 0s, fence false, err true")
	})
}

// Release itself tells the Observer, also if it takes a while to end the contexts that were made from that of the handle.
func TestReleaseTells(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.watch = func(c *client.Config) {
			c.Observer = &client.Observer{Hold: func(lock.Event) {
				if !strings.Contains(string(debug.Stack()), ").Release(") {
					t.Error("another goroutine tells")
				}
			}}
		}
		w.open("a")
		one := w.use("one", "a")
		for range 20 {
			h := one.acquire("x")
			for range 5000 {
				_, cancel := context.WithCancel(h.Context())
				defer cancel()
			}
			require.NoError(t, h.Release())
		}
	})
}

// Close waits for an Observer that hears of a lost hold.
func TestCloseWaitsForObserver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		hears, goesOn := make(chan struct{}), make(chan struct{})
		w.watch = func(c *client.Config) {
			c.Observer = &client.Observer{Hold: func(lock.Event) {
				close(hears)
				<-goesOn
			}}
		}
		w.open("a")
		one := w.use("one", "a")
		one.acquire("x")
		one.die()
		<-hears
		closed := make(chan error, 1)
		go func() { closed <- one.Close() }()
		synctest.Wait()
		require.Empty(t, closed)
		close(goesOn)
		require.NoError(t, <-closed)
	})
}

// If an Observer panics, the lock is given back.
func TestObserverPanics(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		panics := true
		w.watch = func(c *client.Config) {
			c.Observer = &client.Observer{Wait: func(lock.Event) {
				if panics {
					panic("observer")
				}
			}}
		}
		w.open("a")
		one := w.use("one", "a")
		require.PanicsWithValue(t, "observer", func() { _, _ = one.Mutex("x").Acquire(t.Context()) })
		panics = false
		h, err := one.Mutex("x").TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Release())
	})
}

// What a member says after it has ended a session does not count: the caller learns why it ended.
func TestSaidAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := func(context.Context, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				if _, err := clientlink.New(far, 0).Read(); err != nil {
					return
				}
				said := clientlink.Append(nil, &clientsession.Message{Kind: clientsession.Over, Code: clientsession.Full, Text: "too many clients"})
				said = clientlink.Append(said, &clientsession.Message{Kind: clientsession.Confirm, For: 1e9, Length: 1e9})
				_, _ = far.Write(said)
			}()
			return near, nil
		}
		c, err := client.New(client.Config{Members: []string{"m"}, Dial: dial})
		require.NoError(t, err)
		_, err = c.Mutex("l").Acquire(nodetest.ContextFor(t, 5*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "too many clients")
		require.NoError(t, c.Close())
	})
}
