package lamport

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/site"
)

// Without one of the rules something goes wrong; the shortest run that shows it
// is in testdata.
func TestMutants(t *testing.T) {
	type probe = machinetest.Probe[*machine]
	machinetest.ExploreAll(t, []machinetest.Exploration{
		// The clock moves up to the clock of the message, not past it: a REPLY is
		// no later than its REQUEST.
		{Name: "clock-not-past", Algorithm: probe{
			Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				if msg.Kind != dmutex.Reply {
					return m.Handle(msg)
				}
				m.hear(slices.Index(m.Peers(), msg.From), msg)
				m.tryEnter()
				return nil, nil
			},
			After: func(_ *machine, out []dmutex.Message) ([]dmutex.Message, error) {
				for i := range out {
					if out[i].Kind == dmutex.Reply {
						out[i].Clock--
					}
				}
				return out, nil
			},
		}.Of(New), Nodes: 2, Requests: []int{1}, Want: dmutextest.ErrDeadlock},

		{Name: "release-without-fence", Algorithm: probe{
			After: func(_ *machine, out []dmutex.Message) ([]dmutex.Message, error) {
				for i := range out {
					if out[i].Kind == dmutex.Release {
						out[i].Fence = 0
					}
				}
				return out, nil
			},
		}.Of(New), Nodes: 2, Requests: []int{1}, Want: dmutextest.ErrFenceOrder},

		// A peer may enter before its request arrives here: a RELEASE that this node
		// has sent, with a later time, may let the peer in.
		{Name: "excludes-the-unqueued", Algorithm: probe{
			Excludes: func(m *machine, peer dmutex.NodeID) bool {
				return m.Idle() && m.queue[slices.Index(m.Peers(), peer)] == 0
			},
		}.Of(New), Nodes: 2, Requests: []int{1}, Want: dmutextest.ErrExcluded},

		// A node enters without waiting for L1.
		{Name: "no-l1", Algorithm: probe{
			After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
				if m.Pending() {
					for j := range m.later {
						m.later[j] = true
					}
				}
				m.tryEnter()
				return out, nil
			},
		}.Of(New), Nodes: 2, Requests: []int{1}, Want: dmutextest.ErrMutualExclusion},

		// L2 does not look at the requests of others.
		{Name: "no-l2", Algorithm: probe{
			Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				if m.Pending() {
					clear(m.queue)
				}
				return m.Handle(msg)
			},
			After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
				if m.Pending() {
					clear(m.queue)
					m.tryEnter()
				}
				return out, nil
			},
		}.Of(New), Nodes: 2, Requests: []int{1}, Want: dmutextest.ErrMutualExclusion},
	})
}

// The same for the rules by which nodes share.
func TestMutantsShared(t *testing.T) {
	type probe = machinetest.Probe[*machine]
	// ignoring enters as if the queue had none of certain requests.
	ignoring := func(ignored func(m *machine, theirs int) bool) probe {
		return probe{After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
			for j := range m.queue {
				if m.Pending() && ignored(m, j) {
					m.queue[j] = 0
				}
			}
			m.tryEnter()
			return out, nil
		}}
	}
	one := []int{1}
	machinetest.ExploreAll(t, []machinetest.Exploration{
		// A node that shares enters beside all.
		{Name: "share-with-all", Algorithm: ignoring(func(m *machine, _ int) bool { return m.Shared() }).Of(New),
			Nodes: 2, Requests: one, Shares: one, Want: dmutextest.ErrMutualExclusion},

		// A node that does not share enters beside those that do.
		{Name: "share-beside-a-sharer", Algorithm: ignoring(func(m *machine, j int) bool { return m.shares[j] }).Of(New),
			Nodes: 2, Requests: one, Shares: one, Want: dmutextest.ErrMutualExclusion},

		// The queue does not say which requests share.
		{Name: "share-with-none", Algorithm: probe{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
			if msg.Kind == dmutex.Share {
				msg.Kind = dmutex.Request
			}
			return m.Handle(msg)
		}}.Of(New), Nodes: 2, Shares: one, Want: dmutextest.ErrApart},

		// A node that shares does not learn that a request waits for it.
		{Name: "share-not-wanted", Algorithm: probe{Wanted: func(*machine) bool { return false }}.Of(New),
			Nodes: 2, Requests: one, Shares: one, Want: dmutextest.ErrWanted},

		// A node that shares takes another that does for one that waits for it.
		{Name: "share-wanted-by-a-sharer", Algorithm: probe{Wanted: func(m *machine) bool {
			return slices.ContainsFunc(m.queue, func(request uint64) bool { return request != 0 })
		}}.Of(New), Nodes: 2, Shares: one, Want: dmutextest.ErrWanted},

		// A withdrawn request keeps its turn although it keeps out nodes that share.
		{Name: "share-withdrawn", Algorithm: probe{
			Cancel: func(m *machine) ([]dmutex.Message, error) { return m.Site.Cancel() },
			Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				if m.Phase() != dmutex.Idle || !m.Pending() {
					return m.Handle(msg)
				}
				j, err := m.Check(msg, m.impossible)
				m.hear(j, msg)
				switch msg.Kind {
				case dmutex.Share:
					m.request(j, msg)
				case dmutex.Release:
					m.release(j, msg)
				}
				m.tryEnter()
				return m.Out(), err
			},
		}.Of(New), Nodes: 3, Requests: []int{0, 1, 0}, Shares: []int{1, 0, 1}, Cancels: []int{0, 1, 0}, Want: dmutextest.ErrApart},

		// A node that shares the lock says that no other node holds it.
		{Name: "share-excludes", Algorithm: probe{Excludes: func(m *machine, peer dmutex.NodeID) bool {
			return m.ExcludesAlone(peer)
		}}.Of(New), Nodes: 2, Shares: one, Want: dmutextest.ErrExcluded},
	})
}

