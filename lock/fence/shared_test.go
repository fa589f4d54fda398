package fence_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/lock/fence"
)

// A gate is what a history is played to.
type gate interface {
	Do(fence uint64, f func() error) error
	Share(fence uint64, f func() error) error
}

// A single has one number for both modes.
type single struct{ fence.Gate }

func (g *single) Share(f uint64, do func() error) error { return g.Do(f, do) }

// A restarted is a gate whose process ends before each call and starts again with what was stored.
type restarted struct {
	stored fence.Seen
	store  func(fence.Seen) fence.Seen
}

func (g *restarted) Do(f uint64, do func() error) error {
	again := fence.NewGate(g.stored)
	defer func() { g.stored = g.store(again.Seen()) }()
	return again.Do(f, do)
}

func (g *restarted) Share(f uint64, do func() error) error {
	again := fence.NewGate(g.stored)
	defer func() { g.stored = g.store(again.Seen()) }()
	return again.Share(f, do)
}

func all(seen fence.Seen) fence.Seen { return seen }

// play makes a history of a lock from the data, in which fences rise between grants that conflict
// and only there, and lets present and former holders use the gate. It returns what goes wrong: a
// present holder is refused, or a former one admitted after the use of a later hold that conflicts.
func play(g gate, data []byte) error {
	type hold struct {
		fence         uint64
		shared        bool
		present, used bool
	}
	var all []hold
	highest, highestAlone := uint64(0), uint64(0)
	for ; len(data) > 1; data = data[2:] {
		free, alone := true, false
		for _, h := range all {
			free, alone = free && !h.present, alone || h.present && !h.shared
		}
		arg := int(data[1])
		switch do := data[0] % 4; {
		case do == 0 && free:
			highest++
			highestAlone = highest
			all = append(all, hold{fence: highest, present: true})
		case do == 1 && !alone: // any fence above those of holds alone, up to the next one
			f := highestAlone + 1 + uint64(arg)%(highest-highestAlone+1)
			highest = max(highest, f)
			all = append(all, hold{fence: f, shared: true, present: true})
		case do == 2 && len(all) > 0:
			all[arg%len(all)].present = false
		case len(all) > 0:
			k := arg % len(all)
			h, late := &all[k], false
			for _, later := range all[k+1:] {
				late = late || later.used && (!later.shared || !h.shared)
			}
			use := g.Do
			if h.shared {
				use = g.Share
			}
			err := use(h.fence, func() error { return nil })
			if h.present && err != nil {
				return fmt.Errorf("hold %d is refused: %w", k, err)
			}
			if late && err == nil {
				return fmt.Errorf("hold %d is admitted late", k)
			}
			h.used = h.used || err == nil
		}
	}
	return nil
}

// oneFails is a history in which one number refuses a present sharer.
var oneFails = []byte{1, 0, 1, 1, 3, 1, 3, 0}

func FuzzShare(f *testing.F) {
	f.Add(oneFails)
	f.Add([]byte{0, 0, 3, 0, 2, 0, 1, 0, 1, 1, 3, 2, 3, 1, 3, 0, 2, 1, 2, 2, 0, 0, 3, 3, 3, 1, 3, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		require.NoError(t, play(new(fence.Gate), data))
		require.NoError(t, play(&restarted{store: all}, data))
	})
}

// One number for both modes is not enough, nor is it to store one.
func TestShareWithOneNumber(t *testing.T) {
	require.ErrorIs(t, play(new(single), oneFails), fence.ErrStale)
	higher := func(seen fence.Seen) fence.Seen { return fence.Seen{Alone: max(seen.Alone, seen.Shared)} }
	require.ErrorIs(t, play(&restarted{store: higher}, oneFails), fence.ErrStale)
	require.NoError(t, play(&restarted{store: all}, oneFails))
}

func TestShare(t *testing.T) {
	var g fence.Gate
	none := func() error { return nil }
	require.NoError(t, g.Share(5, none))
	require.NoError(t, g.Share(4, none), "it shares with 5")
	require.ErrorIs(t, g.Do(4, none), fence.ErrStale)
	require.ErrorIs(t, g.Share(0, none), fence.ErrStale)
	require.Equal(t, fence.Seen{Shared: 5}, g.Seen())
	require.NoError(t, g.Do(6, none))
	require.EqualError(t, g.Share(5, none), "fence: stale: 5 is lower than 6, which a later holder has used")

	again := fence.NewGate(fence.Seen{Alone: 6, Shared: 8})
	require.ErrorIs(t, again.Do(7, none), fence.ErrStale)
	require.NoError(t, again.Share(7, none))
	require.ErrorIs(t, again.Share(5, none), fence.ErrStale)
}

// Calls of Share run at the same time, and a call of Do waits for them.
func TestShareTogether(t *testing.T) {
	var (
		g    fence.Gate
		both sync.WaitGroup
		all  sync.WaitGroup
	)
	both.Add(2)
	for _, f := range []uint64{1, 2} {
		all.Go(func() {
			inside := false
			err := g.Share(f, func() error {
				inside = true
				both.Done()
				both.Wait() // for the other one
				return nil
			})
			if !inside {
				both.Done()
			}
			assert.NoError(t, err)
		})
	}
	all.Wait()

	inside := false
	require.NoError(t, g.Share(2, func() error {
		all.Go(func() {
			assert.NoError(t, g.Do(3, func() error {
				assert.False(t, inside)
				return nil
			}))
		})
		inside = true
		for range 1000 { // time enough for Do, if it need not wait
			runtime.Gosched()
		}
		defer func() { inside = false }()
		return nil
	}))
	all.Wait()
}
