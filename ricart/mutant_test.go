package ricart

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

type (
	mutant  = machinetest.Mutant[*Machine]
	handler = func(*Machine, dmutex.Message) ([]dmutex.Message, error)
)

// cancelAtOnce leaves the protocol instead of running its course: it sends the
// deferred replies and forgets those that it awaits.
func cancelAtOnce(m *Machine) ([]dmutex.Message, error) {
	if err := m.site.Cancel(); err != nil {
		return nil, err
	}
	m.site.Enter()
	clear(m.awaiting)
	m.missing = 0
	m.leave()
	return m.site.Out(), nil
}

// anyReply counts every REPLY for the present request.
func anyReply(m *Machine, msg dmutex.Message) ([]dmutex.Message, error) {
	if msg.Kind == dmutex.Reply && m.site.Pending() {
		msg.Attempt = m.site.Stamp().Clock
	}
	return m.Handle(msg)
}

// forgetRest awaits no more replies once the machine is in.
func forgetRest(handle handler) handler {
	return func(m *Machine, msg dmutex.Message) ([]dmutex.Message, error) {
		out, err := handle(m, msg)
		if m.site.Phase() == dmutex.Held && m.round != nil {
			clear(m.awaiting)
		}
		return out, err
	}
}

// answer treats a REQUEST by another rule: whether to defer it, and whether to
// move the clock.
func answer(defers func(m *Machine, theirs dmutex.Stamp) bool, moves bool) handler {
	return func(m *Machine, msg dmutex.Message) ([]dmutex.Message, error) {
		j, err := m.site.Check(msg)
		if err != nil || msg.Kind != dmutex.Request {
			return m.Handle(msg)
		}
		if moves {
			m.site.Witness(msg.Attempt, msg.Fence)
		}
		if defers(m, dmutex.Stamp{Clock: msg.Attempt, Node: msg.From}) {
			m.wake()
			m.deferred[j] = msg.Attempt
		} else {
			m.site.Send(dmutex.Reply, msg.From, msg.Attempt)
		}
		return m.site.Out(), nil
	}
}

// Every rule is needed: without it something goes wrong, and the shortest run
// that shows it is in testdata.
//
// LESSONS L81.
func TestMutants(t *testing.T) {
	held := func(m *Machine) bool { return m.site.Phase() == dmutex.Held }
	for _, tt := range []struct {
		name              string
		mutant            mutant
		nodes             int
		requests, cancels int
		duplicates        int
		kind              error
	}{
		{
			name:   "no-attempt",
			mutant: mutant{Cancel: cancelAtOnce, Handle: anyReply},
			nodes:  2, requests: 3, cancels: 2,
			kind: dmutextest.ErrMutualExclusion,
		},
		{
			name: "one-reply-less",
			mutant: mutant{
				Request: func(m *Machine) ([]dmutex.Message, error) {
					out, err := m.Request()
					m.missing--
					return out, err
				},
				Handle: forgetRest((*Machine).Handle),
			},
			nodes: 3, requests: 1,
			kind: dmutextest.ErrMutualExclusion,
		},
		{
			name: "replies-counted",
			mutant: mutant{Handle: forgetRest(func(m *Machine, msg dmutex.Message) ([]dmutex.Message, error) {
				if j := slices.Index(m.site.Peers(), msg.From); msg.Kind == dmutex.Reply && m.site.Pending() {
					m.awaiting[j] = true
				}
				return m.Handle(msg)
			})},
			nodes: 3, requests: 1, duplicates: 1,
			kind: dmutextest.ErrMutualExclusion,
		},
		{
			name:   "clock-not-moved",
			mutant: mutant{Handle: answer((*Machine).goesFirst, false)},
			nodes:  3, requests: 2,
			kind: dmutextest.ErrMutualExclusion,
		},
		{
			name: "no-defer-while-held",
			mutant: mutant{Handle: answer(func(m *Machine, theirs dmutex.Stamp) bool {
				return !held(m) && m.goesFirst(theirs)
			}, true)},
			nodes: 2, requests: 1,
			kind: dmutextest.ErrMutualExclusion,
		},
		{
			name:   "no-defer-while-waiting",
			mutant: mutant{Handle: answer(func(m *Machine, _ dmutex.Stamp) bool { return held(m) }, true)},
			nodes:  2, requests: 1,
			kind: dmutextest.ErrMutualExclusion,
		},
		{
			name: "ties-answered",
			mutant: mutant{Handle: answer(func(m *Machine, theirs dmutex.Stamp) bool {
				return held(m) || m.site.Pending() && m.site.Stamp().Clock < theirs.Clock
			}, true)},
			nodes: 2, requests: 1,
			kind: dmutextest.ErrMutualExclusion,
		},
		{
			name: "ties-deferred",
			mutant: mutant{Handle: answer(func(m *Machine, theirs dmutex.Stamp) bool {
				return held(m) || m.site.Pending() && m.site.Stamp().Clock <= theirs.Clock
			}, true)},
			nodes: 2, requests: 1,
			kind: dmutextest.ErrDeadlock,
		},
		{
			name: "deferred-forgotten",
			mutant: mutant{Release: func(m *Machine) ([]dmutex.Message, error) {
				m.wake()
				clear(m.deferred)
				return m.Release()
			}},
			nodes: 2, requests: 1,
			kind: dmutextest.ErrDeadlock,
		},
		{
			name: "cancel-deaf",
			mutant: mutant{Cancel: func(m *Machine) ([]dmutex.Message, error) {
				clear(m.deferred)
				return cancelAtOnce(m)
			}},
			nodes: 2, requests: 1, cancels: 1,
			kind: dmutextest.ErrDeadlock,
		},
		{
			name: "fence-not-carried",
			mutant: mutant{Handle: func(m *Machine, msg dmutex.Message) ([]dmutex.Message, error) {
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
				Network:   dmutextest.Network{Unordered: true, Duplicates: tt.duplicates},
			}, tt.kind, "testdata/mutant-"+tt.name+".txt")
		})
	}
}

// It is the attempt numbers that make cancelling safe: with them a node may
// even leave the protocol at once; without them it may not, see no-attempt.
// And as long as nobody leaves the protocol, they are not missed.
//
// LESSONS L17, L25.
func TestAttemptNumbers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		mutant mutant
		states int
	}{
		{"cancel at once, with attempt numbers", mutant{Cancel: cancelAtOnce}, 229_976},
		{"cancel as it should be, without them", mutant{Handle: anyReply}, 8_101},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := dmutextest.Explore(dmutextest.Config{
				Algorithm: tt.mutant.Of(New),
				Members:   dmutextest.Nodes(2),
				Requests:  []int{3},
				Cancels:   []int{2},
				Network:   dmutextest.Unordered,
			})
			require.NoError(t, err)
			require.True(t, r.Complete)
			require.Equal(t, tt.states, r.States, r)
		})
	}
}
