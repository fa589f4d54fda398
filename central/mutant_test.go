package central

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

type mutant = machinetest.Probe[*machine]

// set replaces the requests that have the lock, and those that wait.
func (m *machine) set(granted, queue []ask) {
	m.asks, m.has = slices.Concat(granted, queue), len(granted)
}

// withdraw takes a request out of the queue.
func (m *machine) withdraw(r dmutex.Stamp) {
	m.set(m.granted(), slices.DeleteFunc(slices.Clone(m.queue()), func(q ask) bool { return q.Stamp == r }))
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
			Want:    dmutextest.ErrDeadlock,
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
			Want:    dmutextest.ErrDeadlock,
		},
		{
			Name: "grant-while-held",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				if msg.Kind == dmutex.Request {
					m.set(nil, m.queue())
				}
				return m.Handle(msg)
			}}.Of(New),
			Nodes: 2, Requests: []int{1},
			Want: dmutextest.ErrMutualExclusion,
		},
		{
			Name: "no-queue",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				m.set(m.granted(), nil)
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
			Want: dmutextest.ErrDeadlock,
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
				return m.Lends() != peer
			}}.Of(New),
			Nodes: 2, Requests: []int{1},
			Want: dmutextest.ErrExcluded,
		},
		{
			Name: "inquire-ignored",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				out, err := m.Handle(msg)
				m.inquiries = 0
				return out, err
			}}.Of(New),
			Nodes: 2, Requests: []int{1}, Shares: []int{1},
			Want: dmutextest.ErrWanted,
		},
		{
			// The coordinator grants in the order of arrival.
			Name: "not-stamped", Algorithm: New, Stamped: true,
			Nodes: 3, Requests: []int{1},
			Want: dmutextest.ErrOvertaken,
		},
		{
			Name: "witness-always-excludes",
			Algorithm: mutant{Excludes: func(m *machine, peer dmutex.NodeID) bool {
				return m.witnesses() && peer == m.coordinator
			}}.Of(Witnessed),
			Nodes: 2, Requests: []int{1, 0},
			Want: dmutextest.ErrExcluded,
		},
		{
			// The next request has overtaken the RELEASE of the last one.
			Name: "witness-forgets-the-next",
			Algorithm: mutant{
				Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
					if msg.Kind == dmutex.Release && m.witnesses() {
						msg.Attempt = max(msg.Attempt, m.seen().Clock)
					}
					return m.Handle(msg)
				},
				Excludes: (*machine).Excludes,
			}.Of(Witnessed),
			Nodes: 2, Requests: []int{2, 0}, Network: unordered,
			Want: dmutextest.ErrExcluded,
		},
		{
			// The withdrawn request is released to the coordinator's half only.
			Name: "witness-not-released",
			Algorithm: mutant{After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
				return slices.DeleteFunc(out, func(o dmutex.Message) bool { return o.Kind == dmutex.Release && m.coordinates() }), nil
			}}.Of(Witnessed),
			Nodes: 2, Requests: []int{1, 0}, Cancels: []int{1},
			Want: dmutextest.ErrLeftBehind,
		},
	})
}

// handler is a Handle with one rule broken.
type handler = func(m *machine, msg dmutex.Message) ([]dmutex.Message, error)

// lets grants each request of a kind at once.
func lets(kind dmutex.Kind) handler {
	return func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
		if msg.Kind != kind || !m.coordinates() {
			return m.Handle(msg)
		}
		granted, queue := m.granted(), m.queue()
		m.set(nil, nil)
		out, err := m.Handle(msg)
		m.set(slices.Concat(granted, m.granted()), queue)
		return out, err
	}
}

// untold leaves out each INQUIRE that goes out with, or without, a GRANT.
func untold(withGrant bool) func(*machine, []dmutex.Message) ([]dmutex.Message, error) {
	return func(_ *machine, out []dmutex.Message) ([]dmutex.Message, error) {
		grants := slices.ContainsFunc(out, func(o dmutex.Message) bool { return o.Kind == dmutex.Grant })
		return slices.DeleteFunc(out, func(o dmutex.Message) bool { return o.Kind == dmutex.Inquire && grants == withGrant }), nil
	}
}

