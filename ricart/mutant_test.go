package ricart

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/site"
)

type (
	mutant  = machinetest.Probe[*machine]
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
		j, err := m.Check(msg, m.impossible)
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
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{
			Name:      "no-attempt",
			Algorithm: mutant{Cancel: cancelAtOnce, Handle: anyReply}.Of(New),
			Nodes:     2, Requests: []int{3}, Cancels: []int{2},
			Network: dmutextest.Network{Unordered: true},
			Want:    dmutextest.ErrMutualExclusion,
		},
		{
			Name: "one-reply-less",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				out, err := m.Handle(msg)
				if missing := len(m.WaitsFor(nil)); missing == 1 {
					clear(m.awaiting)
					m.tryEnter()
				}
				return out, err
			}}.Of(New),
			Nodes: 3, Requests: []int{1},
			Network: dmutextest.Network{Unordered: true},
			Want:    dmutextest.ErrMutualExclusion,
		},
		{
			Name: "replies-counted",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				j := slices.Index(m.Peers(), msg.From)
				if k := slices.Index(m.awaiting, true); msg.Kind == dmutex.Reply && k >= 0 && !m.awaiting[j] {
					msg.From = m.Peers()[k] // a repeated REPLY counts for another one
				}
				return m.Handle(msg)
			}}.Of(New),
			Nodes: 3, Requests: []int{1},
			Network: dmutextest.Network{Unordered: true, Duplicates: 1},
			Want:    dmutextest.ErrMutualExclusion,
		},
		{
			Name:      "clock-not-moved",
			Algorithm: mutant{Handle: answer((*machine).goesFirst, false)}.Of(New),
			Nodes:     3, Requests: []int{2},
			Network: dmutextest.Network{Unordered: true},
			Want:    dmutextest.ErrMutualExclusion,
		},
		{
			Name: "no-defer-while-held",
			Algorithm: mutant{Handle: answer(func(m *machine, theirs dmutex.Stamp) bool {
				return !held(m) && m.goesFirst(theirs)
			}, true)}.Of(New),
			Nodes: 2, Requests: []int{1},
			Network: dmutextest.Network{Unordered: true},
			Want:    dmutextest.ErrMutualExclusion,
		},
		{
			Name:      "no-defer-while-waiting",
			Algorithm: mutant{Handle: answer(func(m *machine, _ dmutex.Stamp) bool { return held(m) }, true)}.Of(New),
			Nodes:     2, Requests: []int{1},
			Network: dmutextest.Network{Unordered: true},
			Want:    dmutextest.ErrMutualExclusion,
		},
		{
			Name: "ties-answered",
			Algorithm: mutant{Handle: answer(func(m *machine, theirs dmutex.Stamp) bool {
				return held(m) || m.Pending() && m.Stamp().Clock < theirs.Clock
			}, true)}.Of(New),
			Nodes: 2, Requests: []int{1},
			Network: dmutextest.Network{Unordered: true},
			Want:    dmutextest.ErrMutualExclusion,
		},
		{
			Name: "ties-deferred",
			Algorithm: mutant{Handle: answer(func(m *machine, theirs dmutex.Stamp) bool {
				return held(m) || m.Pending() && m.Stamp().Clock <= theirs.Clock
			}, true)}.Of(New),
			Nodes: 2, Requests: []int{1},
			Network: dmutextest.Network{Unordered: true},
			Want:    dmutextest.ErrDeadlock,
		},
		{
			Name: "deferred-forgotten",
			Algorithm: mutant{After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
				if m.Phase() == dmutex.Held {
					clear(m.deferred)
				}
				return out, nil
			}}.Of(New),
			Nodes: 2, Requests: []int{1},
			Network: dmutextest.Network{Unordered: true},
			Want:    dmutextest.ErrDeadlock,
		},
		{
			Name: "cancel-deaf",
			Algorithm: mutant{Cancel: func(m *machine) ([]dmutex.Message, error) {
				clear(m.deferred)
				return cancelAtOnce(m)
			}}.Of(New),
			Nodes: 2, Requests: []int{1}, Cancels: []int{1},
			Network: dmutextest.Network{Unordered: true},
			Want:    dmutextest.ErrDeadlock,
		},
		{
			Name: "fence-not-carried",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				msg.Fence = 0
				return m.Handle(msg)
			}}.Of(New),
			Nodes: 2, Requests: []int{1},
			Network: dmutextest.Network{Unordered: true},
			Want:    dmutextest.ErrFenceOrder,
		},
		{
			Name:      "excludes-when-idle", // a REPLY that it has sent leaves no trace
			Algorithm: mutant{Excludes: func(m *machine, _ dmutex.NodeID) bool { return m.Idle() }}.Of(New),
			Nodes:     2, Requests: []int{1},
			Want: dmutextest.ErrExcluded,
		},
	})
}

