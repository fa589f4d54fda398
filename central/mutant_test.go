package central

import (
	"flag"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/machinetest"
)

var _ = flag.Bool("update", false, "rewrite the golden files")

type mutant = machinetest.Mutant[*machine]

// withdraw takes a request out of the queue.
func (m *machine) withdraw(r dmutex.Stamp) {
	m.queue = slices.DeleteFunc(m.queue, func(q dmutex.Stamp) bool { return q == r })
}

// cancelAtOnce tells the coordinator instead of running its course.
func cancelAtOnce(m *machine) ([]dmutex.Message, error) {
	r := m.Stamp()
	if _, err := m.Cancel(); err != nil {
		return nil, err
	}
	m.Enter()
	m.withdraw(r)
	m.say(dmutex.Release, m.coordinator, r)
	return m.Out(), nil
}

// withdraws takes a RELEASE for a request that still waits as its end.
func withdraws(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
	if msg.Kind == dmutex.Release {
		r := dmutex.Stamp{Clock: msg.Attempt, Node: msg.From}
		m.withdraw(r)
	}
	return m.Handle(msg)
}

// anyGrant takes every GRANT for the present request.
func anyGrant(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
	if msg.Kind == dmutex.Grant && m.Pending() {
		msg.Attempt = m.Stamp().Clock
	}
	return withdraws(m, msg)
}

// Every rule is needed: without it something goes wrong, and the shortest run
// that shows it is in testdata.
func TestMutants(t *testing.T) {
	for _, tt := range []struct {
		name              string
		mutant            mutant
		nodes             int
		requests, cancels int
		network           dmutextest.Network
		kind              error
	}{
		{
			// Even the whole algorithm does not stand a REQUEST that is
			// repeated late: it is granted when nobody is there to release.
			name:  "repeated-message",
			nodes: 2, requests: 1,
			network: dmutextest.Network{Unordered: true, Duplicates: 1},
			kind:    dmutextest.ErrLeftBehind,
		},
		{
			name:   "no-attempt",
			mutant: mutant{Cancel: cancelAtOnce, Handle: anyGrant},
			nodes:  3, requests: 2, cancels: 2,
			kind: dmutextest.ErrMutualExclusion,
		},
		{
			name:   "cancel-overtakes",
			mutant: mutant{Cancel: cancelAtOnce, Handle: withdraws},
			nodes:  2, requests: 1, cancels: 1,
			network: dmutextest.Unordered,
			kind:    dmutextest.ErrLeftBehind,
		},
		{
			name: "grant-while-held",
			mutant: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				if msg.Kind == dmutex.Request {
					m.holder = dmutex.Stamp{}
				}
				return m.Handle(msg)
			}},
			nodes: 2, requests: 1,
			kind: dmutextest.ErrMutualExclusion,
		},
		{
			name: "no-queue",
			mutant: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				m.queue = nil
				return m.Handle(msg)
			}},
			nodes: 2, requests: 1,
			kind: dmutextest.ErrDeadlock,
		},
		{
			name: "grant-kept",
			mutant: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				out, err := m.Handle(msg)
				if msg.Kind == dmutex.Grant && m.Phase() == dmutex.Idle {
					return nil, err
				}
				return out, err
			}},
			nodes: 2, requests: 1, cancels: 1,
			kind: dmutextest.ErrLeftBehind,
		},
		{
			name: "fence-not-carried",
			mutant: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				msg.Fence = 0
				return m.Handle(msg)
			}},
			nodes: 2, requests: 1,
			kind: dmutextest.ErrFenceOrder,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dmutextest.Refute(t, dmutextest.Config{
				Algorithm: tt.mutant.Of(New),
				Members:   dmutextest.Nodes(tt.nodes),
				Requests:  []int{tt.requests},
				Cancels:   []int{tt.cancels},
				Network:   tt.network,
			}, tt.kind, "testdata/mutant-"+tt.name+".txt")
		})
	}
}

// With attempt numbers and in order, a client may even tell the coordinator at
// once that it no longer waits; without either it may not, see no-attempt and
// cancel-overtakes.
func TestCancelAtOnce(t *testing.T) {
	r, err := dmutextest.Explore(dmutextest.Config{
		Algorithm: mutant{Cancel: cancelAtOnce, Handle: withdraws}.Of(New),
		Members:   dmutextest.Nodes(3),
		Requests:  []int{2},
		Cancels:   []int{1},
		Network:   dmutextest.FIFO,
	})
	require.NoError(t, err)
	require.True(t, r.Complete)
	require.Equal(t, 23_500, r.States, r)
}
