package dmutextest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
)

// A leaving is a random run in which one node leaves while it has no request. It
// tests the second law of WaitsFor.
type leaving struct {
	luck     *rand.Rand
	machines []dmutex.Machine // node 1 first
	requests []int            // how many each node may still make
	wire     [][]dmutex.Message
	leaver   int // its place
	left     bool
	unnamed  dmutex.NodeID // not looked for in WaitsFor
}

var errStuck = errors.New("some wait forever, and none of them for the leaver")

func newLeaving(t *testing.T, a dmutex.Algorithm, seed uint64) *leaving {
	l := &leaving{luck: rand.New(rand.NewPCG(seed, 0))}
	members := Nodes(4)
	for _, id := range members {
		m, err := a(dmutex.Start{Self: id, Members: members})
		require.NoError(t, err)
		l.machines = append(l.machines, m)
		l.requests = append(l.requests, 3)
	}
	l.wire = make([][]dmutex.Message, len(members)*len(members))
	l.leaver = l.luck.IntN(len(members))
	return l
}

// channel is what is in flight from the i-th node to the j-th, oldest first.
func (l *leaving) channel(i, j int) *[]dmutex.Message { return &l.wire[i*len(l.machines)+j] }

// run goes on until nothing can happen any more, or until a machine waits for the
// leaver and has received all messages of the leaver.
func (l *leaving) run() (stopped bool, err error) {
	for {
		steps := l.steps()
		switch {
		case l.stops():
			return true, nil
		case len(steps) > 0:
			if err := steps[l.luck.IntN(len(steps))](); err != nil {
				return false, err
			}
		case slices.ContainsFunc(l.machines, pending):
			return false, errStuck
		default:
			return false, nil
		}
	}
}

func pending(m dmutex.Machine) bool { return m.Pending() }

func (l *leaving) stops() bool {
	id := dmutex.NodeID(l.leaver + 1)
	return l.left && id != l.unnamed && slices.ContainsFunc(l.machines, func(m dmutex.Machine) bool {
		return len(*l.channel(l.leaver, slices.Index(l.machines, m))) == 0 &&
			slices.Contains(m.WaitsFor(nil), id)
	})
}

func (l *leaving) steps() (steps []func() error) {
	for i, m := range l.machines {
		if i == l.leaver && l.left {
			continue
		}
		do := func(input func() ([]dmutex.Message, error)) {
			steps = append(steps, func() error { return l.take(input()) })
		}
		switch m.Phase() {
		case dmutex.Idle:
			if l.requests[i] > 0 {
				do(func() ([]dmutex.Message, error) { l.requests[i]--; return m.Request() })
			}
		case dmutex.Waiting:
			if l.luck.IntN(8) == 0 {
				do(m.Cancel)
			}
		case dmutex.Held:
			do(m.Release)
		}
		for j := range l.machines {
			if c := l.channel(j, i); len(*c) > 0 {
				do(func() ([]dmutex.Message, error) {
					head := (*c)[0]
					*c = (*c)[1:]
					return m.Handle(head)
				})
			}
		}
		if i == l.leaver && m.Phase() == dmutex.Idle && !pending(m) && l.luck.IntN(4) == 0 {
			steps = append(steps, func() error {
				l.left = true
				for j := range l.machines {
					*l.channel(j, i) = nil
				}
				return nil
			})
		}
	}
	return steps
}

func (l *leaving) take(out []dmutex.Message, err error) error {
	for _, m := range out {
		if i, j := int(m.From-1), int(m.To-1); j != l.leaver || !l.left {
			c := l.channel(i, j)
			*c = append(*c, m.Clone())
		}
	}
	return err
}

// If no WaitsFor names the node that has left, the others continue without it.
func TestWaiterSecondLaw(t *testing.T) {
	seeds := uint64(500)
	switch {
	case os.Getenv("DMUTEX_LONG") != "":
		seeds = 10_000
	case testing.Short():
		seeds = 150
	}
	for _, a := range algorithms.Some() {
		needs := dmutex.NodeID(2) // if WaitsFor did not name this node, some would wait forever
		if a.Name == "central" {
			needs = 1
		}
		t.Run(a.Name, func(t *testing.T) {
			var stopped, wentOn int
			for seed := range seeds {
				stops, err := newLeaving(t, a.Algorithm, seed).run()
				require.NoError(t, err, "seed %d", seed)
				if stops {
					stopped++
				} else {
					wentOn++
				}
			}
			require.Positive(t, stopped)
			require.Positive(t, wentOn)

			var err error
			for seed := uint64(0); seed < seeds && err == nil; seed++ {
				l := newLeaving(t, a.Algorithm, seed)
				l.unnamed = needs
				_, err = l.run()
			}
			require.ErrorIs(t, err, errStuck, fmt.Sprint("without ", needs))
		})
	}
}
