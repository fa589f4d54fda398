package site_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/site"
)

func newSite(t *testing.T, start dmutex.Start) site.Site {
	t.Helper()
	s, err := site.New(start)
	require.NoError(t, err)
	return s
}

func text(t *testing.T, s *site.Site) string {
	t.Helper()
	return string(s.AppendSite(nil))
}

func cancel(t *testing.T, s *site.Site) {
	t.Helper()
	out, err := s.Cancel()
	require.NoError(t, err)
	require.Empty(t, out)
}

func members(ids ...dmutex.NodeID) []dmutex.NodeID { return ids }

func TestNew(t *testing.T) {
	for _, tt := range []struct {
		name  string
		start dmutex.Start
		text  string // of the site, or
		err   string
	}{
		{"alone", dmutex.Start{Self: 7, Members: members(7)}, "7 idle", ""},
		{"any order", dmutex.Start{Self: 2, Members: members(3, 1, 2)}, "2 idle", ""},
		{"born again", dmutex.Start{Self: 2, Members: members(1, 2), Clock: 5, Known: 3}, "2 idle clock=5 known=3", ""},
		{"holds", dmutex.Start{Self: 2, Members: members(1, 2), Holder: 2, Fence: 3}, "2 held attempt=1 clock=1 known=3 fence=3", ""},
		{"another holds", dmutex.Start{Self: 1, Members: members(1, 2), Holder: 2, Fence: 3}, "1 idle clock=1 known=3", ""},
		{"holds, clock", dmutex.Start{Self: 2, Members: members(1, 2), Holder: 2, Fence: 3, Clock: 9}, "2 held attempt=1 clock=9 known=3 fence=3", ""},
		{"last clock", dmutex.Start{Self: 1, Members: members(1), Clock: 1 << 62}, "1 idle clock=4611686018427387904", ""},
		{"known, fence", dmutex.Start{Self: 2, Members: members(1, 2), Fence: 5, Known: 3}, "2 idle known=5", ""},
		{"no room to spare", dmutex.Start{Self: 1, Members: members(1, 2), Fence: 5, Limit: 9}, "1 idle known=5", ""},
		{"all are known", dmutex.Start{Self: 1, Members: members(1), Limit: 9, Known: 9}, "1 idle known=9", ""},
		{"the highest limit", dmutex.Start{Self: 1, Members: members(1), Fence: math.MaxUint64 - 2, Limit: math.MaxUint64}, "1 idle known=18446744073709551613", ""},
		{"holds, no fence", dmutex.Start{Self: 2, Members: members(1, 2), Holder: 2}, "2 held attempt=1 clock=1", ""},
		{"at home elsewhere", dmutex.Start{Self: 1, Members: members(1, 2), Home: 2}, "1 idle", ""},

		{"sharers", dmutex.Start{Self: 1, Members: members(1, 2), Sharers: members(1)}, "", "the algorithm lets one node in at a time"},
		{"a stranger's home", dmutex.Start{Self: 1, Members: members(1, 2), Home: 3}, "", "Start.Home 3 is not among Start.Members"},
		{"no members", dmutex.Start{Self: 1}, "", "Start.Self 1 is not among Start.Members"},
		{"no self", dmutex.Start{Members: members(1, 2)}, "", "Start.Self 0 is not among Start.Members"},
		{"self a stranger", dmutex.Start{Self: 3, Members: members(1, 2)}, "", "Start.Self 3 is not among Start.Members"},
		{"twice", dmutex.Start{Self: 1, Members: members(1, 2, 1)}, "", "Start.Members names a node twice"},
		{"nobody", dmutex.Start{Self: 1, Members: members(1, 0)}, "", "Start.Members contains 0"},
		{"holder a stranger", dmutex.Start{Self: 1, Members: members(1, 2), Holder: 3}, "", "Start.Holder 3 is not among Start.Members"},
		{"clock", dmutex.Start{Self: 1, Members: members(1, 2), Clock: 1<<62 + 1}, "", "Start.Clock is beyond 1<<62"},
		{"fence", dmutex.Start{Self: 1, Members: members(1, 2), Fence: math.MaxUint64 - 3}, "", "Start.Limit leaves no room above Start.Fence"},
		{"limit", dmutex.Start{Self: 1, Members: members(1, 2), Fence: 5, Limit: 8}, "", "Start.Limit leaves no room above Start.Fence"},
		{"limit below", dmutex.Start{Self: 1, Members: members(1, 2), Fence: 5, Limit: 4}, "", "Start.Limit leaves no room above Start.Fence"},
		{"known", dmutex.Start{Self: 1, Members: members(1), Limit: 9, Known: 10}, "", "Start.Known is beyond Start.Limit"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := site.New(tt.start)
			if tt.err != "" {
				require.ErrorIs(t, err, dmutex.ErrMisuse)
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.text, text(t, &s))
			require.Equal(t, tt.start.Self, s.Self())
		})
	}
}

