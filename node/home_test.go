package node_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/suzukikasami"
	"github.com/dmutex/dmutex/transport/memlink"
)

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