// meets treats a REQUEST and a SHARE by another rule: which of them conflict with our own.
func meets(conflicts func(m *machine, theirs dmutex.Kind) bool) handler {
	return func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
		j, err := m.Check(msg, m.impossible)
		if err != nil || msg.Kind == dmutex.Reply {
			return m.Handle(msg)
		}
		m.Witness(msg.Attempt, msg.Fence)
		if conflicts(m, msg.Kind) && m.goesFirst(dmutex.Stamp{Clock: msg.Attempt, Node: msg.From}) {
			m.deferred[j] = msg.Attempt
		} else {
			m.Send(dmutex.Reply, msg.From, msg.Attempt)
		}
		return m.Out(), nil
	}
}

// deafTo drops the messages of a kind.
func deafTo(kind dmutex.Kind) func(*machine, dmutex.Message) ([]dmutex.Message, error) {
	return func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
		if msg.Kind == kind {
			return nil, nil
		}
		return m.Handle(msg)
	}
}

// The same for the rules by which nodes share.
func TestMutantsShared(t *testing.T) {
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{
			// A node that shares lets in all.
			Name:      "share-with-all",
			Algorithm: mutant{Handle: meets(func(m *machine, _ dmutex.Kind) bool { return !m.Shared() })}.Of(New),
			Nodes:     2, Requests: []int{1}, Shares: []int{1},
			Network: unordered, Want: dmutextest.ErrMutualExclusion,
		},
		{
			// A node that does not share lets in those that do.
			Name:      "share-beside-a-holder",
			Algorithm: mutant{Handle: meets(func(_ *machine, theirs dmutex.Kind) bool { return theirs == dmutex.Request })}.Of(New),
			Nodes:     2, Requests: []int{1}, Shares: []int{1},
			Network: unordered, Want: dmutextest.ErrMutualExclusion,
		},
		{
			// Nodes that share exclude each other.
			Name:      "share-with-none",
			Algorithm: mutant{Handle: meets(func(*machine, dmutex.Kind) bool { return true })}.Of(New),
			Nodes:     2, Shares: []int{1},
			Network: unordered, Want: dmutextest.ErrApart,
		},
		{
			// A node that shares does not learn that a request waits for it.
			Name:      "share-not-wanted",
			Algorithm: mutant{Wanted: func(*machine) bool { return false }}.Of(New),
			Nodes:     2, Requests: []int{1}, Shares: []int{1},
			Network: unordered, Want: dmutextest.ErrWanted,
		},
		{
			// A withdrawn request keeps its turn although it keeps out nodes that share.
			Name:      "share-withdrawn",
			Algorithm: mutant{Handle: deafTo(dmutex.Inquire)}.Of(New),
			Nodes:     3, Requests: []int{0, 1, 0}, Shares: []int{1, 0, 1}, Cancels: []int{0, 1, 0},
			Network: unordered, Want: dmutextest.ErrApart,
		},
		{
			// A node that shares does not hear that a request is withdrawn.
			Name:      "share-withdrawn-unheard",
			Algorithm: mutant{Handle: deafTo(dmutex.Release)}.Of(New),
			Nodes:     2, Requests: []int{1, 0}, Shares: []int{0, 1}, Cancels: []int{1, 0},
			Network: unordered, Want: dmutextest.ErrWanted,
		},
		{
			// An INQUIRE about a request that is over is not answered.
			Name: "share-withdrawn-before",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				if msg.Kind == dmutex.Inquire && m.Idle() {
					return nil, nil
				}
				return m.Handle(msg)
			}}.Of(New),
			Nodes: 3, Requests: []int{0, 1, 0}, Shares: []int{1, 0, 1}, Cancels: []int{0, 1, 0},
			Network: unordered, Want: dmutextest.ErrWanted,
		},
		{
			// A node that shares the lock says that no other node holds it.
			Name:      "share-excludes",
			Algorithm: mutant{Excludes: func(m *machine, peer dmutex.NodeID) bool { return m.ExcludesAlone(peer) }}.Of(New),
			Nodes:     2, Shares: []int{1},
			Network: unordered, Want: dmutextest.ErrExcluded,
		},
		{
			// A REPLY that a node has sent leaves no trace.
			Name:      "share-excludes-when-idle",
			Algorithm: mutant{ExcludesAlone: func(m *machine, _ dmutex.NodeID) bool { return m.Idle() }}.Of(New),
			Nodes:     2, Requests: []int{1}, Shares: []int{1},
			Network: unordered, Want: dmutextest.ErrExcluded,
		},
	})
}

