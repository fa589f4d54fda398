package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/clientsession"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
)

func bubble(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

// When the machine of a client has slept for longer than the session, the context of a handle ends soon after.
func TestSleptWhileHeld(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.lease = time.Hour
		w.open("a")
		u := w.use("u")
		h := u.acquire("l")
		time.Sleep(time.Second)
		u.StepWall(2 * time.Hour)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Error(t, h.Context().Err())
		require.ErrorIs(t, h.Release(), lock.ErrLost)
	})
}

// LESSONS L55. The wall clock of a client is set, once or again and again, while a member waits for its lock: the
// client may lose that early, but has the time to stop that it always has.
func TestWallClockOfClient(t *testing.T) {
	for name, steps := range map[string][]time.Duration{ // one every 200 ms
		"a little":     {session / 4},
		"a session":    {session},
		"an hour":      {time.Hour},
		"many":         {session, session, session, session, session, session},
		"back":         {-time.Hour},
		"back between": {session, -time.Hour, session},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a := w.open("a")
				u := w.use("u")
				h := u.acquire("l")
				ended, granted := make(chan time.Time, 1), make(chan time.Time, 1)
				go func() {
					<-h.Context().Done()
					ended <- time.Now()
				}()
				go func() {
					next, err := a.Mutex("l").Acquire(t.Context())
					granted <- time.Now()
					if err == nil {
						_ = next.Release()
					}
				}()
				for _, by := range steps {
					u.StepWall(by)
					time.Sleep(200 * time.Millisecond)
				}
				time.Sleep(session)
				lost, end, next := h.Release(), <-ended, <-granted
				if lost != nil {
					require.GreaterOrEqual(t, next.Sub(end), session/16)
				}
			})
		})
	}
}

// Clients of different members, and a member itself, take turns with rising fences.
func TestClient(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.open("a"), w.open("b")
		one, two := w.use("one", "a"), w.use("two", "b")
		begin := time.Now()
		h := one.acquire("l")
		require.Less(t, time.Since(begin), time.Second)
		require.Greater(t, time.Until(h.Until()), session/2)
		require.LessOrEqual(t, time.Until(h.Until()), session)
		require.False(t, h.Suspended())
		_, err := two.Mutex("l").TryAcquire(t.Context())
		require.ErrorIs(t, err, lock.ErrBusy)
		_, err = one.Mutex("l").TryAcquire(t.Context())
		require.ErrorIs(t, err, lock.ErrBusy)
		_, err = a.Mutex("l").TryAcquire(t.Context())
		require.ErrorIs(t, err, lock.ErrBusy)

		granted := two.eventually("l")
		synctest.Wait()
		require.Equal(t, []string{"l"}, a.client("one").Holds)
		require.Equal(t, []string{"l"}, w.member("b").client("two").WaitsFor)
		time.Sleep(10 * session) // the session is renewed
		require.NoError(t, h.Err())
		require.Greater(t, time.Until(h.Until()), session/2)
		require.Empty(t, granted)
		require.NoError(t, h.Release())
		next := <-granted
		require.Greater(t, next.Fence(), h.Fence())

		own := make(chan lock.Held)
		go func() {
			h, _ := a.Mutex("l").Acquire(t.Context())
			own <- h
		}()
		synctest.Wait()
		require.NoError(t, next.Release())
		last := <-own
		require.Greater(t, last.Fence(), next.Fence())
		require.NoError(t, last.Release())

		h = one.acquire("l")
		require.Greater(t, h.Fence(), last.Fence())
		require.NoError(t, h.Release())
		synctest.Wait()
		again, err := one.Mutex("l").TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, again.Release())
		require.NoError(t, one.acquire("l").Release(), "a try after a release is not busy")
	})
}

