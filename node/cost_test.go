package node_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/suzukikasami"
	"github.com/dmutex/dmutex/transport/memlink"
)

// The frames that an idle group sends in a second are bounded by the square of the number of members, and the
// bytes of a view change with a newcomer by its cube. docs/performance.md has what this test prints with -v and
// DMUTEX_LONG=1.
func TestCostOfMembers(t *testing.T) {
	if racetest.On {
		t.Skip("it counts frames, and takes a while")
	}
	sizes := []int{5, 20}
	if os.Getenv("DMUTEX_LONG") != "" {
		sizes = []int{5, 20, 50}
	}
	for _, n := range sizes {
		delays := memlink.Config{Seed: 1, MinDelay: time.Millisecond, MaxDelay: time.Millisecond}
		bubble(t, both, central.New, delays, func(t *testing.T, g *group) {
			last := func() { g.join() }
			if g.mode == strict {
				nodetest.Today()
				g.open(n)
				g.close(dmutex.NodeID(n))
				last = func() { g.start(dmutex.NodeID(n)) }
			} else {
				g.open(n - 1)
			}
			sent := func() (frames, bytes int64) {
				for _, s := range g.all {
					frames += s.frames.Load()
					bytes += s.bytes.Load()
				}
				return frames, bytes
			}
			settle := func() {
				for _, s := range g.all {
					s.sees(len(g.all))
				}
			}
			settle()
			time.Sleep(time.Second)
			_, before := sent()
			last()
			settle()
			_, change := sent()
			change -= before
			time.Sleep(10 * time.Second)
			before, _ = sent()
			time.Sleep(15 * time.Second)
			idle, _ := sent()
			idle = (idle - before) / 15
			t.Logf("%2d members, %v: %5d idle frames a second, %4d kB when the last one comes", n, g.mode, idle, (change+999)/1000)
			require.Less(t, int(idle), 2*n*n)
			require.Less(t, int(change), 20*n*n*n+20_000)
		})
	}
}

// sent counts the messages that all members have sent.
func (g *group) sent() (n int) {
	for _, member := range g.all {
		for _, sent := range member.Status().Sent {
			n += int(sent)
		}
	}
	return n
}

// The locks begin at different members, and a crash stops only the locks that begin at the crashed
// member.
func TestHomes(t *testing.T) {
	for name, algorithm := range map[string]dmutex.Algorithm{"central": central.New, "suzukikasami": suzukikasami.New} {
		t.Run(name, func(t *testing.T) {
			bubble(t, strict, algorithm, memlink.Config{}, func(t *testing.T, g *group) {
				g.open(3)
				for _, home := range g.members {
					require.NoError(t, g.acquire(home, nameAt(home, g.members)).Release())
				}
				require.Zero(t, g.sent(), "at home a lock costs no message")
				require.NoError(t, g.acquire(1, nameAt(2, g.members)).Release())
				synctest.Wait()
				require.Equal(t, 3, g.sent(), "elsewhere it costs three")
				g.crash(3)
				for _, home := range g.members {
					h, err := g.mutex(1, nameAt(home, g.members)).Acquire(nodetest.ContextFor(t, time.Minute))
					if home != 3 {
						require.NoError(t, err)
						require.NoError(t, h.Release())
						continue
					}
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorContains(t, err, "3 (web-3, silent for")
				}
			})
		})
	}
}

// frames counts what all processes have sent.
func (g *group) frames() (n int64) {
	for _, s := range g.all {
		n += s.frames.Load()
	}
	return n
}

// LESSONS L49: a hand-over takes the time of one or two messages, depending on the algorithm, and
// no timer.
func TestHandOverTakesMessagesOnly(t *testing.T) {
	for _, a := range algorithms.Some() {
		t.Run(a.Name, func(t *testing.T) {
			const delay = time.Millisecond
			bubble(t, leased, a.Algorithm, memlink.Config{MinDelay: delay, MaxDelay: delay}, func(t *testing.T, g *group) {
				g.open(3)
				held := g.acquire(2, "x")
				waiting := g.acquireLater(t.Context(), 3, "x")
				time.Sleep(time.Hour)
				before := time.Now()
				require.NoError(t, held.Release())
				require.NoError(t, granted(t, waiting).Release())
				require.LessOrEqual(t, time.Since(before), 2*delay)
			})
		})
	}
}

// LESSONS L49, L52: holding and waiting cost no frame and no timer, for however long, and the status shows which members
// a caller waits for.
func TestWaitingIsIdle(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		held := g.acquire(2, "x")
		waiting := g.acquireLater(t.Context(), 3, "x")
		time.Sleep(time.Minute)
		before := g.frames()
		time.Sleep(2 * time.Hour)
		require.Equal(t, before, g.frames())
		waitsFor := g.mutex(3, "x").Status().WaitsFor
		require.NotEmpty(t, waitsFor)
		require.NotContains(t, waitsFor, dmutex.NodeID(3))
		require.Empty(t, g.mutex(2, "x").Status().WaitsFor)
		require.NoError(t, held.Release())
		require.NoError(t, granted(t, waiting).Release())
		require.Empty(t, g.mutex(3, "x").Status().WaitsFor)
	})
}

// LESSONS L54: a peer that cannot be reached gets one or two frames a second, however many callers
// wait for it.
func TestUnreachableIsNotStormed(t *testing.T) {
	bubble(t, strict, central.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(2)
		g.net.Cut(2, 1)
		before := g.frames()
		var waits []<-chan outcome
		for range 100 {
			waits = append(waits, g.acquireLater(t.Context(), 2, "x"))
		}
		time.Sleep(time.Hour)
		require.Less(t, g.frames()-before, int64(2*3600))
		g.net.Heal()
		for _, w := range waits {
			require.NoError(t, granted(t, w).Release())
		}
	})
}

// Taking a lock again that no other node wants is free: no message, and nothing allocated but the
// handle.
func TestReentryIsFree(t *testing.T) {
	for _, tc := range []struct {
		name string
		dmutex.Algorithm
	}{
		{"central", central.New},
		{"ricart, Carvalho", ricart.Carvalho},
		{"ring", ring.New},
		{"suzukikasami", suzukikasami.New},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, both, tc.Algorithm, memlink.Config{}, func(t *testing.T, g *group) {
				g.open(3)
				m := g.mutex(1, nameAt(1, g.members)) // 1 is central's coordinator
				again := func() {
					h, err := m.Acquire(t.Context())
					if err := errors.Join(err, h.Release()); err != nil {
						t.Error(err)
					}
				}
				again() // only the first one may need messages
				synctest.Wait()
				before := g.node(1).Status()
				allocated := testing.AllocsPerRun(100, again)
				if !racetest.On { // the detector allocates too
					require.LessOrEqual(t, allocated, 1.0)
				}
				synctest.Wait()
				after := g.node(1).Status()
				require.Equal(t, before.Sent, after.Sent)
				require.Equal(t, before.Received, after.Received)
			})
		})
	}
}