// The attempt numbers make canceling safe: with them a node may even leave the
// protocol at once. Without them it may not: see no-attempt. As long as no node leaves
// the protocol, the numbers are not needed.
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
				Network:   dmutextest.Network{Unordered: true},
			})
			require.NoError(t, err)
			require.True(t, r.Complete)
			require.Equal(t, tt.states, r.States, r)
		})
	}
}

// The algorithm relies on every message arriving: lose one, and somebody waits
// forever. For messages that are repeated or overtake each other, see
// TestExplore.
func TestNeedsEveryMessage(t *testing.T) {
	dmutextest.Refute(t, dmutextest.Config{
		Algorithm: New,
		Members:   dmutextest.Nodes(2),
		Requests:  []int{1},
		Network:   dmutextest.Network{Losses: 1},
	}, dmutextest.ErrDeadlock, "testdata/loss.txt")
}

// leaveAtOnce withdraws a canceled request from the protocol.
func leaveAtOnce(m *carvalho, out []dmutex.Message) ([]dmutex.Message, error) {
	if m.Pending() && m.Phase() == dmutex.Idle {
		m.Enter()
		clear(m.awaiting)
		m.replyDeferred()
		return m.Out(), nil
	}
	return out, nil
}

// Without one of the rules something goes wrong; the shortest run that shows it
// is in testdata.
func TestMutantsCarvalho(t *testing.T) {
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{
			Name: "carvalho-not-asked-back",
			Algorithm: carvalhoProbe{
				After: func(_ *carvalho, out []dmutex.Message) ([]dmutex.Message, error) {
					if len(out) == 2 && out[0].Kind == dmutex.Reply && out[1].Kind == dmutex.Request {
						return out[:1], nil
					}
					return out, nil
				},
			}.Of(Carvalho),
			Nodes: 3, Requests: []int{2},
			Want: dmutextest.ErrDeadlock,
		},
		{
			Name: "carvalho-late-reply-kept", // by a node that has left the protocol
			Algorithm: carvalhoProbe{
				Handle: func(m *carvalho, msg dmutex.Message) ([]dmutex.Message, error) {
					j := slices.Index(m.Peers(), msg.From)
					late := msg.Kind == dmutex.Reply && !m.awaiting[j]
					m.kept[j] = m.kept[j] || late
					if late {
						return nil, nil
					}
					return m.Handle(msg)
				},
				After: leaveAtOnce,
			}.Of(Carvalho),
			Nodes: 2, Requests: []int{2}, Cancels: []int{1},
			Want: dmutextest.ErrMutualExclusion,
		},
		{
			Name: "carvalho-late-reply-counted", // for the next request
			Algorithm: carvalhoProbe{
				Handle: func(m *carvalho, msg dmutex.Message) ([]dmutex.Message, error) {
					if msg.Kind == dmutex.Reply && m.Pending() {
						msg.Attempt = m.Stamp().Clock
					}
					return m.Handle(msg)
				},
				After: leaveAtOnce,
			}.Of(Carvalho),
			Nodes: 2, Requests: []int{2}, Cancels: []int{1},
			Want: dmutextest.ErrMutualExclusion,
		},
		{
			Name: "carvalho-given-and-kept", // the REPLY does not give the permission away
			Algorithm: carvalhoProbe{
				After: func(m *carvalho, out []dmutex.Message) ([]dmutex.Message, error) {
					for _, o := range out {
						if o.Kind == dmutex.Reply {
							m.kept[slices.Index(m.Peers(), o.To)] = true
						}
					}
					return out, nil
				},
			}.Of(Carvalho),
			Nodes: 2, Requests: []int{2},
			Want: dmutextest.ErrMutualExclusion,
		},
		{
			Name: "carvalho-reply-without-fence",
			Algorithm: carvalhoProbe{
				Handle: func(m *carvalho, msg dmutex.Message) ([]dmutex.Message, error) {
					msg.Fence = 0
					return m.Handle(msg)
				},
			}.Of(Carvalho),
			Nodes: 2, Requests: []int{1},
			Want: dmutextest.ErrFenceOrder,
		},
	})
}