// A call that does not get the lock says who holds it, on a member as on a client, without delay.
func TestSaysWhoHolds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.open("a"), w.open("b")
		one, two, far := w.use("one", "a"), w.use("two", "a"), w.use("far", "b")
		says := func(m lock.Mutex, by string) {
			t.Helper()
			_, err := m.TryAcquire(t.Context())
			require.ErrorIs(t, err, lock.ErrBusy)
			require.Regexp(t, by, err)
			ctx := nodetest.ContextFor(t, time.Second)
			begin := time.Now()
			_, err = m.Acquire(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, strings.HasPrefix(err.Error(), "client: "), errors.Is(err, lock.ErrBusy), "%v", err)
			require.Regexp(t, by+`.*: context deadline exceeded$`, err)
			require.Equal(t, time.Second, time.Since(begin))
		}
		held := make(map[string]lock.Held)
		at := func(m *member) (name string) { // a lock whose coordinator is this member
			for i := 0; ; i++ {
				name = fmt.Sprint(m.name, i)
				h := one.acquire(name)
				if a.Mutex(name).Status().Home == m.Self() {
					held[name] = h
					return name
				}
				require.NoError(t, h.Release())
			}
		}
		here, there := at(a), at(b)
		require.Equal(t, "one", a.Mutex(here).Status().Client)
		says(a.Mutex(here), `^node: lock "`+here+`": .*held by client "one" of this process for `)
		says(two.Mutex(here), `^client: lock "`+here+`": .*held by client "one" of .* \(node 1\) for `)
		says(far.Mutex(there), `^client: lock "`+there+`": .*held by .* \(node 1\) for `)
		says(far.Mutex(here), `^client: lock "`+here+`": .*its member does not know the holder`)
		says(one.Mutex(here), `^client: lock "`+here+`": .*(the client itself holds it, or waits for it|held by client "one" of .* \(node 1\) )`)

		require.NoError(t, held[there].Release())
		synctest.Wait()
		b.cut.Store(true) // the coordinator of a lock that nobody holds
		ctx := nodetest.ContextFor(t, time.Second)
		_, err := two.Mutex(there).Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, lock.ErrBusy)
		require.Regexp(t, `waiting for .* its member does not know the holder`, err)

		one.silence() // nobody answers: the call waits a little
		two.silence()
		ctx = nodetest.ContextFor(t, time.Second)
		begin := time.Now()
		_, err = two.Mutex(here).Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1200*time.Millisecond, time.Since(begin))
	})
}

// Waiters of one client are served in the order of their calls. A waiter whose context ends is gone.
func TestWaiters(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.open("a")
		one := w.use("one")
		h := one.acquire("l")
		_, err := one.Mutex("l").Acquire(nodetest.ContextFor(t, time.Minute))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		require.Empty(t, a.client("one").WaitsFor)
		var order []<-chan lock.Held
		for range 9 {
			order = append(order, one.eventually("l"))
			synctest.Wait()
		}
		for i, granted := range order {
			require.NoError(t, h.Release())
			h = <-granted
			require.NoError(t, h.Err(), i)
		}
		require.NoError(t, h.Release())
	})
}

// A client keeps nothing of calls and holds that are over, whether a member knows of them or not.
func TestForgets(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.open("a")
		one, two := w.use("one"), w.use("two")
		held := two.acquire("held")
		require.NoError(t, one.acquire("l").Release())
		_, err := one.Mutex("held").TryAcquire(t.Context())
		require.ErrorIs(t, err, lock.ErrBusy)
		wait := func() {
			_, err := one.Mutex("held").Acquire(nodetest.ContextFor(t, time.Second))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Zero(t, one.Calls())
		}
		wait()
		one.silence()
		wait()
		a.door.shut.Store(true)
		one.hangUp("")
		wait()
		require.NoError(t, held.Release())
	})
}

// A lost connection costs a client no lock, whether the client notices at once or not.
func TestConnectionLost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.open("a")
		one, two := w.use("one"), w.use("two")
		h := one.acquire("l")
		granted := two.eventually("l")
		for i := range 20 {
			if time.Sleep(session / 7); i%2 == 0 {
				one.hangUp("")
				two.hangUp("")
			} else {
				one.silence()
				two.silence()
			}
		}
		require.NoError(t, h.Err())
		time.Sleep(session / 2)
		one.hangUp("")
		begin := time.Now()
		require.NoError(t, one.acquire("m").Release())
		require.Less(t, time.Since(begin), 50*time.Millisecond, "however many were lost")
		one.hangUp("")
		require.NoError(t, h.Release(), "while there is no connection")
		require.NoError(t, (<-granted).Release())
	})
}

