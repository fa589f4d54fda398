package maekawa

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

// A mutation breaks a rule of the algorithm.
type mutation = machinetest.Probe[*machine]

// plain is the algorithm of the paper's section 3 without the handling of
// deadlocks: no FAILED, no INQUIRE, no YIELD.
var plain = mutation{After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
	return slices.DeleteFunc(forget(m, out), func(o dmutex.Message) bool {
		return o.Kind == dmutex.Failed || o.Kind == dmutex.Inquire
	}), nil
}}

// forget makes the requester forget FAILED and INQUIRE: it never yields.
func forget(m *machine, out []dmutex.Message) []dmutex.Message {
	for k := range m.ballots {
		m.ballots[k].failed, m.ballots[k].inquired = false, false
	}
	return out
}

// eager withdraws a request as soon as it is canceled, by a RELEASE that may
// find the request in the queue.
var eager = mutation{
	Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
		if msg.Kind == dmutex.Release {
			m.dequeue(about(msg))
		}
		return m.Handle(msg)
	},
	After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
		if m.Pending() && m.Phase() == dmutex.Idle {
			m.dequeue(m.Stamp())
			m.enter()
			return m.Out(), nil
		}
		return out, nil
	},
}

func (m *machine) dequeue(r dmutex.Stamp) {
	m.queue = slices.DeleteFunc(m.queue, func(e entry) bool { return e.request == r })
}

