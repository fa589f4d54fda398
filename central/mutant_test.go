package central

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/machinetest"
)

type mutant = machinetest.Probe[*machine]

// withdraw takes a request out of the queue.
func (m *machine) withdraw(r dmutex.Stamp) {
	m.queue = slices.DeleteFunc(m.queue, func(q dmutex.Stamp) bool { return q == r })
}

// cancelAtOnce tells the coordinator at once that a request is withdrawn. Cancel itself waits for the
// grant and releases it.
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

// withdraws lets a RELEASE withdraw a request that still waits.
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
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{
			// Even the unchanged algorithm fails if a REQUEST is repeated late:
			// the repeated one is granted, and no node releases it.
			Name:      "repeated-message",
			Algorithm: New,
			Nodes:     2, Requests: []int{1},
			Network: dmutextest.Network{Unordered: true, Duplicates: 1},
			Want:    dmutextest.ErrLeftBehind,
		},
		{
			Name:      "no-attempt",
			Algorithm: mutant{Cancel: cancelAtOnce, Handle: anyGrant}.Of(New),
			Nodes:     3, Requests: []int{2}, Cancels: []int{2},
			Want: dmutextest.ErrMutualExclusion,
		},
		{
			Name:      "cancel-overtakes",
			Algorithm: mutant{Cancel: cancelAtOnce, Handle: withdraws}.Of(New),
			Nodes:     2, Requests: []int{1}, Cancels: []int{1},
			Network: dmutextest.Network{Unordered: true},
			Want:    dmutextest.ErrLeftBehind,
		},
		{
			Name: "grant-while-held",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				if msg.Kind == dmutex.Request {
					m.holder = dmutex.Stamp{}
				}
				return m.Handle(msg)
			}}.Of(New),
			Nodes: 2, Requests: []int{1},
			Want: dmutextest.ErrMutualExclusion,
		},
		{
			Name: "no-queue",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				m.queue = nil
				return m.Handle(msg)
			}}.Of(New),
			Nodes: 2, Requests: []int{1},
			Want: dmutextest.ErrDeadlock,
		},
		{
			Name: "grant-kept",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				out, err := m.Handle(msg)
				if msg.Kind == dmutex.Grant && m.Phase() == dmutex.Idle {
					return nil, err
				}
				return out, err
			}}.Of(New),
			Nodes: 2, Requests: []int{1}, Cancels: []int{1},
			Want: dmutextest.ErrLeftBehind,
		},
		{
			Name: "fence-not-carried",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				msg.Fence = 0
				return m.Handle(msg)
			}}.Of(New),
			Nodes: 2, Requests: []int{1},
			Want: dmutextest.ErrFenceOrder,
		},
		{
			Name: "excludes-the-holder",
			Algorithm: mutant{Excludes: func(m *machine, _ dmutex.NodeID) bool {
				return m.coordinates()
			}}.Of(New),
			Nodes: 2, Requests: []int{1},
			Want: dmutextest.ErrExcluded,
		},
		{
			// Only the coordinator knows which node holds the lock.
			Name: "excluded-by-a-client",
			Algorithm: mutant{Excludes: func(m *machine, peer dmutex.NodeID) bool {
				return m.holder.Node != peer
			}}.Of(New),
			Nodes: 2, Requests: []int{1},
			Want: dmutextest.ErrExcluded,
		},
	})
}

// With attempt numbers and channels in order, a client may even tell the
// coordinator at once that it no longer waits. If one of the two is missing it may
// not: see no-attempt and cancel-overtakes.
func TestCancelAtOnce(t *testing.T) {
	r, err := dmutextest.Explore(dmutextest.Config{
		Algorithm: mutant{Cancel: cancelAtOnce, Handle: withdraws}.Of(New),
		Members:   dmutextest.Nodes(3),
		Requests:  []int{2},
		Cancels:   []int{1},
		Network:   dmutextest.Network{},
	})
	require.NoError(t, err)
	require.True(t, r.Complete)
	require.Equal(t, 23_500, r.States, r)
}

// Each guard is needed: without it a test fails. With DMUTEX_LONG=1.
func TestKill(t *testing.T) {
	machinetest.Kill(t, "central.go", []machinetest.Edit{
		{"the carried grant unknown", "m.holder = dmutex.Stamp{Clock: site.Carried, Node: s.Holder}", "", "TestExplore"},
		{"not at home", "site.Home(s, coordinator)", "own.Members()[0]", "TestExcludes"},
		{"fence not heard", "m.Witness(0, msg.Fence)", "", "TestExplore"},
		{"any grant", " || m.Stamp() != r", "", "TestRefuses"},
		{"grant though not pending", "!m.Pending() || ", "", "TestRefuses"},
		{"ghost does not release", "m.Enter(); withdrawn {", "m.Enter(); withdrawn && false {", "TestExplore"},
		{"grants while held", "case m.holder.Clock == 0:", "case true:", "TestExplore"},
		{"repeated request of the holder", "m.holder.Node == r.Node && m.holder.Clock >= r.Clock, ", "", "TestRefuses"},
		{"next request of the holder ignored", "m.holder.Clock >= r.Clock", "m.holder.Clock > 0", "TestExplore"},
		{"repeated request of a waiter", ", m.waiting(r.Node) != 0:", ":", "TestRefuses"},
		{"request lost", "m.queue = append(m.queue, r)", "", "TestExplore"},
		{"any release", "if r != m.holder {", "if false {", "TestRefuses"},
		{"queue forgotten", "m.grant(next)", "_ = next", "TestExplore"},
		{"granted again", "m.queue = slices.Delete(m.queue, 0, 1)", "_ = slices.Clone(m.queue)", "TestExplore"},
		{"last come, first served", "next := m.queue[0]", "next := m.queue[len(m.queue)-1]", "TestExplore"},
	})
	machinetest.Kill(t, "contract.go", []machinetest.Edit{
		{"forgets the holder", " && m.holder.Clock == 0", "", "TestMachine"},
		{"a client excludes", "m.coordinates() && m.holder.Node != peer", "m.holder.Node != peer", "TestExplore"},
		{"the holder excluded", "m.coordinates() && m.holder.Node != peer", "m.coordinates()", "TestExplore"},
		{"does not exclude", "m.coordinates() && m.holder.Node != peer", "false", "TestExcludes"},
		{"a holder does not exclude", "m.Site.Excludes(peer) || ", "", "TestExcludes"},
	})
}
