//go:build unix

package faults

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A rolling restart of every member, while all lock: by SIGTERM, after which the
// process leaves in good order, and by SIGKILL in turn. In the end everything is
// killed at once and started again. Nobody meets anybody in a critical section, fences
// rise without exception, and no Acquire fails but those of the process that ends.
func TestRollingRestartTCP3(t *testing.T)  { roll(t, "tcp", 3) }
func TestRollingRestartTCP5(t *testing.T)  { roll(t, "tcp", 5) }
func TestRollingRestartNATS3(t *testing.T) { roll(t, "nats", 3) }

func roll(t *testing.T, link string, n int) {
	names := slices.Sorted(maps.Keys(right))
	r := newRig(t, link, n, *seed, names...)
	long := 30 * time.Second / 3
	if os.Getenv("DMUTEX_LONG") != "" {
		long = 10 * time.Minute / 3
	}
	if *length > 0 {
		long = *length
	}
	rng := rand.New(rand.NewPCG(*seed, 1))
	restarts := 0
	for end := time.Now().Add(long); time.Now().Before(end); restarts++ {
		<-time.After(2*time.Second + time.Duration(rng.Int64N(int64(time.Second)))) // a view a second on average
		by := syscall.SIGTERM
		if restarts%2 == 1 {
			by = syscall.SIGKILL
		}
		r.restart(restarts%n, by)
		r.check()
	}
	var stalls []time.Duration
	for _, said := range r.word(wordTell) {
		stalls = append(stalls, said.Stalls...)
	}
	for i := range r.processes {
		r.end(i, syscall.SIGKILL)
	}
	for i := range r.processes {
		r.begin(i)
	}
	<-time.After(time.Second)
	r.word(wordStop)
	r.drain()
	r.leave()
	r.check()
	entries := r.referee.tally(t)
	slices.Sort(stalls)
	t.Logf("%d restarts, %d view changes seen, median stall %v, longest %v; entries: %v",
		restarts, len(stalls), stalls[len(stalls)/2], stalls[len(stalls)-1], entries)
	require.Less(t, stalls[len(stalls)/2], 50*time.Millisecond)
	for _, name := range names {
		require.Positive(t, entries[name+"/lock 0"]+entries[name+"/lock 1"], name)
	}
}

// check fails the test if the referee has seen something wrong.
func (r *rig) check() {
	r.t.Helper()
	select {
	case err := <-r.referee.wrong:
		require.NoError(r.t, err)
	default:
	}
}
