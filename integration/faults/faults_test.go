//go:build unix

package faults

import (
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/ricart"
)

var (
	seed   = flag.Uint64("seed", 1, "of the faults and of what the processes do")
	length = flag.Duration("length", 0, "of the faults over each link; the default is 4s, and 10m with DMUTEX_LONG=1")
)

// right are the correct algorithms; wrong are those that must be caught.
var (
	right = func() map[string]dmutex.Algorithm {
		all := make(map[string]dmutex.Algorithm)
		for _, a := range algorithms.All {
			all[a.Name] = a.Algorithm
		}
		return all
	}()
	wrong = map[string]dmutex.Algorithm{
		"alone": func(s dmutex.Start) (dmutex.Machine, error) {
			s.Members, s.Home = []dmutex.NodeID{s.Self}, s.Self // it asks no other node
			return ricart.New(s)
		},
		"unfenced": func(s dmutex.Start) (dmutex.Machine, error) {
			m, err := ricart.New(s)
			return unfenced{m}, err
		},
	}
	either = func() map[string]dmutex.Algorithm {
		all := maps.Clone(right)
		maps.Copy(all, wrong)
		return all
	}()
)

type unfenced struct{ dmutex.Machine }

func (unfenced) Fence() uint64 { return 1 }

// Five processes, each with a node for every algorithm: no two are in a critical
// section together, fences rise, elections are observed in order, and each cycle of
// transactions has a victim. Once the faults are over, every request is granted,
// the group becomes idle and all processes leave.
//
// LESSONS L12: among the faults are processes that are stopped and resumed.
func TestTCP(t *testing.T)  { unlessShort(t); endure(t, "tcp") }
func TestNATS(t *testing.T) { unlessShort(t); endure(t, "nats") }

func endure(t *testing.T, link string) {
	t.Parallel() // it mostly waits
	names := slices.Sorted(maps.Keys(right))
	r := newGroup(t, link, 5, *seed, names...)
	long := 4 * time.Second
	if os.Getenv("DMUTEX_LONG") != "" {
		long = 10 * time.Minute
	}
	if *length > 0 {
		long = *length
	}
	r.storm(rand.New(rand.NewPCG(*seed, 0)), long)
	r.awaitVictim()
	r.word(wordStop)
	victims := r.drain()
	r.leave()
	r.verdict()
	entries := r.referee.tally(t)
	t.Logf("entries: %v", entries)
	t.Logf("victims of cycles: %v", victims)
	for _, name := range names {
		require.Positive(t, entries[name+"/lock 0"]+entries[name+"/lock 1"], name)
	}
	require.Positive(t, victims)
}

// unlessShort skips a test under -short.
func unlessShort(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
}

// A lock that lets all in is noticed, and so are fences that do not rise.
func TestWrong(t *testing.T) {
	for name, says := range map[string]string{"alone": "alone/", "unfenced": "the fence of"} {
		t.Run(name, func(t *testing.T) {
			r := newGroup(t, "tcp", 5, *seed, name)
			select {
			case err := <-r.referee.wrong:
				require.ErrorContains(t, err, says)
			case <-time.After(patience):
				require.Fail(t, "the referee has seen nothing")
			}
			for end := time.Now().Add(patience); r.referee.history() == nil; <-time.After(10 * time.Millisecond) {
				require.True(t, time.Now().Before(end), "the checker has seen nothing")
			}
		})
	}
}