// A client pauses before it tries again a member whose address accepts connections and drops them,
// as a proxy may.
func TestConnectionDropped(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.open("a")
		u := w.use("one")
		var dropped int
		c, err := client.New(client.Config{Members: []string{"a"}, Dial: func(ctx context.Context, address string) (net.Conn, error) {
			if !w.member("a").door.shut.Load() {
				return u.dial(ctx, address)
			}
			if dropped++; dropped > 1000 {
				return nil, errors.New("enough")
			}
			near, far := net.Pipe()
			far.Close()
			return near, nil
		}})
		require.NoError(t, err)
		defer c.Close()
		h, err := c.Mutex("l").Acquire(t.Context())
		require.NoError(t, err)
		w.member("a").door.shut.Store(true)
		u.hangUp("")
		<-h.Context().Done()
		require.Less(t, dropped, 100)
	})
}

// The locks of a client that dies are free after one session. Other locks are not delayed.
func TestClientDies(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.open("a")
		w.open("b")
		one, two := w.use("one", "a"), w.use("two", "b")
		h := one.acquire("l")
		granted := two.eventually("l")
		synctest.Wait()
		one.die()
		begin := time.Now()
		for range 10 {
			other := two.acquire("free")
			require.Less(t, time.Since(begin), 100*time.Millisecond)
			require.NoError(t, other.Release())
		}
		<-h.Context().Done()
		require.ErrorIs(t, h.Err(), lock.ErrLost)
		require.ErrorContains(t, h.Err(), "the session is over: no member has confirmed it in time")
		require.Less(t, time.Since(begin), session)
		require.Empty(t, granted)
		require.NoError(t, (<-granted).Release())
		require.Less(t, time.Since(begin), session*103/100)
		synctest.Wait()
		require.Nil(t, a.client("one"))
	})
}

// The Observer of the member sees which holds of its clients were lost: those that ended with the
// session, and none that ended by the client's word.
func TestObserver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		events := make(chan node.Event, 10)
		w.observer = &node.Observer{Hold: func(e node.Event) { events <- e }}
		w.open("a")
		one, two := w.use("one", "a"), w.use("two", "a")
		require.NoError(t, one.acquire("released").Release())
		e := <-events
		require.Equal(t, "released", e.Lock)
		require.Equal(t, "released", e.Outcome)
		one.acquire("died")
		two.acquire("closed")
		require.NoError(t, two.Close())
		one.die()
		e = <-events
		require.Equal(t, "closed", e.Lock)
		require.Equal(t, "released", e.Outcome)
		e = <-events
		require.Equal(t, "died", e.Lock)
		require.Equal(t, "lost", e.Outcome)
		require.ErrorIs(t, e.Err, node.ErrLost)
		require.ErrorContains(t, e.Err, `the session of client "one" is over`)
	})
}

// The clients of a member that crashes keep their locks: another member takes them over. What they wait
// for they get there.
func TestMemberCrashes(t *testing.T) {
	for _, try := range []bool{false, true} {
		t.Run(fmt.Sprint("try ", try), func(t *testing.T) { crash(t, try) })
	}
}