// A node may leave the protocol at once if it throws away the REPLY that comes
// too late: then neither of the two has the other's permission. See the mutants
// late-reply-kept and late-reply-counted.
func TestCarvalhoLateReplyThrownAway(t *testing.T) {
	machinetest.Explore(t, dmutextest.Config{
		Algorithm: carvalhoProbe{After: leaveAtOnce}.Of(Carvalho),
		Members:   dmutextest.Nodes(2),
		Requests:  []int{3},
		Cancels:   []int{2},
		Network:   dmutextest.Network{Unordered: true},
	})
}

// Each guard is needed: without it a test fails. With DMUTEX_LONG=1.
func TestKill(t *testing.T) {
	machinetest.Kill(t, "ricart.go", []machinetest.Edit{
		{"clock not moved", "m.Witness(msg.Attempt, msg.Fence)", "m.Witness(0, msg.Fence)", "TestExplore"},
		{"fence of a reply not heard", "m.Witness(0, msg.Fence)\n\tif m.answers", "if m.answers", "TestExplore"},
		{"answers while held", "m.Phase() == dmutex.Held || ", "", "TestExplore"},
		{"answers while pending", " || m.Pending() && m.Stamp().Less(theirs)", "", "TestExplore"},
		{"defers all while pending", " && m.Stamp().Less(theirs)", "", "TestExplore"},
		{"counts any reply", " && reply.Attempt == m.Stamp().Clock", "", "TestRefuses"},
		{"enters at once", "slices.Contains(m.awaiting, true)", "slices.Contains(m.awaiting, true) && false", "TestExplore"},
		{"deferred forgotten", "\tm.replyDeferred()\n\treturn m.Out()", "\treturn m.Out()", "TestExplore"},
		{"ghost does not reply", "m.Enter(); withdrawn {", "m.Enter(); withdrawn && false {", "TestExplore"},
		{"replies again", "\t\t\tm.deferred[j] = 0\n", "", "TestExplore"},
		{"an older request displaces", "max(m.deferred[j], msg.Attempt)", "msg.Attempt", "TestExplore"},
	})
}

// Each guard is needed: without it a test fails. With DMUTEX_LONG=1.
func TestKillCarvalho(t *testing.T) {
	machinetest.Kill(t, "carvalho.go", []machinetest.Edit{
		{"asks everybody", "if !kept {", "if !kept || true {", "TestExploreCarvalho"},
		{"asks nobody", "if !kept {", "if !kept && false {", "TestExploreCarvalho"},
		{"does not give", "m.kept[j] = false\n", "\n", "TestExploreCarvalho"},
		{"does not keep", "m.kept[j] = m.deferred[j] == 0", "", "TestExploreCarvalho"},
		{"keeps what it owes", "m.kept[j] = m.deferred[j] == 0", "m.kept[j] = true", "TestExploreCarvalho"},
		{"keeps an old reply", "if m.answers(j, msg) {", "{", "TestExploreCarvalho"},
		{"does not ask back", "\t\tm.ask(j)\n\t}\n}\n\n// reply", "\t}\n}\n\n// reply", "TestExploreCarvalho"},
		{"asks back though it owes", " && m.deferred[j] == 0 {", " {", "TestExploreCarvalho"},
		{"asks back what it awaits", " && !m.awaiting[j]", "", "TestScripts"},
		{"asks back for nothing", "m.Pending() && ", "", "TestExploreCarvalho"},
	})
	machinetest.Kill(t, "contract.go", []machinetest.Edit{
		{"keeps nothing", "m.Idle() && slices.Contains(m.kept, true)", "slices.Contains(m.kept, true) && false", "TestExploreCarvalho"},
	})
}