// Lamport's algorithm needs channels that keep the order. With all replies, a REPLY
// that overtakes a REQUEST lets two nodes in; where replies are omitted, a RELEASE
// that overtakes its REQUEST leaves the REQUEST in the queue.
func TestNeedsOrder(t *testing.T) {
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{
			Name: "unordered-plain", Algorithm: New, Nodes: 2, Requests: []int{1},
			Network: dmutextest.Network{Unordered: true}, Want: dmutextest.ErrMutualExclusion,
		},
		{
			Name: "unordered-omitting", Algorithm: OmitReplies, Nodes: 2, Requests: []int{1},
			Network: dmutextest.Network{Unordered: true}, Want: dmutextest.ErrLeftBehind,
		},
	})
}

// Each guard is needed: without it a test fails. With DMUTEX_LONG=1.
func TestKill(t *testing.T) {
	machinetest.Kill(t, "lamport.go", []machinetest.Edit{
		{"no tick on a message", "m.Advance()\n\tif", "if", "TestExplore"},
		{"no tick on leaving", "m.Advance()\n\tm.broadcast", "m.broadcast", "TestExplore"},
		{"clock not heard", "m.Witness(msg.Clock, msg.Fence)", "m.Witness(0, msg.Fence)", "TestExplore"},
		{"fence not heard", "m.Witness(msg.Clock, msg.Fence)", "m.Witness(msg.Clock, 0)", "TestExplore"},
		{"what came before counts", "clear(m.later)", "", "TestMachine"},
		{"L1 for anything", "m.Stamp().Less(dmutex.Stamp{Clock: msg.Clock, Node: msg.From})", "msg.Clock > 0", "TestExplore"},
		{"L1 by time only", "m.Stamp().Less(dmutex.Stamp{Clock: msg.Clock, Node: msg.From})", "m.Stamp().Clock < msg.Clock", "TestExplore"},
		{"no L1", "!m.later[j] || ", "", "TestExplore"},
		{"no L2", "m.conflicts(j) && theirs", "false && theirs", "TestExplore"},
		{"L2 reversed", "theirs.Less(m.Stamp())", "m.Stamp().Less(theirs)", "TestExplore"},
		{"release not heard", "case dmutex.Release:\n\t\tm.release(j, msg)", "", "TestExplore"},
		{"no request is ahead", "m.conflicts(j) && theirs", "theirs", "TestExplore"},
		{"any release", "if m.queue[j] == msg.Attempt {", "{", "TestRepeated"},
		{"repeated request", "msg.Attempt <= m.queue[j]", "false", "TestRepeated"},
		{"holder not queued", "m.queue[j] = site.Carried", "", "TestExplore"},
		{"ghost does not leave", "m.Enter(); withdrawn {", "m.Enter(); withdrawn && false {", "TestExplore"},
	})
	machinetest.Kill(t, "omit.go", []machinetest.Edit{
		{"omits all", "ours := !m.Idle()", "ours := true", "TestExplore"},
		{"omits nothing", "ours := !m.Idle()", "ours := false", "TestExplore"},
		{"answers while held", "ours := !m.Idle()", "ours := m.Pending()", "TestExplore"},
	})
	machinetest.Kill(t, "contract.go", []machinetest.Edit{
		{"forgets others' requests", "m.Idle() && !others", "m.Idle() && (!others || true)", "TestMachine"},
	})
}