// Every rule is needed: without it the explorer finds a run that goes wrong. The
// shortest is in testdata.
func TestMutants(t *testing.T) {
	for _, c := range []struct {
		name     string
		broken   mutation
		quorums  rows
		requests []int
		cancels  []int
		network  dmutextest.Network
		kills    error
		states   int // until it is found
	}{
		{
			name: "plain-pair", broken: plain,
			quorums: pair, requests: []int{1}, kills: dmutextest.ErrDeadlock, states: 13,
		}, {
			name: "plain-pairs", broken: plain,
			quorums: pairs, requests: []int{1}, kills: dmutextest.ErrDeadlock, states: 78,
		}, {
			name: "plain-grid", broken: plain,
			quorums: grid, requests: []int{1}, kills: dmutextest.ErrDeadlock, states: 2672,
		}, {
			name: "no-displaced-failed", // rule (C)
			broken: mutation{After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
				for k := range m.queue {
					m.queue[k].told = true
				}
				return out, nil
			}},
			quorums: grid, requests: []int{1}, kills: dmutextest.ErrDeadlock, states: 91794,
		}, {
			name: "dropped-inquire", // one that cannot be answered yet is not remembered
			broken: mutation{After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
				for k := range m.ballots {
					m.ballots[k].inquired = false
				}
				return out, nil
			}},
			quorums: pair, requests: []int{1}, kills: dmutextest.ErrDeadlock, states: 18,
		}, {
			name: "failed-and-yielded", // YIELD if FAILED came *and* the node has yielded before: it never yields first
			broken: mutation{After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
				return forget(m, out), nil
			}},
			quorums: pair, requests: []int{1}, kills: dmutextest.ErrDeadlock, states: 18,
		}, {
			name: "arbiter-held", // an arbiter queues while it is itself in the critical section
			broken: mutation{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				queue := msg.Kind == dmutex.Request && m.Phase() == dmutex.Held && m.vote.Clock == 0
				if queue {
					m.Witness(msg.Clock, msg.Fence)
					m.insert(about(msg), false)
				}
				if queue {
					return nil, nil
				}
				return m.Handle(msg)
			}},
			quorums: others, requests: []int{1}, kills: dmutextest.ErrDeadlock, states: 7917,
		}, {
			name: "release-without-fence",
			broken: mutation{After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
				for k := range out {
					if out[k].Kind == dmutex.Release {
						out[k].Fence = 0
					}
				}
				return out, nil
			}},
			quorums: pairs, requests: []int{1}, kills: dmutextest.ErrFenceOrder, states: 221,
		}, {
			name: "eager-untagged", // answers count for whatever request is pending
			broken: mutation{
				Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
					if about(msg).Node == m.Self() && m.Pending() {
						msg.Attempt = m.Stamp().Clock
					}
					return eager.Handle(m, msg)
				},
				After: eager.After,
			},
			quorums: pairs, requests: []int{2}, cancels: []int{1}, kills: dmutextest.ErrMutualExclusion, states: 3263,
		}, {
			name: "eager-unordered", broken: eager, // RELEASE overtakes its REQUEST
			quorums: pair, requests: []int{1}, cancels: []int{1}, network: dmutextest.Network{Unordered: true},
			kills: dmutextest.ErrDeadlock, states: 456,
		}, {
			name: "untagged", // without withdrawal
			broken: mutation{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				if about(msg).Node == m.Self() && m.Pending() {
					msg.Attempt = m.Stamp().Clock
				}
				return m.Handle(msg)
			}},
			quorums: grid, requests: []int{1, 1, 2, 0}, kills: dmutextest.ErrRefused, states: 53233,
		}, {
			name: "yield-forgets", // the arbiter does not queue the request that yields
			broken: mutation{After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
				for _, o := range out {
					if o.Kind == dmutex.Reply && len(m.queue) > 0 {
						m.queue = m.queue[1:]
					}
				}
				return out, nil
			}},
			quorums: pair, requests: []int{1}, kills: dmutextest.ErrDeadlock, states: 46,
		}, {
			name: "newcomer-untold", // FAILED goes to the displaced only
			broken: mutation{After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
				return slices.DeleteFunc(out, func(o dmutex.Message) bool {
					return o.Kind == dmutex.Failed && o.Attempt > m.vote.Clock
				}), nil
			}},
			quorums: pairs, requests: []int{2}, kills: dmutextest.ErrDeadlock, states: 811,
		}, {
			name: "excludes-the-voter",
			broken: mutation{Excludes: func(m *machine, peer dmutex.NodeID) bool {
				return m.votesFor(peer)
			}},
			quorums: pairs, requests: []int{1}, kills: dmutextest.ErrExcluded, states: 16,
		}, {
			name: "excludes-other-quorums", // of nodes that do not ask it
			broken: mutation{Excludes: func(m *machine, peer dmutex.NodeID) bool {
				return m.vote.Node != peer
			}},
			quorums: pairs, requests: []int{1}, kills: dmutextest.ErrExcluded, states: 16,
		}, {
			name: "excludes-the-inquired", // it still has the vote, and may have all others
			broken: mutation{Excludes: func(m *machine, peer dmutex.NodeID) bool {
				return m.votesFor(peer) && (m.vote.Node != peer || m.asked)
			}},
			quorums: others, requests: []int{1}, kills: dmutextest.ErrExcluded, states: 1204,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			report, err := dmutextest.Explore(dmutextest.Config{
				Algorithm: c.broken.Of(With(c.quorums.of)),
				Members:   dmutextest.Nodes(len(c.quorums)),
				Requests:  c.requests,
				Cancels:   c.cancels,
				Network:   c.network,
			})
			t.Log(report)
			require.ErrorIs(t, err, c.kills)
			require.Equal(t, c.states, report.States)
			var v *dmutextest.Violation
			require.True(t, errors.As(err, &v))
			goldentest.Compare(t, "testdata/mutant-"+c.name+".txt", v.Script)
		})
	}
}

// To withdraw eagerly is right if messages name their requests and channels keep the
// order.
func TestEagerTaggedInOrder(t *testing.T) {
	report, err := dmutextest.Explore(dmutextest.Config{
		Algorithm: eager.Of(With(pairs.of)),
		Members:   dmutextest.Nodes(3),
		Requests:  []int{2, 1, 1},
		Cancels:   []int{1},
	})
	require.NoError(t, err)
	require.True(t, report.Complete)
	t.Log(report)
}