func TestSitePeers(t *testing.T) {
	given := members(5, 1, 3)
	s := newSite(t, dmutex.Start{Self: 3, Members: given})
	require.Equal(t, members(1, 5), s.Peers(), "ascending, without itself")
	require.Equal(t, members(5, 1, 3), given, "the caller's list stays as it was")
}

// The course of a request, as the comment of Site describes it.
func TestSiteRequest(t *testing.T) {
	s := newSite(t, dmutex.Start{Self: 1, Members: members(1, 2)})
	check := func(phase dmutex.Phase, pending bool, want string) {
		t.Helper()
		require.Equal(t, phase, s.Phase())
		require.Equal(t, pending, s.Pending())
		require.Equal(t, want, text(t, &s))
	}

	fresh, err := s.Ask(dmutex.Request)
	require.NoError(t, err)
	require.True(t, fresh)
	check(dmutex.Waiting, true, "1 waiting attempt=1 clock=1")
	require.Equal(t, dmutex.Stamp{Clock: 1, Node: 1}, s.Stamp())

	cancel(t, &s)
	check(dmutex.Idle, true, "1 withdrawn attempt=1 clock=1")
	require.False(t, s.Idle(), "the request is still pending")

	fresh, err = s.Ask(dmutex.Request)
	require.NoError(t, err)
	require.False(t, fresh, "the withdrawn request is taken up again")
	check(dmutex.Waiting, true, "1 waiting attempt=1 clock=1")

	require.False(t, s.Enter())
	check(dmutex.Held, false, "1 held attempt=1 clock=1 known=1 fence=1")
	require.Equal(t, uint64(1), s.Fence())

	over, err := s.Leave()
	require.NoError(t, err)
	require.Equal(t, dmutex.Stamp{Clock: 1, Node: 1}, over)
	check(dmutex.Idle, false, "1 idle clock=1 known=1")
	require.Zero(t, s.Fence())
	require.Zero(t, s.Stamp().Clock)

	s.Witness(6, 4)
	s.Witness(5, 3) // nothing new
	_, err = s.Ask(dmutex.Request)
	require.NoError(t, err)
	cancel(t, &s)
	require.True(t, s.Enter(), "the request was withdrawn")
	check(dmutex.Idle, false, "1 idle clock=7 known=4")

	require.True(t, s.Idle())
	require.Equal(t, []uint64{7, 4}, []uint64{s.Clock(), s.Known()})
}

// The course of a request that shares.
func TestSiteShared(t *testing.T) {
	_, err := site.NewShared(dmutex.Start{Self: 1, Members: members(1, 2), Sharers: members(3)})
	require.ErrorContains(t, err, "Start.Sharers contains a node that is not among Start.Members")
	_, err = site.NewShared(dmutex.Start{Self: 1, Members: members(1, 2), Sharers: members(2), Holder: 1})
	require.ErrorContains(t, err, "a lock is held alone or shared")

	s, err := site.NewShared(dmutex.Start{Self: 1, Members: members(1, 2), Sharers: members(1, 2), Fence: 3})
	require.NoError(t, err)
	require.Equal(t, "1 held shared attempt=1 clock=1 known=3 fence=3", text(t, &s))
	require.False(t, s.Excludes(2))
	require.True(t, s.ExcludesAlone(2))
	require.False(t, s.ExcludesAlone(1))
	_, err = s.Leave()
	require.NoError(t, err)
	require.Equal(t, "1 idle clock=1 known=3", text(t, &s))

	fresh, err := s.Ask(dmutex.Share)
	require.NoError(t, err)
	require.True(t, fresh)
	cancel(t, &s)
	require.Equal(t, "1 withdrawn shared attempt=2 clock=2 known=3", text(t, &s))
	_, err = s.Ask(dmutex.Request)
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	require.ErrorContains(t, err, "Request while a withdrawn Share is pending")
	fresh, err = s.Ask(dmutex.Share)
	require.NoError(t, err)
	require.False(t, fresh)
	cancel(t, &s)
	require.True(t, s.Enter())
	require.Equal(t, "1 idle clock=2 known=3", text(t, &s))

	_, err = s.Ask(dmutex.Request)
	require.NoError(t, err)
	cancel(t, &s)
	_, err = s.Ask(dmutex.Share)
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	require.ErrorContains(t, err, "Share while a withdrawn Request is pending")
	over, ok := s.Withdraw()
	require.True(t, ok)
	require.Equal(t, "1@3", over.String())
	require.Equal(t, "1 idle clock=3 known=3", text(t, &s))
	_, ok = s.Withdraw()
	require.False(t, ok, "nothing is withdrawn")

	_, err = s.Ask(dmutex.Share)
	require.NoError(t, err)
	_, ok = s.Withdraw()
	require.False(t, ok, "it waits")
	cancel(t, &s)
	_, ok = s.Withdraw()
	require.False(t, ok, "it keeps out no node that shares")
}

