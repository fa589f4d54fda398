package node_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
)

// A member that was excluded keeps its name where a lock waits for it: in errors, in the status and
// in the log, also at a process that joined after that, and at the process itself in its next life.
func TestFormerNames(t *testing.T) {
	bubbleLease(t, central.New, func(t *testing.T, g *group) {
		log := new(nodetest.Journal)
		g.log = log.Logger()
		for i := range 3 {
			g.name = fmt.Sprint("web-", i+1)
			g.join()
		}
		one, two, three := g.all[0], g.all[1], g.all[2]
		one.sees(3)
		members := one.Status().View.Members
		theirs := nameAt(one.Self(), members)
		says := func(s *member, who string) {
			t.Helper()
			require.Equal(t, []string{who}, s.Mutex(theirs).Status().FormerNames)
			_, err := s.Mutex(theirs).TryAcquire(t.Context())
			require.ErrorIs(t, err, node.ErrBusy)
			require.ErrorContains(t, err, "waiting for the leases of former members "+who+", which may hold it: at most ")
		}

		three.acquire(theirs)
		who := fmt.Sprintf("web-3 (node %v)", three.Self())
		three.crash()
		one.sees(2)
		says(one, who)
		says(two, who)
		require.Contains(t, log.String(), `left="[`+who+`]"`)
		g.name = "web-4"
		four := g.join()
		require.NoError(t, four.Ready(t.Context()))
		says(four, who)
		require.NoError(t, one.acquire(theirs).Release())
		four.close()

		two.acquire(theirs)
		former := two.Self()
		two.isolate(true)
		one.sees(1)
		two.isolate(false)
		two.rejoins(former)
		says(two, fmt.Sprintf("web-2 (node %v)", former))
	})
}