func crash(t *testing.T, try bool) {
	bubble(t, func(t *testing.T, w *world) {
		moves := make(chan lock.Event, 99)
		logger := func() (*slog.Logger, <-chan string) {
			lines := make(chan string, 99)
			return slog.New(slog.NewTextHandler(writer(func(line []byte) (int, error) {
				if strings.Contains(string(line), "taken over") {
					lines <- string(line)
				}
				return len(line), nil
			}), nil)), lines
		}
		var lines, own <-chan string // of the members, and of the clients
		w.log, lines = logger()
		w.watch = func(c *client.Config) {
			c.Observer = &client.Observer{Move: func(e lock.Event) { moves <- e }}
			if c.Name == "one" {
				c.Logger, own = logger()
			}
		}
		a := w.open("a")
		b := w.open("b")
		w.open("c")
		one, two, three := w.use("one", "a", "b"), w.use("two", "b"), w.use("three", "a", "b")
		for a.client("one") == nil || a.client("three") == nil { // until both begin at a
			one.Close()
			three.Close()
			one, three = w.use("one", "a", "b"), w.use("three", "a", "b")
			require.NoError(t, one.acquire("x").Release())
			require.NoError(t, three.acquire("x").Release())
			synctest.Wait()
		}
		acquire := one.Mutex("l").Acquire
		if try {
			acquire = one.Mutex("l").TryAcquire
		}
		h, err := acquire(t.Context())
		require.NoError(t, err)
		held := map[string]lock.Held{"l": h}
		for len(held) < 25 { // more than a log writes of what it only counts
			name := fmt.Sprint("m", len(held))
			held[name] = one.acquire(name)
		}
		granted, later := two.eventually("l"), three.eventually("l")
		synctest.Wait()
		w.crash(a)
		begin := time.Now()
		fence := h.Fence()
		for one.Status().Moved < uint64(len(held)) {
			time.Sleep(session / 100)
			require.NoError(t, h.Err())
		}
		took := time.Since(begin)
		require.Less(t, took, session*9/10)
		moved := make(map[string]bool)
		for range held {
			move := <-moves
			moved[move.Lock] = true
			require.InDelta(t, took, move.Took, float64(session/90), "all are suspended for as long")
			move.Took = 0
			require.Equal(t, lock.Event{Lock: move.Lock, Fence: held[move.Lock].Fence(), Outcome: "moved"}, move)
			require.Regexp(t, `level=INFO msg="client: a lock is taken over" lock=(l|m\d+) address=b$`, strings.TrimSpace(<-own))
		}
		require.Less(t, time.Since(begin), session, "the log is not late")
		require.Regexp(t, `level=INFO msg="client's lock taken over" node=2 client=one lock=(l|m\d+) former=".* \(node 1\)"`, <-lines)
		require.Len(t, moved, len(held))
		require.Len(t, b.client("one").Moved, len(held))
		require.Equal(t, uint64(len(held)), b.Status().ClientsMoved)
		require.Greater(t, b.Status().ClientsClaims, uint64(1), "it refuses while the dead member is not excluded")
		time.Sleep(2 * session)
		require.Empty(t, moves)
		require.NoError(t, h.Err())
		require.False(t, h.Suspended())
		require.Equal(t, fence, h.Fence())
		require.Empty(t, granted)
		require.NoError(t, h.Release())
		next := <-granted
		require.Greater(t, next.Fence(), fence)
		require.NoError(t, next.Release())
		require.NoError(t, (<-later).Release())
		require.NoError(t, one.acquire("l").Release())
	})
}

// A client loses its locks with the lease of its member, which ends when the store does not answer.
func TestMemberLosesLease(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.open("a")
		w.open("b")
		one, two := w.use("one", "a"), w.use("two", "b")
		h := one.acquire("l")
		granted := two.eventually("l")
		synctest.Wait()
		a.store.Outage(true)
		a.cut.Store(true)
		begin := time.Now()
		for h.Err() == nil && !h.Suspended() {
			time.Sleep(session / 100)
		}
		require.NoError(t, h.Err(), "suspended comes first")
		<-h.Context().Done()
		require.ErrorIs(t, h.Err(), lock.ErrLost)
		require.LessOrEqual(t, time.Since(begin), session*15/16)
		require.Empty(t, granted)
		next := <-granted
		require.Less(t, time.Since(begin), 2*session)
		a.store.Outage(false)
		a.cut.Store(false)
		waits := one.eventually("l")
		time.Sleep(5 * session)
		require.NoError(t, next.Release())
		require.NoError(t, (<-waits).Release(), "through a, which has joined again")
	})
}

// A member that closes does not wait for its clients: another member takes over what they hold, and
// what they wait for they ask for there.
func TestMemberCloses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.open("a")
		one := w.use("one", "a", "b")
		held, first := one.acquire("l"), one.acquire("m")
		second := one.eventually("m")
		w.open("b")
		w.open("c")
		two := w.use("two", "b")
		granted := two.eventually("l")
		synctest.Wait()
		begin := time.Now()
		w.forget("a")
		require.NoError(t, a.Close(t.Context()))
		require.Less(t, time.Since(begin), time.Second)
		time.Sleep(2 * session)
		require.NoError(t, held.Err())
		require.NoError(t, first.Err())
		require.False(t, held.Suspended())
		require.Equal(t, uint64(2), one.Status().Moved)
		require.Empty(t, granted)
		require.NoError(t, held.Release())
		require.NoError(t, first.Release())
		require.NoError(t, (<-granted).Release())
		require.NoError(t, (<-second).Release(), "it waits at the other member")
	})
}

