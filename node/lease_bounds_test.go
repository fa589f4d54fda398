package node_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// A crash of one of three delays the others by at most these times, with each way to learn of it.
// A lock that the crashed member did not hold waits for its exclusion at most, and not for its lease.
// docs/performance.md has the table.
func TestLeaseCrashBounds(t *testing.T) {
	if racetest.On || os.Getenv("CI") == "" {
		t.Skip("it is about times, and takes seconds; set CI=1")
	}
	const change = 50 * time.Millisecond
	for name, tt := range map[string]struct {
		death, proof bool // the link tells of a death; the store proves it
		free, held   time.Duration
		home         time.Duration // if it is the coordinator or the witness of the lock
	}{
		"TCP":    {true, false, change, leaseOf * 11 / 10, change},
		"NATS":   {false, false, change, leaseOf * 31 / 20, leaseOf * 11 / 20},
		"a file": {false, true, change, 2 * change, 2 * change},
	} {
		for _, holds := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, holding %v", name, holds), func(t *testing.T) {
				bubbleLease(t, nil, func(t *testing.T, g *group) {
					var all [3]*member
					if tt.proof {
						g.proving()
					}
					for i := range all {
						all[i] = g.join()
					}
					var members []dmutex.NodeID
					for _, s := range all {
						require.NoError(t, s.Ready(t.Context()))
						members = append(members, s.Self())
					}
					dead := all[2]
					ascending := slices.Sorted(slices.Values(members))
					witness := func(home dmutex.NodeID) dmutex.NodeID { return ascending[(slices.Index(ascending, home)+1)%3] }
					of := make(map[dmutex.NodeID][]string) // locks, by their homes
					for i := 0; len(of[members[0]]) < 3 || len(of[members[1]]) < 3 || len(of[members[2]]) < 3; i++ {
						name := fmt.Sprint("lock ", i)
						home := locks.Home(name, members)
						of[home] = append(of[home], name)
					}
					theirs := of[members[0]][0]
					ctx, stop := context.WithCancel(t.Context())
					var taking sync.WaitGroup
					var mu sync.Mutex
					var crashed time.Time
					longest := make(map[string]time.Duration)
					working, rest := context.WithCancel(ctx)
					for i, s := range all {
						ctx := ctx
						if i == 2 {
							ctx = working
						}
						for _, names := range of {
							for _, name := range names {
								taking.Go(func() {
									for ctx.Err() == nil {
										called := time.Now()
										h, err := s.Mutex(name).Acquire(ctx)
										if err != nil {
											return
										}
										mu.Lock()
										if !crashed.IsZero() {
											longest[name] = max(longest[name], min(time.Since(called), time.Since(crashed)))
										}
										mu.Unlock()
										require.NoError(t, h.Release())
										time.Sleep(10 * time.Millisecond)
									}
								})
							}
						}
					}
					time.Sleep(leaseOf / 10)
					rest()
					time.Sleep(leaseOf / 100) // until its last messages have arrived
					if holds {
						dead.acquire(theirs)
					}
					mu.Lock()
					crashed = time.Now()
					mu.Unlock()
					dead.crash()
					if tt.death {
						all[0].host.Died(members[2])
						all[1].host.Died(members[2])
					}
					time.Sleep(2 * leaseOf)
					stop()
					taking.Wait()
					for home, names := range of {
						for _, name := range names {
							bound := tt.free
							switch {
							case holds && name == theirs:
								bound = tt.held
							case home == members[2] || witness(home) == members[2]:
								bound = tt.home
							}
							require.NotZero(t, longest[name], name)
							require.LessOrEqual(t, longest[name], bound, "%s of %v", name, home)
						}
					}
				})
			})
		}
	}
}