// Each guard is needed: without it a test fails. With DMUTEX_LONG=1.
func TestKill(t *testing.T) {
	machinetest.Kill(t, "maekawa.go", []machinetest.Edit{
		{"clock not heard", "m.Witness(max(msg.Attempt, msg.Clock), msg.Fence)", "m.Witness(0, msg.Fence)", "TestExplore"},
		{"fence not heard", "m.Witness(max(msg.Attempt, msg.Clock), msg.Fence)", "m.Witness(max(msg.Attempt, msg.Clock), 0)", "TestExplore"},
	})
	machinetest.Kill(t, "arbiter.go", []machinetest.Edit{
		{"votes twice", "case m.vote.Clock == 0:", "case true:", "TestExplore"},
		{"repeated request of the voter", "m.vote.Node == r.Node && m.vote.Clock >= r.Clock, ", "", "TestRefuses"},
		{"next request of the voter ignored", "m.vote.Clock >= r.Clock", "m.vote.Clock > 0", "TestExplore"},
		{"repeated request of a waiter", ", m.waiting(r.Node) != 0:", ":", "TestRefuses"},
		{"newcomer behind the vote untold", " || m.vote.Less(r)", "", "TestExplore"},
		{"newcomer behind a waiter untold", "at > 0 || ", "", "TestMessages"},
		{"rule (C)", "\tm.failDisplaced()\n", "", "TestExplore"},
		{"told again", "&& !m.queue[1].told", "", "TestExplore"},
		{"does not note that it told", "\tm.queue[at].told = true\n", "", "TestExplore"},
		{"does not inquire", "\tm.inquire()\n", "", "TestExplore"},
		{"inquires again", "if !m.asked {", "{", "TestScripts"},
		{"any release", "func (m *machine) release(r dmutex.Stamp) {\n\tif r == m.vote {", "func (m *machine) release(r dmutex.Stamp) {\n\t{", "TestRefuses"},
		{"any yield", "func (m *machine) yield(r dmutex.Stamp) {\n\tif r == m.vote {", "func (m *machine) yield(r dmutex.Stamp) {\n\t{", "TestRefuses"},
		{"the request that yields lost", "\t\tm.insert(r, true)\n", "", "TestExplore"},
		{"the request that yields untold", "m.insert(r, true)", "m.insert(r, false)", "TestExplore"},
		{"asks only for the first vote", "m.vote, m.asked = dmutex.Stamp{}, false", "m.vote = dmutex.Stamp{}", "TestExplore"},
		{"queue forgotten", "m.grant(r)\n\t}\n}\n\n// insert", "_ = r\n\t}\n}\n\n// insert", "TestExplore"},
		{"granted again", "m.queue = slices.Delete(m.queue, 0, 1)", "", "TestExplore"},
		{"first come, first served", "e.request.Compare(r)", "-1", "TestExplore"},
	})
	machinetest.Kill(t, "requester.go", []machinetest.Edit{
		{"any answer", " || r != m.Stamp()", "", "TestExplore"},
		{"answer though not pending", "!m.Pending() || ", "", "TestExplore"},
		{"failure remembered after the vote", "b.locked, b.failed, b.yielded = true, false, false", "b.locked, b.yielded = true, false", "TestExplore"},
		{"yield remembered after the vote", "b.locked, b.failed, b.yielded = true, false, false", "b.locked, b.failed = true, false", "TestExplore"},
		{"FAILED not heard", "b.failed = true", "", "TestExplore"},
		{"INQUIRE not remembered", "b.inquired = true", "", "TestExplore"},
		{"enters without a vote", "if m.won() {", "if true {", "TestExplore"},
		{"gives way though it may win", "} else if m.lost() {", "} else {", "TestMessages"},
		{"a vote taken back is no failure", " || b.yielded", "", "TestExplore"},
		{"keeps the vote that it gives back", "b.locked, b.inquired, b.yielded = false, false, true", "b.inquired, b.yielded = false, true", "TestExplore"},
		{"gives back what it does not have", "b.locked && b.inquired", "b.inquired", "TestExplore"},
		{"old votes count", "\tclear(m.ballots)\n", "", "TestExplore"},
		{"ghost does not release", "m.Enter(); withdrawn {", "m.Enter(); withdrawn && false {", "TestExplore"},
	})
	machinetest.Kill(t, "quorums.go", []machinetest.Edit{
		{"the carried vote unknown", "m.vote = dmutex.Stamp{Clock: site.Carried, Node: holder}", "", "TestExplore"},
	})
	machinetest.Kill(t, "contract.go", []machinetest.Edit{
		{"forgets the vote", " && m.vote.Clock == 0", "", "TestMachine"},
		{"forgets the queue", " && len(m.queue) == 0", "", "TestMutants"},
		{"the voter excluded", "m.vote.Node != peer && m.votesFor(peer)", "m.votesFor(peer)", "TestExplore"},
		{"other quorums excluded", "m.vote.Node != peer && m.votesFor(peer)", "m.vote.Node != peer", "TestExplore"},
		{"does not exclude", "m.vote.Node != peer && m.votesFor(peer)", "false", "TestExcludes"},
		{"a holder does not exclude", "m.Site.Excludes(peer) || ", "", "TestExcludes"},
	})
}