// The same for the rules by which nodes share.
func TestMutantsShared(t *testing.T) {
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{
			Name: "share-beside-a-holder", Algorithm: mutant{Handle: lets(dmutex.Share)}.Of(New),
			Nodes: 2, Requests: []int{1, 0}, Shares: []int{0, 1},
			Want: dmutextest.ErrMutualExclusion,
		},
		{
			Name: "share-beside-a-sharer", Algorithm: mutant{Handle: lets(dmutex.Request)}.Of(New),
			Nodes: 2, Requests: []int{0, 1}, Shares: []int{1, 0},
			Want: dmutextest.ErrMutualExclusion,
		},
		{
			// Nodes that share exclude each other.
			Name: "share-with-none",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				if msg.Kind == dmutex.Share {
					msg.Kind = dmutex.Request
				}
				return m.Handle(msg)
			}}.Of(New),
			Nodes: 2, Shares: []int{1},
			Want: dmutextest.ErrApart,
		},
		{
			// A node that shares enters although a request waits that came before.
			Name: "share-overtakes",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				waits := len(m.queue()) > 0 && !m.queue()[0].shares
				out, err := lets(dmutex.Share)(m, msg)
				if waits && msg.Kind == dmutex.Share {
					return nil, dmutex.Misuse("it is granted, and a request that came before it waits")
				}
				return out, err
			}}.Of(New),
			Nodes: 3, Requests: []int{0, 1, 0}, Shares: []int{1, 0, 1},
			Want: dmutextest.ErrMutualExclusion,
		},
		{
			// A RELEASE lets in only the head of the queue.
			Name: "share-one-at-a-time",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				if msg.Kind != dmutex.Release || len(m.queue()) < 2 {
					return m.Handle(msg)
				}
				rest := m.queue()[1:]
				m.set(m.granted(), m.queue()[:1])
				out, err := m.Handle(msg)
				m.set(m.granted(), slices.Concat(m.queue(), rest))
				return out, err
			}}.Of(New),
			Nodes: 3, Requests: []int{0, 1, 0}, Shares: []int{1, 0, 1},
			Want: dmutextest.ErrApart,
		},
		{
			// A RELEASE lets in all that wait.
			Name: "share-what-does-not-fit",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				_, err := m.Handle(msg)
				for msg.Kind == dmutex.Release && len(m.queue()) > 0 {
					m.has++
					m.grant(m.granted()[m.has-1])
				}
				return m.Out(), err
			}}.Of(New),
			Nodes: 3, Requests: []int{0, 1, 0}, Shares: []int{1, 0, 1},
			Want: dmutextest.ErrMutualExclusion,
		},
		{
			// The nodes that share are not told of a new request.
			Name: "share-not-told", Algorithm: mutant{After: untold(false)}.Of(New),
			Nodes: 2, Requests: []int{1, 0}, Shares: []int{0, 1},
			Want: dmutextest.ErrWanted,
		},
		{
			// A node that is let in is not told of a request that waits already.
			Name: "share-not-told-at-once", Algorithm: mutant{After: untold(true)}.Of(New),
			Nodes: 3, Requests: []int{1, 1, 0}, Shares: []int{0, 0, 1},
			Want: dmutextest.ErrWanted,
		},
		{
			// An INQUIRE that overtakes its GRANT is lost.
			Name: "share-told-too-early",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				if msg.Kind == dmutex.Inquire && m.Pending() {
					return nil, nil
				}
				return m.Handle(msg)
			}}.Of(New),
			Nodes: 2, Requests: []int{1, 0}, Shares: []int{0, 1},
			Network: unordered, Want: dmutextest.ErrWanted,
		},
		{
			// An INQUIRE about an earlier request counts.
			Name: "share-told-too-late",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				if msg.Kind == dmutex.Inquire && m.Shared() {
					msg.Attempt = m.Stamp().Clock
				}
				return m.Handle(msg)
			}}.Of(New),
			Nodes: 2, Requests: []int{1, 0}, Shares: []int{0, 2},
			Network: unordered, Want: dmutextest.ErrWanted,
		},
		{
			// What a node was told of its last request, it believes of the next.
			Name: "share-still-wanted",
			Algorithm: mutant{Release: func(m *machine) ([]dmutex.Message, error) {
				inquiries := m.inquiries
				out, err := m.Release()
				m.inquiries = inquiries
				return out, err
			}}.Of(New),
			Nodes: 2, Requests: []int{1, 0}, Shares: []int{0, 2},
			Want: dmutextest.ErrContract,
		},
		{
			// A withdrawn request keeps its turn although it keeps out nodes that share.
			Name: "share-withdrawn",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				if msg.Kind == dmutex.Inquire && !m.Shared() {
					return nil, nil
				}
				return m.Handle(msg)
			}}.Of(New),
			Nodes: 3, Requests: []int{0, 1, 0}, Shares: []int{1, 0, 1}, Cancels: []int{0, 1, 0},
			Want: dmutextest.ErrApart,
		},
		{
			// A node that shares does not hear that no request waits any more.
			Name: "share-wanted-for-good",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				if msg.Kind == dmutex.Inquire && msg.Clock%2 == 1 {
					return nil, nil
				}
				return m.Handle(msg)
			}}.Of(New),
			Nodes: 2, Requests: []int{1, 0}, Shares: []int{0, 1}, Cancels: []int{1, 0},
			Want: dmutextest.ErrWanted,
		},
		{
			// The last INQUIRE to arrive counts, not the last that was sent.
			Name: "share-told-out-of-order",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				if msg.Kind == dmutex.Inquire && m.Shared() {
					m.inquiries = 0
				}
				return m.Handle(msg)
			}}.Of(New),
			Nodes: 2, Requests: []int{1, 0}, Shares: []int{0, 1}, Cancels: []int{1, 0},
			Network: unordered, Want: dmutextest.ErrWanted,
		},
		{
			// The coordinator knows which nodes share, not by which request: the next one of a node
			// has overtaken the RELEASE of the last one.
			Name: "share-by-node",
			Algorithm: mutant{Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
				if msg.Kind == dmutex.Release {
					last := func(g ask) bool { return g.Node == msg.From && g.Clock != msg.Attempt }
					m.set(slices.DeleteFunc(slices.Clone(m.granted()), last), m.queue())
				}
				return m.Handle(msg)
			}}.Of(New),
			Nodes: 2, Requests: []int{1, 0}, Shares: []int{0, 2},
			Network: unordered, Want: dmutextest.ErrMutualExclusion,
		},
		{
			Name:      "share-excludes-a-sharer",
			Algorithm: mutant{Excludes: func(m *machine, peer dmutex.NodeID) bool { return m.coordinates() && m.Lends() != peer }}.Of(New),
			Nodes:     2, Shares: []int{0, 1},
			Want: dmutextest.ErrExcluded,
		},
		{
			Name:      "share-excludes-the-holder",
			Algorithm: mutant{ExcludesAlone: func(m *machine, _ dmutex.NodeID) bool { return m.coordinates() }}.Of(New),
			Nodes:     2, Requests: []int{0, 1},
			Want: dmutextest.ErrExcluded,
		},
		{
			// The witness has forgotten nothing, but the request that it remembers shares.
			Name: "share-excludes-as-witness",
			Algorithm: mutant{Excludes: func(m *machine, peer dmutex.NodeID) bool {
				return m.witnesses() && m.ExcludesAlone(peer)
			}}.Of(Witnessed),
			Nodes: 2, Shares: []int{1, 0},
			Want: dmutextest.ErrExcluded,
		},
		{
			// The coordinator does not tell to which nodes it has granted the lock to share.
			Name: "share-lends-to-none",
			Algorithm: func(s dmutex.Start) (dmutex.Machine, error) {
				m, err := New(s)
				return silent{m.(*machine)}, err
			},
			Nodes: 3, Requests: []int{0, 1, 0}, Shares: []int{0, 0, 1},
			Want: dmutextest.ErrUnfound,
		},
	})
}