// The same for nodes that share.
func TestShareKill(t *testing.T) {
	const killer = "TestExploreShared"
	machinetest.Kill(t, "lamport.go", []machinetest.Edit{
		{"no sharer is carried over", "site.NewShared(s)", "site.New(s)", killer},
		{"carried sharers unknown", "m.shares[j] || peer == s.Holder", "peer == s.Holder", killer},
		{"asks alone", "m.broadcast(kind, m.Stamp())", "m.broadcast(dmutex.Request, m.Stamp())", killer},
		{"a share is not heard", "case dmutex.Request, dmutex.Share:", "case dmutex.Request:", killer},
		{"all share", "msg.Kind == dmutex.Share\n", "true\n", killer},
		{"nobody shares", "msg.Kind == dmutex.Share\n", "false\n", killer},
		{"shares with all", "!(m.shares[j] && m.Shared())", "!m.Shared()", killer},
		{"lets sharers in", "!(m.shares[j] && m.Shared())", "!m.shares[j]", killer},
		{"shares with nobody", " && !(m.shares[j] && m.Shared())", "", killer},
		{"not withdrawn when it is canceled", "\tm.tryWithdraw()\n\treturn m.Out(), nil\n}\n\n// tryWithdraw", "\treturn m.Out(), nil\n}\n\n// tryWithdraw", killer},
		{"not withdrawn when a share is heard", "\tm.tryWithdraw()\n\treturn m.Out(), nil\n}\n\n// hear", "\treturn m.Out(), nil\n}\n\n// hear", killer},
		{"withdrawn though it keeps out nobody", "if !slices.Contains(m.shares, true) {", "if false {", "TestExplore"},
		{"withdrawn without a word", "withdrawn := m.Withdraw(); withdrawn {\n\t\tm.sayOver(over)", "withdrawn := m.Withdraw(); withdrawn {\n\t\t_ = over", killer},
	})
	machinetest.Kill(t, "omit.go", []machinetest.Edit{
		{"omits for sharers", "ours = false // the", "// the", killer},
		{"replies to all that come later", "msg.Kind == dmutex.Share && m.Shared(); together", "m.Shared(); together", "TestOmitsFor"},
	})
	machinetest.Kill(t, "contract.go", []machinetest.Edit{
		{"never wanted", "\t\t\treturn true\n", "\t\t\treturn false\n", killer},
	})
}

// An omitsAll is a machine that omits a REPLY also to a SHARE that comes after its own.
type omitsAll struct{ machine }

func (m *omitsAll) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	ours := !m.Idle()
	out, err := m.machine.Handle(msg)
	if ours {
		out = slices.DeleteFunc(out, func(o dmutex.Message) bool { return o.Kind == dmutex.Reply })
	}
	return out, err
}

// A node that shares does not await our RELEASE, so it needs our REPLY.
func TestOmitsTooMuch(t *testing.T) {
	machinetest.ExploreAll(t, []machinetest.Exploration{{
		Name: "omits-for-sharers", Nodes: 2, Shares: []int{1}, Want: dmutextest.ErrApart,
		Algorithm: func(s dmutex.Start) (dmutex.Machine, error) {
			m, err := New(s)
			return site.Complete(&omitsAll{*m.(*machine)}), err
		},
	}})
}

// It is omitted to a REQUEST that comes after our SHARE, which awaits our RELEASE, and to a SHARE
// that comes before ours.
func TestOmitsFor(t *testing.T) {
	for _, tt := range []struct {
		kind    dmutex.Kind
		from    dmutex.NodeID
		replies int
	}{{dmutex.Share, 3, 1}, {dmutex.Request, 3, 0}, {dmutex.Share, 1, 0}} {
		m, err := OmitReplies(dmutex.Start{Self: 2, Members: dmutextest.Nodes(3)})
		require.NoError(t, err)
		_, err = m.(dmutex.Sharer).Share()
		require.NoError(t, err)
		out, err := m.Handle(dmutex.Message{Kind: tt.kind, From: tt.from, To: 2, Attempt: 1, Clock: 1})
		require.NoError(t, err)
		require.Len(t, out, tt.replies, "%v from %d", tt.kind, tt.from)
	}
}