func TestSiteMisuse(t *testing.T) {
	ask := func(s *site.Site) error { _, err := s.Ask(dmutex.Request); return err }
	cancel := func(s *site.Site) error { _, err := s.Cancel(); return err }
	leave := func(s *site.Site) error { _, err := s.Leave(); return err }
	for _, tt := range []struct {
		name  string
		begin func(s *site.Site)
		input func(s *site.Site) error
		err   string
	}{
		{"cancel idle", func(*site.Site) {}, cancel, "Cancel while idle"},
		{"release idle", func(*site.Site) {}, leave, "Release while idle"},
		{"request waiting", func(s *site.Site) { s.Ask(dmutex.Request) }, ask, "Request while Waiting"},
		{"release waiting", func(s *site.Site) { s.Ask(dmutex.Request) }, leave, "Release while waiting"},
		{"cancel twice", func(s *site.Site) { s.Ask(dmutex.Request); s.Cancel() }, cancel, "Cancel while idle"},
		{"request held", func(s *site.Site) { s.Ask(dmutex.Request); s.Enter() }, ask, "Request while Held"},
		{"cancel held", func(s *site.Site) { s.Ask(dmutex.Request); s.Enter() }, cancel, "Cancel while held"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, dmutex.Start{Self: 1, Members: members(1, 2)})
			tt.begin(&s)
			before := text(t, &s)
			err := tt.input(&s)
			require.ErrorIs(t, err, dmutex.ErrMisuse)
			require.ErrorContains(t, err, tt.err)
			require.Equal(t, before, text(t, &s))
		})
	}
}

// A group at its limit is exhausted, which is nobody's mistake. The next group has new fences.
func TestSiteExhausted(t *testing.T) {
	const fence, limit = 7 << 22, 8<<22 - 1
	for _, tt := range []struct {
		name         string
		clock, fence uint64
		err          string
	}{
		{"last clock", 1 << 61, fence, "its logical times are used up"},
		{"last fence", 0, limit - 4, "its fences are used up"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, dmutex.Start{Self: 1, Members: members(1, 2), Fence: fence, Limit: limit})
			s.Witness(tt.clock, tt.fence)
			before := text(t, &s)
			_, err := s.Ask(dmutex.Request)
			require.ErrorIs(t, err, dmutex.ErrExhausted)
			require.NotErrorIs(t, err, dmutex.ErrMisuse)
			require.EqualError(t, err, "dmutex: exhausted: "+tt.err)
			require.Equal(t, before, text(t, &s))

			s = newSite(t, dmutex.Start{Self: 1, Members: members(1, 2), Fence: limit})
			_, err = s.Ask(dmutex.Request)
			require.NoError(t, err)
			require.False(t, s.Enter())
			require.Equal(t, uint64(limit+1), s.Fence())
		})
	}
	s := newSite(t, dmutex.Start{Self: 1, Members: members(1, 2), Limit: limit})
	s.Witness(1<<61-1, limit-5)
	_, err := s.Ask(dmutex.Request)
	require.NoError(t, err, "one time and one fence are left")
}

// Without a limit a machine may use all fences, and goes on after four million grants.
func TestNoLimit(t *testing.T) {
	s := newSite(t, dmutex.Start{Self: 1, Members: members(1)})
	for n := uint64(1); n <= 5_000_000; n++ {
		_, err := s.Ask(dmutex.Request)
		require.NoError(t, err)
		s.Enter()
		if s.Fence() != n {
			require.Equal(t, n, s.Fence())
		}
		_, _ = s.Leave()
	}
	s = newSite(t, dmutex.Start{Self: 1, Members: members(1), Fence: math.MaxUint64 - 3})
	_, err := s.Ask(dmutex.Request)
	require.NoError(t, err)
	s.Enter()
	require.Equal(t, uint64(math.MaxUint64-2), s.Fence())
	_, _ = s.Leave()
	_, err = s.Ask(dmutex.Request)
	require.ErrorIs(t, err, dmutex.ErrExhausted)
}