// A member that closes confirms nothing, and no other one takes over while functions run there. So what its
// clients hold is lost if one does not return, though its context has ended.
func TestBusyMemberCloses(t *testing.T) {
	for _, runs := range []time.Duration{session / 2, 2 * session} {
		bubble(t, func(t *testing.T, w *world) {
			a := w.open("a")
			one := w.use("one", "a", "b")
			h := one.acquire("l")
			w.open("b")
			go func() {
				_ = a.Mutex("own").Do(context.WithoutCancel(t.Context()), func(context.Context, uint64) error {
					time.Sleep(runs)
					return nil
				})
			}()
			synctest.Wait()
			w.forget("a")
			require.NoError(t, a.Close(t.Context()))
			time.Sleep(session)
			require.Equal(t, runs < session, h.Err() == nil, "%v", h.Err())
			_ = h.Release()
		})
	}
}

// Members may have sessions of different lengths, for example while a new length is rolled out. A lock that
// another member takes over has the length of that one's, and its margin.
func TestMoveToAnotherLength(t *testing.T) {
	for _, lengths := range [][2]time.Duration{{session, session / 20}, {session / 20, session}} {
		t.Run(fmt.Sprint(lengths), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				length := func(d time.Duration) func(*node.Clients) {
					return func(c *node.Clients) { c.Session = d }
				}
				a := w.open("a", length(lengths[0]))
				one := w.use("one", "a", "b")
				h := one.acquire("l")
				w.open("b", length(lengths[1]))
				w.forget("a")
				require.NoError(t, a.Close(t.Context()))
				time.Sleep(2 * session)
				synctest.Wait()
				require.NoError(t, h.Err())
				require.Equal(t, uint64(1), one.Status().Moved)
				require.False(t, h.Suspended())
				require.Equal(t, one.Status().Remaining-lengths[1]/16, time.Until(h.Until()))
				require.NoError(t, h.Release())
			})
		})
	}
}

// The last member waits until its clients have released what they hold, or their sessions have run out.
func TestLastMemberCloses(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			a := w.open("a")
			one := w.use("one", "a")
			held := one.acquire("l")
			closed := make(chan error)
			begin := time.Now()
			go func() { closed <- a.Close(context.WithoutCancel(t.Context())) }()
			w.forget("a")
			time.Sleep(session / 4)
			require.NoError(t, held.Err())
			require.Empty(t, closed)
			if stubborn {
				require.NoError(t, <-closed)
				require.ErrorIs(t, held.Err(), lock.ErrLost)
				require.Less(t, time.Since(begin), session*103/100)
			} else {
				require.NoError(t, held.Release())
				require.NoError(t, <-closed)
				require.Less(t, time.Since(begin), session/3)
			}
		})
	}
}

// A member whose Close is cut short by its context does not give away a lock that a client may hold.
func TestMemberClosesLate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.open("a")
		one := w.use("one", "a")
		h := one.acquire("l")
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		require.ErrorIs(t, a.Close(ctx), context.DeadlineExceeded)
		w.forget("a")
		require.NoError(t, h.Err())
		w.open("b")
		granted := w.use("two", "b").eventually("l")
		next := <-granted
		require.ErrorIs(t, h.Err(), lock.ErrLost)
		require.NoError(t, next.Release())
	})
}

// Close ends all holds and waits of a client. The locks are free for others at once.
func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.open("a")
		one, two := w.use("one"), w.use("two")
		h := one.acquire("l")
		waits := one.eventually("l")
		granted := two.eventually("l")
		synctest.Wait()
		require.NoError(t, one.Close())
		require.NoError(t, one.Close())
		require.ErrorIs(t, h.Err(), lock.ErrLost)
		require.ErrorIs(t, h.Err(), client.ErrClosed)
		require.ErrorIs(t, h.Release(), lock.ErrLost)
		require.Nil(t, <-waits)
		begin := time.Now()
		require.NoError(t, (<-granted).Release())
		require.Zero(t, time.Since(begin))
		_, err := one.Mutex("l").Acquire(t.Context())
		require.ErrorIs(t, err, client.ErrClosed)
		synctest.Wait()
		require.Nil(t, a.client("one"))
		require.NoError(t, w.use("three").Close(), "it was never used")
	})
}