// silent is a machine that names no sharers.
type silent struct{ *machine }

func (m silent) Sharers(b []dmutex.NodeID) []dmutex.NodeID { return b }
func (m silent) Clone() dmutex.Machine                     { return silent{m.machine.Clone().(*machine)} }

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
		{"the carried grant unknown", "id != s.Holder && !carried.shares", "!carried.shares", "TestExplore"},
		{"not at home", "site.Home(s, rule.given)", "own.Members()[0]", "TestExcludes"},
		{"fence not heard", "m.Witness(0, msg.Fence)", "", "TestExplore"},
		{"any grant", " || m.Stamp() != r", "", "TestRefuses"},
		{"grant though not pending", "!m.Pending() || ", "", "TestRefuses"},
		{"ghost does not release", "m.Enter(); withdrawn {", "m.Enter(); withdrawn && false {", "TestExplore"},
		{"grants while held", "len(m.queue()) == 0 && m.fits(r)", "true", "TestExplore"},
		{"repeated request of the holder", "g.Node == r.Node && g.Clock >= r.Clock", "g.shares && g.Node == r.Node && g.Clock >= r.Clock", "TestRefuses"},
		{"next request of the holder ignored", " && g.Clock >= r.Clock", "", "TestExplore"},
		{"repeated request of a waiter", "m.waiting(r.Node) != 0 ||", "false ||", "TestRefuses"},
		{"request lost", "\t\tm.asks = append(m.asks, r)\n", "", "TestExplore"},
		{"any release", "return a.Stamp == r", "return a.Clock >= r.Clock", "TestRefuses"},
		{"queue forgotten", "m.grant(next)", "_ = next", "TestExplore"},
		{"granted again", "m.has++\n", "m.asks, m.has = slices.Insert(m.asks, 0, next), m.has+1\n", "TestExplore"},
		{"last come, first served", "next := m.queue()[0]", "next := m.queue()[len(m.queue())-1]", "TestExplore"},
		{"any reply", " || m.Stamp() != r", "", "TestRefusesWitnessed"},
		{"no witness", "m.witness = next", "", "TestWitness"},
		{"a witness of its own", "witnessed && next != m.coordinator", "witnessed", "TestMachineWitnessed"},
		{"the member before", "(home+1)%", "(home+len(m.Members())-1)%", "TestWitness"},
		{"the carried request unwitnessed", "id == m.coordinator:\n\t\t\tm.let(carried)\n", "id == m.coordinator:\n", "TestExploreWitnessed"},
		{"another's carried request witnessed", "m.witnesses() && id == m.coordinator:", "m.witnesses():", "TestMachineWitnessed"},
		{"enters without the witness", "r.Node != m.Self() || m.witness == dmutex.None", "true", "TestExploreWitnessed"},
		{"the witness not told", "m.Send(dmutex.Release, m.witness, over.Clock)", "", "TestExploreWitnessed"},
		{"a client tells the witness", "if m.coordinates() && m.witness != dmutex.None", "if m.witness != dmutex.None && !m.witnesses()", "TestExploreWitnessed"},
		{"repeated request of the coordinator", "if r.Clock > m.seen().Clock", "if true", "TestRefusesWitnessed"},
		{"nothing remembered", "m.let(r)\n\t\tm.Send(", "m.Send(", "TestExploreWitnessed"},
		{"no reply", "m.Send(dmutex.Reply, r.Node, r.Clock)", "", "TestExploreWitnessed"},
		{"any request forgotten", "if r == m.seen().Stamp", "if true", "TestExploreWitnessed"},
		{"nothing forgotten", "m.asks, m.has = m.asks[:0], 0", "", "TestExploreWitnessed"},
	})
	machinetest.Kill(t, "contract.go", []machinetest.Edit{
		{"forgets the holder", " && m.has == 0", " && (m.has == 0 || !m.asks[0].shares)", "TestMachine"},
		{"a client excludes", "m.coordinates() && !slices", "!slices", "TestExplore"},
		{"the holder excluded", "return g.Node == peer }", "return g.shares && g.Node == peer }", "TestExplore"},
		{"does not exclude", "m.coordinates() && !slices", "false && !slices", "TestExcludes"},
		{"a holder does not exclude", "m.Site.Excludes(peer) || ", "", "TestExcludes"},
		{"the witness does not exclude", "m.witnesses() && m.seen().Clock == 0 && peer", "false && peer", "TestWitness"},
		{"the witness always excludes", "m.seen().Clock == 0 && peer", "peer", "TestExploreWitnessed"},
		{"the witness excludes all", "m.seen().Clock == 0 && peer == m.coordinator", "m.seen().Clock == 0", "TestExploreWitnessed"},
		{"the witness forgets", " && m.has == 0\n", " && (m.has == 0 || m.witnesses())\n", "TestMachineWitnessed"},
		{"does not wait for the witness", "b = append(b, m.witness)", "", "TestWitnessIsAwaited"},
		{"always waits for the witness", "case m.asksWitness():", "case m.witness != dmutex.None:", "TestWitnessIsAwaited"},
		{"any peer replies", " || msg.From != m.witness", "", "TestRefusesWitnessed"},
		{"a client hears a reply", "!m.coordinates() || msg.From", "msg.From", "TestRefusesWitnessed"},
		{"a reply before the grant", " && !m.asksWitness()", " && false", "TestRefusesWitnessed"},
		{"any node asks the witness", "m.witnesses() && msg.From == m.coordinator:", "m.witnesses():", "TestRefusesWitnessed"},
	})
}