// Requests that are pending near the limit still get fences, even if a peer claims a fence
// that is too high.
func TestPendingAtLimit(t *testing.T) {
	const limit = 1000
	all := members(1, 2, 3)
	var sites []site.Site
	for _, id := range all {
		sites = append(sites, newSite(t, dmutex.Start{Self: id, Members: all, Limit: limit, Known: limit - 7}))
		_, err := sites[id-1].Ask(dmutex.Request)
		require.NoError(t, err)
	}
	known := uint64(limit - 3) // the most that a peer can claim
	_, err := sites[0].Check(dmutex.Message{Kind: dmutex.Request, From: 2, To: 1, Attempt: 1, Fence: known + 1}, possible)
	require.ErrorIs(t, err, dmutex.ErrPeer)
	for i := range sites {
		m := dmutex.Message{Kind: dmutex.Request, From: all[(i+1)%3], To: all[i], Attempt: 1, Fence: min(known, limit-3)}
		_, err := sites[i].Check(m, possible)
		require.NoError(t, err)
		sites[i].Witness(0, known)
		sites[i].Enter()
		require.Greater(t, sites[i].Fence(), known)
		known = sites[i].Fence()
		_, _ = sites[i].Leave()
		_, err = sites[i].Ask(dmutex.Request)
		require.ErrorIs(t, err, dmutex.ErrExhausted)
	}
	require.Equal(t, uint64(limit), known)
}

// possible finds nothing wrong with a message.
func possible(dmutex.Message) string { return "" }

func TestSiteCheck(t *testing.T) {
	const fence, limit = 3 << 22, 4<<22 - 1
	good := dmutex.Message{Kind: dmutex.Request, From: 5, To: 2, Attempt: 1, Fence: fence}
	for _, tt := range []struct {
		name  string
		spoil func(m *dmutex.Message)
		err   string
	}{
		{"good", func(*dmutex.Message) {}, ""},
		{"late fence", func(m *dmutex.Message) { m.Fence = limit - 3 }, ""},
		{"last time", func(m *dmutex.Message) { m.Attempt, m.Clock = 1<<61, 1<<63 }, ""},
		{"a request for a token", func(m *dmutex.Message) { m.Nodes = members(5) }, ""},
		{"a token need not name a request", func(m *dmutex.Message) { m.Kind, m.Attempt = dmutex.Token, 0 }, ""},
		{"not for this node", func(m *dmutex.Message) { m.To = 1 }, "it is not for node 2"},
		{"stranger", func(m *dmutex.Message) { m.From = 4 }, "the sender is not a peer"},
		{"from itself", func(m *dmutex.Message) { m.From = 2 }, "the sender is not a peer"},
		{"from nobody", func(m *dmutex.Message) { m.From = dmutex.None }, "the sender is not a peer"},
		{"no request", func(m *dmutex.Message) { m.Attempt = 0 }, "it names no request"},
		{"attempt", func(m *dmutex.Message) { m.Attempt = 1<<61 + 1 }, "beyond 1<<61"},
		{"clock", func(m *dmutex.Message) { m.Clock = 1<<63 + 1 }, "beyond 1<<63"},
		{"greatest clock", func(m *dmutex.Message) { m.Clock = math.MaxUint64 }, "beyond 1<<63"},
		{"release", func(m *dmutex.Message) { m.Kind = dmutex.Release }, ""},
		{"answer", func(m *dmutex.Message) { m.Kind = dmutex.Grant }, "it answers a request that was never made"},
		{"number", func(m *dmutex.Message) { m.Kind, m.Numbers = dmutex.Token, []uint64{1, 1<<61 + 1} }, "beyond 1<<61"},
		{"numbers", func(m *dmutex.Message) { m.Numbers = []uint64{1} }, "carries a list"},
		{"names", func(m *dmutex.Message) { m.Kind, m.Nodes = dmutex.Reply, members(5) }, "carries a list"},
		{"earlier fence", func(m *dmutex.Message) { m.Fence = fence - 1 }, "its fence is below those of this group"},
		{"fences used up", func(m *dmutex.Message) { m.Fence = limit - 2 }, "its fence is above those of this group"},
		{"later fence", func(m *dmutex.Message) { m.Fence = limit + 1 }, "its fence is above those of this group"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, dmutex.Start{Self: 2, Members: members(1, 2, 5), Fence: fence, Limit: limit, Known: fence + 9})
			msg := good
			tt.spoil(&msg)
			before := text(t, &s)
			from, err := s.Check(msg, possible)
			require.Equal(t, before, text(t, &s))
			if tt.err == "" {
				require.NoError(t, err)
				require.Equal(t, msg.From, s.Peers()[from])
				return
			}
			require.ErrorIs(t, err, dmutex.ErrPeer)
			require.ErrorContains(t, err, tt.err)
			msg.Numbers, msg.Nodes = nil, nil
			require.ErrorContains(t, err, msg.String(), "the error quotes the message")
		})
	}
}