// The same for nodes that share.
func TestShareKill(t *testing.T) {
	const killer = "TestExploreShared"
	machinetest.Kill(t, "ricart.go", []machinetest.Edit{
		{"no sharer is carried over", "site.NewShared(s)", "site.New(s)", killer},
		{"resumes alone", "m.askAll(dmutex.Share)", "m.askAll(dmutex.Request)", killer},
		{"asks alone", "kind = dmutex.Share", "kind = dmutex.Request", killer},
		{"a share is not heard", "case dmutex.Request, dmutex.Share:", "case dmutex.Request:", killer},
		{"shares with all", "msg.Kind == dmutex.Request || !m.Shared()", "!m.Shared()", killer},
		{"lets sharers in", "msg.Kind == dmutex.Request || !m.Shared()", "msg.Kind == dmutex.Request", killer},
		{"shares with nobody", "msg.Kind == dmutex.Request || !m.Shared()", "true", killer},
		{"no inquiry", "m.Send(dmutex.Inquire, msg.From, msg.Attempt)", "", killer},
		{"an inquiry of a repeated request", "m.deferred[j] == msg.Attempt && m.Shared()", "m.Shared()", "TestSharedMessages"},
		{"an inquiry though nobody shares", "m.deferred[j] == msg.Attempt && m.Shared()", "m.deferred[j] == msg.Attempt", "TestMessages"},
		{"an inquiry of any request", "case msg.Attempt != m.Stamp().Clock:", "case false:", killer},
		{"an inquiry after the reply", "case m.awaiting[j]:", "default:", killer},
		{"remembers no inquiry", "m.inquires[j] = true", "", killer},
		{"remembers the inquiry of a reply", "m.inquires[j] = false", "", killer},
		{"not withdrawn when it is canceled", "\tm.tryWithdraw()\n\treturn m.Out(), nil", "\treturn m.Out(), nil", killer},
		{"not withdrawn when it is inquired", "m.inquires[j] = true\n\t\tm.tryWithdraw()", "m.inquires[j] = true", killer},
		{"withdrawn though it keeps out nobody", "if !slices.Contains(m.inquires, true) {", "if false {", "TestScripts"},
		{"deferred when it is withdrawn", "\tm.replyDeferred()\n\tfor j, peer", "\tfor j, peer", killer},
		{"withdrawn without a word", "m.Send(dmutex.Release, peer, over.Clock)", "_, _ = peer, over", killer},
		{"withdrawn and awaited", "clear(m.awaiting)", "", killer},
		{"withdrawn and inquired", "clear(m.inquires)", "", killer},
		{"any request is released", "if m.deferred[j] == msg.Attempt {\n\t\tm.deferred", "{\n\t\tm.deferred", killer},
	})
	machinetest.Kill(t, "contract.go", []machinetest.Edit{
		{"a share is refused", "msg.Kind == dmutex.Share || ", "", killer},
		{"an inquiry of a request that shares", "msg.Attempt == m.Stamp().Clock && m.Shared():", "false:", "TestRefusesShared"},
		{"never wanted", "return t != 0 })", "return false })", killer},
	})
}

// A sharing is a machine of Carvalho that shares by the rule of [New].
type sharing struct{ carvalho }

func newSharing(s dmutex.Start) (dmutex.Machine, error) {
	m, err := Carvalho(s)
	if err != nil {
		return nil, err
	}
	return site.Complete(&sharing{*m.(*carvalho)}), nil
}

func (m *sharing) Share() ([]dmutex.Message, error) {
	if fresh, err := m.Ask(dmutex.Share); err != nil || !fresh {
		return nil, err
	}
	for j, kept := range m.kept {
		if !kept {
			m.ask(j)
		}
	}
	m.tryEnter()
	return m.Out(), nil
}

func (m *sharing) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if msg.Kind != dmutex.Share {
		return m.carvalho.Handle(msg)
	}
	j, err := m.Check(msg, func(dmutex.Message) string { return "" })
	if err == nil {
		m.request(j, msg)
	}
	return m.Out(), err
}

func (m *sharing) Wanted() bool                              { return (&machine{core: m.core}).Wanted() }
func (m *sharing) Sharers(b []dmutex.NodeID) []dmutex.NodeID { return b }

// A permission that was given to share stands for a request that does not, so Carvalho is no Sharer.
func TestCarvalhoShares(t *testing.T) {
	m, err := Carvalho(dmutex.Start{Self: 1, Members: dmutextest.Nodes(2)})
	require.NoError(t, err)
	require.NotImplements(t, (*dmutex.Sharer)(nil), m)
	machinetest.ExploreAll(t, []machinetest.Exploration{{
		Name: "carvalho-shares", Algorithm: newSharing, Nodes: 2, Requests: []int{1}, Shares: []int{1},
		Want: dmutextest.ErrMutualExclusion,
	}})
}