// The same for nodes that share.
func TestShareKill(t *testing.T) {
	const killer = "TestExploreShared"
	machinetest.Kill(t, "central.go", []machinetest.Edit{
		{"carried sharers unknown", "case m.coordinates():\n\t\t\tm.let(carried)\n", "case m.coordinates():\n\t\t\tif len(s.Sharers) == 0 {\n\t\t\t\tm.let(carried)\n\t\t\t}\n", killer},
		{"the carried sharer unwitnessed", "m.witnesses() && id == m.coordinator:", "m.witnesses() && id == s.Holder && id == m.coordinator:", killer},
		{"the carried sharer witnessed as alone", "id == m.coordinator:\n\t\t\tm.let(carried)\n", "id == m.coordinator:\n\t\t\tm.let(ask{Stamp: carried.Stamp})\n", "TestWitnessShared"},
		{"asks alone", "m.say(kind, m.coordinator", "m.say(dmutex.Request, m.coordinator", killer},
		{"any inquiry", "if r == m.Stamp() {\n\t\tm.inquiries", "{\n\t\tm.inquiries", "TestInquireOfFormer"},
		{"not wanted", "m.inquiries = max(m.inquiries, n)", "", killer},
		{"the last inquiry counts", "m.inquiries = max(m.inquiries, n)", "m.inquiries = n", killer},
		{"an inquiry only while held", "if r == m.Stamp() {\n\t\tm.inquiries", "if r == m.Stamp() && !m.Pending() {\n\t\tm.inquiries", killer},
		{"no number", "msg.Clock+1", "1", killer},
		{"still wanted", "m.inquiries = 0\n\tm.say", "m.say", killer},
		{"an inquiry of the last request", "m.inquiries = 0\n\t\tm.say", "m.say", killer},
		{"not withdrawn when it is canceled", "\tm.tryWithdraw()\n\treturn m.Out(), nil", "\treturn m.Out(), nil", killer},
		{"not withdrawn when it is inquired", "m.inquiries = max(m.inquiries, n)\n\t\tm.tryWithdraw()", "m.inquiries = max(m.inquiries, n)", killer},
		{"withdrawn though it keeps out nobody", "m.inquiries == 0 || m.asksWitness()", "m.asksWitness()", "TestExplore"},
		{"withdrawn from the witness", "m.inquiries == 0 || m.asksWitness()", "m.inquiries == 0", "TestExploreShared"},
		{"withdrawn without a word", "m.inquiries = 0\n\t\tm.say(dmutex.Release, m.coordinator, over)", "m.inquiries = 0\n\t\t_ = over", killer},
		{"the withdrawn request stays", "if m.asks = slices.Delete(m.asks, i, i+1); i < m.has {\n", "if i < m.has {\n\t\tm.asks = slices.Delete(m.asks, i, i+1)\n", killer},
		{"a new request is lost behind the withdrawn one", "waits != 0 && waits < r.Clock {", "false {", killer},
		{"the one who keeps others out is not told", "m.tell(q) //", "//", killer},
		{"told before anybody shares", "len(m.queue()) && m.granted()[0].shares; i++", "len(m.queue()); i++", "TestScripts"},
		{"told again", "!q.shares && q.inquiries == 0", "!q.shares", "TestSharedMessages"},
		{"told though it shares", "!q.shares && q.inquiries == 0", "q.inquiries == 0", killer},
		{"a sharer is granted the lock alone", "ask{Stamp: r, shares: kind == dmutex.Share})\n\tdefault", "ask{Stamp: r})\n\tdefault", killer},
		{"all share", "ask{Stamp: r, shares: kind == dmutex.Share})\n\tdefault", "ask{Stamp: r, shares: true})\n\tdefault", killer},
		{"witnessed as alone", "m.remember(ask{Stamp: r, shares: kind == dmutex.Share})", "m.remember(ask{Stamp: r})", "TestWitnessShared"},
		{"witnessed as shared", "m.remember(ask{Stamp: r, shares: kind == dmutex.Share})", "m.remember(ask{Stamp: r, shares: true})", killer},
		{"overtakes a waiting request", "len(m.queue()) == 0 && m.fits(r)", "m.fits(r)", "TestScripts"},
		{"the holder is not told of a new request", "m.asks = append(m.asks, r)\n\t\tm.inquire()", "m.asks = append(m.asks, r)", killer},
		{"a holder lets sharers in", "r.shares && m.granted()[0].shares", "r.shares", killer},
		{"sharers let all in", "r.shares && m.granted()[0].shares", "m.granted()[0].shares", killer},
		{"sharers let none in", "len(m.granted()) == 0 || r.shares && m.granted()[0].shares", "len(m.granted()) == 0", killer},
		{"repeated request of a sharer", "g.Node == r.Node && g.Clock >= r.Clock", "!g.shares && g.Node == r.Node && g.Clock >= r.Clock", "TestRefusesShared"},
		{"a sharer is a node", "return a.Stamp == r })", "return a.Node == r.Node })", "TestRefusesShared"},
		{"a sharer stays", "if m.asks = slices.Delete(m.asks, i, i+1); i < m.has {", "if i < m.has && m.asks[i].shares {\n\t} else if m.asks = slices.Delete(m.asks, i, i+1); i < m.has {", killer},
		{"one sharer at a time", "for len(m.queue()) > 0 && m.fits(m.queue()[0]) {", "if len(m.queue()) > 0 && m.fits(m.queue()[0]) {", killer},
		{"grants what does not fit", "for len(m.queue()) > 0 && m.fits(m.queue()[0]) {", "for len(m.queue()) > 0 {", killer},
		{"the new holder is not told who waits", "\tm.inquire()\n}", "}", killer},
		{"a sharer is not noted", "m.let(r)\n\t\tm.grant(r)", "if !r.shares {\n\t\t\tm.let(r)\n\t\t}\n\t\tm.grant(r)", killer},
		{"told twice", "waits != (g.inquiries%2 == 1)", "(waits || g.inquiries%2 == 1)", "TestArrivalOrder"},
		{"told for no reason", "waits := len(m.queue()) > 0", "waits := true", killer},
		{"the witness is asked to hold alone", "m.Send(dmutex.Share, m.witness", "m.Send(dmutex.Request, m.witness", "TestWitnessShared"},
	})
	machinetest.Kill(t, "contract.go", []machinetest.Edit{
		{"a sharer excluded", "return g.Node == peer }", "return !g.shares && g.Node == peer }", killer},
		{"the holder is no holder alone", "m.coordinates() && m.Lends() != peer ||", "m.coordinates() ||", killer},
		{"a client excludes alone", "m.coordinates() && m.Lends()", "m.Lends()", killer},
		{"the witness always excludes alone", "(m.seen().Clock == 0 || m.seen().shares)", "true", killer},
		{"the witness of a sharer does not exclude", "(m.seen().Clock == 0 || m.seen().shares)", "m.seen().Clock == 0", "TestWitnessShared"},
		{"lends to no sharer", "b = append(b, g.Node)", "", killer},
		{"forgets sharers", " && m.has == 0", " && m.Lends() == dmutex.None", killer},
		{"the last request of a sharer waits", "msg.Kind != dmutex.Release && waits", "msg.Kind == dmutex.Request && waits", "TestRefusesShared"},
		{"any peer inquires", "case dmutex.Grant, dmutex.Inquire:", "case dmutex.Inquire:\n\tcase dmutex.Grant:", "TestRefusesShared"},
		{"a second inquiry of a request that does not share", " && msg.Clock > 0:", " && false:", "TestRefusesShared"},
		{"any node withdraws", "a.Node == node && a.inquiries > 0", "a.Node == node", "TestRefusesShared"},
		{"no node withdraws", "a.Node == node && a.inquiries > 0", "false", killer},
		{"wanted for good", "m.inquiries%2 == 1", "m.inquiries > 0", killer},
		{"does not wait for the witness", "return place(m.granted(), m.Stamp()) >= 0", "return place(m.granted(), m.Stamp()) >= 0 && !m.Shared()", "TestWitnessShared"},
	})
}