// A call without a member waits, and says why when its context ends.
func TestNoMember(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one := w.use("one", "a")
		_, err := one.Mutex("l").Acquire(nodetest.ContextFor(t, time.Minute))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, `client: lock "l": context deadline exceeded: no session: member a: nobody listens`)
		waits := one.eventually("l")
		time.Sleep(time.Hour)
		w.open("a")
		require.NoError(t, (<-waits).Release())
	})
}

// A client goes back to the member of its last session, which was restarted, if no other one is reached. So
// it does if that member had no room for it.
func TestGoesBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		most := func(c *node.Clients) { c.Max = 1 }
		a := w.open("a", most)
		one := w.use("one", "a", "b")
		require.NoError(t, one.acquire("l").Release())
		w.end(a)
		one.hangUp("a")
		time.Sleep(session)
		w.open("a", most)
		full := w.use("full", "a")
		require.NoError(t, full.acquire("m").Release())
		within := func(d time.Duration) (lock.Held, error) {
			return one.Mutex("l").Acquire(nodetest.ContextFor(t, d))
		}
		_, err := within(session)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, full.Close())
		h, err := within(session)
		require.NoError(t, err)
		require.NoError(t, h.Release())
	})
}

// A process that has begun at the address of a dead member takes over what its client holds, also if the client
// reaches no other member.
func TestReplacedAtItsAddress(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.open("a")
		w.open("c")
		one := w.use("one", "a", "b")
		held := one.acquire("l")
		w.crash(a)
		w.end(a)
		a = w.open("a")
		time.Sleep(2 * session)
		require.NoError(t, held.Err())
		require.NotNil(t, a.client("one"))
		granted := w.use("two", "c").eventually("l")
		require.NoError(t, held.Release())
		require.NoError(t, (<-granted).Release())
	})
}

// An address at which something else listens than a member that serves clients is named as such.
func TestStranger(t *testing.T) {
	strangers := map[string]func(nc net.Conn){
		"resets it, as the port for members does": func(nc net.Conn) { nc.Read(make([]byte, 1)); nc.Close() },
		"waits for more, as HTTP does":            func(nc net.Conn) { io.Copy(io.Discard, nc) },
		"answers as HTTP does": func(nc net.Conn) {
			nc.Read(make([]byte, 1000))
			fmt.Fprint(nc, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request")
			nc.Close()
		},
	}
	for name, stranger := range strangers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := client.New(client.Config{Members: []string{"a:80"}, Dial: func(context.Context, string) (net.Conn, error) {
					near, far := net.Pipe()
					go stranger(far)
					return near, nil
				}})
				require.NoError(t, err)
				defer c.Close()
				_, err = c.Mutex("l").Acquire(nodetest.ContextFor(t, 5*time.Second))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, `no session: member a:80: no member answers there: give an address where a member serves clients, and use TLS if and only if the member does: `)
			})
		})
	}
}

// A port that says nothing is named, also if the deadline is shorter than the attempt to connect.
func TestSilentPort(t *testing.T) {
	for name, dial := range map[string]func(ctx context.Context) (net.Conn, error){
		"it does not accept": func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() },
		"it says nothing":    func(context.Context) (net.Conn, error) { near, _ := net.Pipe(); return near, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := client.New(client.Config{Members: []string{"a:80"}, Dial: func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }})
				require.NoError(t, err)
				defer c.Close()
				_, err = c.Mutex("l").Acquire(nodetest.ContextFor(t, 1700*time.Millisecond))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, `no session: connecting with a:80 for 1.`)
				require.ErrorContains(t, err, `s, without an answer: give an address`)
			})
		})
	}
}

