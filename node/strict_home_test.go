package node_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/suzukikasami"
	"github.com/dmutex/dmutex/transport/memlink"
)

// sent counts the messages that all members have sent.
func (g *group) sent() (n int) {
	for _, member := range g.nodes {
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
			bubble(t, algorithm, memlink.Config{}, func(t *testing.T, g *group) {
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
					h, err := g.mutex(1, nameAt(home, g.members)).Acquire(contextFor(t, time.Minute))
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
