package servers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/store"
)

// An act is one operation on a register, or the restart of its server.
type act struct {
	record   string // empty for a restart
	swaps    bool
	from, to string // of a swap; a load has seen from. Empty is no record
	outcome  outcome
}

type outcome uint8

const (
	done outcome = iota
	conflict
	unknown
)

// registerModel is a register that is empty after a restart. Its state is the value.
var registerModel = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		value, a := state.(string), input.(act)
		switch {
		case a.record == "":
			return true, ""
		case !a.swaps:
			return value == a.from, value
		case a.outcome == conflict: // no record of one history is that of another
			return value != a.from || a.from == "", value
		case a.outcome == done:
			return value == a.from, a.to
		case value == a.from:
			return true, a.to
		}
		return true, value // it was too late
	},
}

// Register has eight workers load and swap eight records, and at the same time does harm to their server. The records must be
// linearizable registers, but for what a server has lost: harm reports that. open opens a record as a worker, who may share a
// client among its records.
func Register(t *testing.T, enough int64, open func(worker int, name string) store.Store, harms ...func() (lost bool)) {
	const records, workers = 8, 8
	var mu sync.Mutex
	history := make(map[string][]porcupine.Operation)
	began := time.Now()
	note := func(call int64, a act) {
		op := porcupine.Operation{Input: a, Call: call, Return: int64(time.Since(began))}
		if a.outcome == unknown {
			op.Return = math.MaxInt64
		}
		mu.Lock()
		defer mu.Unlock()
		if a.record != "" {
			history[a.record] = append(history[a.record], op)
			return
		}
		for i := range records {
			name := fmt.Sprint("r", i)
			history[name] = append(history[name], op)
		}
	}
	var count, late atomic.Int64
	var working sync.WaitGroup
	for w := range workers {
		random := rand.New(rand.NewPCG(7, uint64(w)))
		all := make([]store.Store, records)
		for i := range all {
			all[i] = open(w, fmt.Sprint("r", i))
		}
		working.Go(func() {
			for n := 0; count.Load() < enough; n++ {
				i := random.IntN(records)
				name, s := fmt.Sprint("r", i), all[i]
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				call := int64(time.Since(began))
				value, rev, err := s.Load(ctx)
				if err != nil && !errors.Is(err, store.ErrForgotten) || strings.HasSuffix(string(rev), "?") {
					cancel()
					continue
				}
				note(call, act{record: name, from: string(value)})
				count.Add(1)
				if random.IntN(2) == 0 {
					call, to := int64(time.Since(began)), fmt.Sprintf("%d.%d", w, n)
					_, err := s.Swap(ctx, []byte(to), rev)
					a := act{record: name, swaps: true, from: string(value), to: to}
					switch {
					case errors.Is(err, store.ErrConflict):
						a.outcome = conflict
					case err != nil:
						a.outcome = unknown
						late.Add(1)
					}
					note(call, a)
					count.Add(1)
				}
				cancel()
			}
		})
	}
	for n, harm := range harms {
		for count.Load() < int64(n+1)*enough/int64(len(harms)+1) {
			time.Sleep(time.Millisecond)
		}
		call := int64(time.Since(began))
		if harm() {
			note(call, act{})
		}
	}
	working.Wait()
	for name, ops := range history {
		require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(registerModel, ops, time.Minute), name)
	}
	t.Logf("%d operations, %d swaps of unknown outcome, %d harms", count.Load(), late.Load(), len(harms))

	wrong := []porcupine.Operation{
		{Input: act{record: "r", swaps: true, to: "1"}, Call: 1, Return: 2},
		{Input: act{record: "r", from: ""}, Call: 3, Return: 4},
	}
	require.False(t, porcupine.CheckOperations(registerModel, wrong), "it has forgotten, and has lost nothing")
}

// Survives is Register with a bad network, and a server that loses nothing when it is killed.
func Survives(t *testing.T, server interface {
	Crash()
	Start()
	Pause(d time.Duration)
}, address string, open func(address, name string) store.Store) {
	through, turn := BadNetwork(t, address)
	harms := []func() bool{turn}
	for range 4 {
		harms = append(harms, func() bool {
			server.Crash()
			server.Start()
			return false
		}, func() bool {
			server.Pause(300 * time.Millisecond)
			return false
		})
	}
	Register(t, 20_000, func(_ int, name string) store.Store { return open(through, name) }, harms...)
}

// Create creates a record that is not there, and returns its revision.
func Create(t *testing.T, s store.Store) store.Revision {
	value, rev, err := s.Load(t.Context())
	require.NoError(t, err)
	require.Empty(t, value)
	rev, err = s.Swap(t.Context(), []byte("a"), rev)
	require.NoError(t, err)
	return rev
}