// A member decides what a client may do, and bounds what clients cost it.
func TestRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.open("a", func(c *node.Clients) {
			c.Max = 2
			c.Allow = func(_ net.Conn, client, lock string, _ bool) error {
				if client == "stranger" || client == "one" && lock == "secret" {
					return errors.New("not for " + client)
				}
				return nil
			}
		})
		one := w.use("one")
		_, err := one.Mutex("secret").Acquire(t.Context())
		require.ErrorIs(t, err, client.ErrRefused)
		require.EqualError(t, err, `client: lock "secret": the member refuses it: not for one`)
		_, err = w.use("stranger").Mutex("l").Acquire(t.Context())
		require.ErrorIs(t, err, client.ErrRefused)
		h := one.acquire("l")
		two := w.use("two")
		require.NoError(t, two.acquire("secret").Release())

		three := w.use("three")
		_, err = three.Mutex("m").Acquire(nodetest.ContextFor(t, time.Minute))
		require.ErrorContains(t, err, "the member serves as many clients as it may")
		waits := three.eventually("m")
		require.NoError(t, two.Close())
		require.NoError(t, (<-waits).Release())
		require.NoError(t, h.Release())

		var calls []<-chan lock.Held
		for range clientsession.MaxRequests {
			calls = append(calls, one.eventually("l"))
		}
		synctest.Wait()
		_, err = one.Mutex("l").Acquire(t.Context())
		require.ErrorIs(t, err, client.ErrRefused)
		require.ErrorContains(t, err, "too many locks at a time")
		for range calls {
			for _, granted := range calls {
				select {
				case h := <-granted:
					require.NoError(t, h.Release())
					synctest.Wait()
				default:
				}
			}
			if one.hangUp(""); len(calls) > 3 {
				calls = calls[:3]
			}
		}
		for _, length := range []int{0, 256} {
			_, err = one.Mutex(string(make([]byte, length))).Acquire(t.Context())
			require.ErrorContains(t, err, "a name has 1 to 255 bytes")
		}
	})
}

// A prover is a store that says that every life is over.
type prover struct {
	store.Memory
	t *testing.T
}

func (p *prover) Live(context.Context) (store.Life, error) {
	p.t.Error("a member that serves clients has no life that the store could prove to be over")
	return nil, store.ErrNoProof
}
func (p *prover) Over(context.Context, string) error                  { return nil }
func (p *prover) Living(context.Context) (living []string, err error) { return nil, nil }

// A member that serves clients has no life: the end of a life would not prove that clients have ended.
// Either all members serve clients, or none does.
func TestProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := &prover{t: t}
		open := func(clients *node.Clients) *node.Node {
			n, err := node.Open(t.Context(), s, w.net.Link(dmutex.None), node.Config{Lease: session, Clients: clients})
			require.NoError(t, err)
			t.Cleanup(func() { _ = n.Close(context.Background()) })
			return n
		}
		begin := time.Now()
		n := open(&node.Clients{Listeners: []net.Listener{&door{closed: make(chan struct{})}}})
		require.NoError(t, n.Ready(t.Context()))
		require.Greater(t, time.Since(begin), session, "a new record waits for one session")
		require.ErrorIs(t, open(nil).Ready(t.Context()), node.ErrConfig)
	})
}

func TestConfig(t *testing.T) {
	for _, c := range []client.Config{{}, {Members: []string{""}}, {Members: []string{"a:1", "b"}}, {Members: []string{"a:1"}, Name: string(make([]byte, 65))}} {
		_, err := client.New(c)
		require.Error(t, err)
	}
	bubble(t, func(t *testing.T, w *world) {
		l := []net.Listener{&door{}}
		for _, c := range []node.Clients{{}, {Listeners: []net.Listener{nil}}, {Listeners: l, Session: time.Minute}, {Listeners: l, Session: 1}, {Listeners: l, Max: -1}} {
			_, err := node.Open(t.Context(), &w.store, w.net.Link(dmutex.None), node.Config{Clients: &c})
			require.ErrorIs(t, err, dmutex.ErrMisuse)
		}
		_, err := node.OpenStrict(t.Context(), 1, []dmutex.NodeID{1}, w.net.Link(1), node.Config{Clients: &node.Clients{Listeners: l}})
		require.ErrorIs(t, err, dmutex.ErrMisuse)
		require.ErrorContains(t, err, "Config.Clients needs a store")
	})
}
