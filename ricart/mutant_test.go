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
	mutant  = machinetest.Mutant[*machine]
	handler = func(*machine, dmutex.Message) ([]dmutex.Message, error)
)

// cancelAtOnce leaves the protocol instead of running its course: it sends the
// deferred replies and forgets those that it awaits.
func cancelAtOnce(m *machine) ([]dmutex.Message, error) {
	if _, err := m.Cancel(); err != nil {
		return nil, err
	}
	m.Enter()
	clear(m.awaiting)
	m.replyDeferred()
	return m.Out(), nil
}

// anyReply counts every REPLY for the present request.
func anyReply(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
	if msg.Kind == dmutex.Reply && m.Pending() {
		msg.Attempt = m.Stamp().Clock
	}
	return m.Handle(msg)
}

// answer treats a REQUEST by another rule: whether to defer it, and whether to
// move the clock.
func answer(defers func(m *machine, theirs dmutex.Stamp) bool, moves bool) handler {
	return func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
		j, err := m.Check(msg)
		if err != nil || msg.Kind != dmutex.Request {
			return m.Handle(msg)
		}
		if moves {
			m.Witness(msg.Attempt, msg.Fence)
		}
		if defers(m, dmutex.Stamp{Clock: msg.Attempt, Node: msg.From}) {
			m.deferred[j] = msg.Attempt
		} else {
			m.Send(dmutex.Reply, msg.From, msg.Attempt)
		}
		return m.Out(), nil
	}
}

// Every rule is needed: without it something goes wrong, and the shortest run
// that shows it is in testdata.
//
// LESSONS L81.
func TestMutants(t *testing.T) {
	held := func(m *machine) bool { return m.Phase() == dmutex.Held }
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
			mutant: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				out, err := m.Handle(msg)
				if missing := len(m.WaitsFor(nil)); missing == 1 {
					clear(m.awaiting)
					m.tryEnter()
				}
				return out, err
			}},
			nodes: 3, requests: 1,
			kind: dmutextest.ErrMutualExclusion,
		},
		{
			name: "replies-counted",
			mutant: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				j := slices.Index(m.Peers(), msg.From)
				if k := slices.Index(m.awaiting, true); msg.Kind == dmutex.Reply && k >= 0 && !m.awaiting[j] {
					msg.From = m.Peers()[k] // a repeated REPLY counts for another one
				}
				return m.Handle(msg)
			}},
			nodes: 3, requests: 1, duplicates: 1,
			kind: dmutextest.ErrMutualExclusion,
		},
		{
			name:   "clock-not-moved",
			mutant: mutant{Handle: answer((*machine).goesFirst, false)},
			nodes:  3, requests: 2,
			kind: dmutextest.ErrMutualExclusion,
		},
		{
			name: "no-defer-while-held",
			mutant: mutant{Handle: answer(func(m *machine, theirs dmutex.Stamp) bool {
				return !held(m) && m.goesFirst(theirs)
			}, true)},
			nodes: 2, requests: 1,
			kind: dmutextest.ErrMutualExclusion,
		},
		{
			name:   "no-defer-while-waiting",
			mutant: mutant{Handle: answer(func(m *machine, _ dmutex.Stamp) bool { return held(m) }, true)},
			nodes:  2, requests: 1,
			kind: dmutextest.ErrMutualExclusion,
		},
		{
			name: "ties-answered",
			mutant: mutant{Handle: answer(func(m *machine, theirs dmutex.Stamp) bool {
				return held(m) || m.Pending() && m.Stamp().Clock < theirs.Clock
			}, true)},
			nodes: 2, requests: 1,
			kind: dmutextest.ErrMutualExclusion,
		},
		{
			name: "ties-deferred",
			mutant: mutant{Handle: answer(func(m *machine, theirs dmutex.Stamp) bool {
				return held(m) || m.Pending() && m.Stamp().Clock <= theirs.Clock
			}, true)},
			nodes: 2, requests: 1,
			kind: dmutextest.ErrDeadlock,
		},
		{
			name: "deferred-forgotten",
			mutant: mutant{Release: func(m *machine) ([]dmutex.Message, error) {
				clear(m.deferred)
				return m.Release()
			}},
			nodes: 2, requests: 1,
			kind: dmutextest.ErrDeadlock,
		},
		{
			name: "cancel-deaf",
			mutant: mutant{Cancel: func(m *machine) ([]dmutex.Message, error) {
				clear(m.deferred)
				return cancelAtOnce(m)
			}},
			nodes: 2, requests: 1, cancels: 1,
			kind: dmutextest.ErrDeadlock,
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