// The next input clears the output, so a driver that keeps the output sends nonsense at once.
func TestSiteOutput(t *testing.T) {
	s := newSite(t, dmutex.Start{Self: 1, Members: members(1, 2, 3), Fence: 8})
	_, err := s.Ask(dmutex.Request)
	require.NoError(t, err)
	s.Send(dmutex.Request, 2, 1)
	s.Send(dmutex.Request, 3, 1).Clock = 4
	out := s.Out()
	require.Equal(t, []dmutex.Message{
		{Kind: dmutex.Request, From: 1, To: 2, Attempt: 1, Fence: 8},
		{Kind: dmutex.Request, From: 1, To: 3, Attempt: 1, Fence: 8, Clock: 4},
	}, out)

	cancel(t, &s)
	require.Empty(t, s.Out())
	require.Equal(t, make([]dmutex.Message, 2), out)
}

func TestSiteClone(t *testing.T) {
	s := newSite(t, dmutex.Start{Self: 1, Members: members(1, 2)})
	_, err := s.Ask(dmutex.Request)
	require.NoError(t, err)
	s.Send(dmutex.Request, 2, 1)
	c := s.Clone()
	require.Equal(t, text(t, &s), text(t, &c))
	require.Empty(t, c.Out())

	c.Send(dmutex.Reply, 2, 7)
	require.False(t, c.Enter())
	require.Equal(t, dmutex.Waiting, s.Phase())
	require.Equal(t, "1->2 REQUEST attempt=1", s.Out()[0].String())
}

// An error stays small, however long the lists of the message are.
func TestSiteRefuse(t *testing.T) {
	s := newSite(t, dmutex.Start{Self: 1, Members: members(1, 2)})
	_, err := s.Check(dmutex.Message{
		Kind: dmutex.Token, From: 2, To: 1, Numbers: make([]uint64, 1000), Nodes: make([]dmutex.NodeID, 3),
	}, func(dmutex.Message) string { return "why" })
	require.EqualError(t, err, "dmutex: peer's mistake: 2->1 TOKEN len(numbers)=1000 len(nodes)=3: why")
}

// Whatever time a peer claims, the others accept the messages of a correct node, and its
// machine may be forgotten and born again.
func TestSiteLastTime(t *testing.T) {
	group := func(self dmutex.NodeID, clock uint64) dmutex.Machine {
		m, err := lamport.New(dmutex.Start{Self: self, Members: members(1, 2, 3), Clock: clock})
		require.NoError(t, err)
		return m
	}
	one, three := group(1, 0), group(3, 0)
	handle := func(m dmutex.Machine, msg dmutex.Message) []dmutex.Message {
		out, err := m.Handle(msg)
		require.NoError(t, err)
		return slices.Clone(out)
	}
	asks, err := one.Request()
	require.NoError(t, err)
	answer := handle(three, asks[1])
	handle(one, dmutex.Message{Kind: dmutex.Reply, From: 2, To: 1, Attempt: 1, Clock: 1 << 63})
	handle(one, answer[0])
	require.Equal(t, dmutex.Held, one.Phase())

	leaves, err := one.Release()
	require.NoError(t, err)
	require.Equal(t, "1->3 RELEASE attempt=1 clock=2305843009213693955 fence=1", leaves[1].String())
	require.Empty(t, handle(three, leaves[1]))
	_, err = three.Request()
	require.ErrorIs(t, err, dmutex.ErrExhausted)
	for _, m := range []dmutex.Machine{one, three} {
		clock, _, ok := m.Forget()
		require.True(t, ok)
		group(1, clock)
	}
}
