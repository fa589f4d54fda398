package dmutex_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/lamport"
)

func newSite(t *testing.T, s dmutex.Start) dmutex.Site {
	t.Helper()
	site, err := dmutex.NewSite(s)
	require.NoError(t, err)
	return site
}

func text(t *testing.T, s *dmutex.Site) string {
	t.Helper()
	return string(s.AppendSite(nil))
}

func cancel(t *testing.T, s *dmutex.Site) {
	t.Helper()
	out, err := s.Cancel()
	require.NoError(t, err)
	require.Empty(t, out)
}

func members(ids ...dmutex.NodeID) []dmutex.NodeID { return ids }

func TestNewSite(t *testing.T) {
	for _, tt := range []struct {
		name  string
		start dmutex.Start
		text  string // of the site, or
		err   string
	}{
		{"alone", dmutex.Start{Self: 7, Members: members(7)}, "7 idle", ""},
		{"any order", dmutex.Start{Self: 2, Members: members(3, 1, 2)}, "2 idle", ""},
		{"born again", dmutex.Start{Self: 2, Members: members(1, 2), Clock: 5, Fence: 3}, "2 idle clock=5 known=3", ""},
		{"holds", dmutex.Start{Self: 2, Members: members(1, 2), Holder: 2, Fence: 3}, "2 held attempt=1 clock=1 known=3 fence=3", ""},
		{"another holds", dmutex.Start{Self: 1, Members: members(1, 2), Holder: 2, Fence: 3}, "1 idle clock=1 known=3", ""},
		{"holds, clock", dmutex.Start{Self: 2, Members: members(1, 2), Holder: 2, Fence: 3, Clock: 9}, "2 held attempt=1 clock=9 known=3 fence=3", ""},
		{"last clock", dmutex.Start{Self: 1, Members: members(1), Clock: 1 << 62}, "1 idle clock=4611686018427387904", ""},
		{"last fence", dmutex.Start{Self: 1, Members: members(1), Fence: 1<<32 - 1<<19}, "1 idle known=4294443008", ""},
		{"holds, no fence", dmutex.Start{Self: 2, Members: members(1, 2), Holder: 2}, "2 held attempt=1 clock=1", ""},

		{"no members", dmutex.Start{Self: 1}, "", "Start.Self 1 is not among Start.Members"},
		{"no self", dmutex.Start{Members: members(1, 2)}, "", "Start.Self 0 is not among Start.Members"},
		{"self a stranger", dmutex.Start{Self: 3, Members: members(1, 2)}, "", "Start.Self 3 is not among Start.Members"},
		{"twice", dmutex.Start{Self: 1, Members: members(1, 2, 1)}, "", "Start.Members names a node twice"},
		{"nobody", dmutex.Start{Self: 1, Members: members(1, 0)}, "", "Start.Members contains 0"},
		{"holder a stranger", dmutex.Start{Self: 1, Members: members(1, 2), Holder: 3}, "", "Start.Holder 3 is not among Start.Members"},
		{"clock", dmutex.Start{Self: 1, Members: members(1, 2), Clock: 1<<62 + 1}, "", "Start.Clock is beyond 1<<62"},
		{"fence", dmutex.Start{Self: 1, Members: members(1, 2), Fence: 3<<32 + 1<<32 - 1<<19 + 1}, "", "Start.Fence is beyond the last fence of its epoch"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			site, err := dmutex.NewSite(tt.start)
			if tt.err != "" {
				require.ErrorIs(t, err, dmutex.ErrMisuse)
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.text, text(t, &site))
			require.Equal(t, tt.start.Self, site.Self())
		})
	}
}

// A group that starts again is above every fence of its former life, and has a
// whole epoch of them.
func TestNextEpoch(t *testing.T) {
	for _, tt := range []struct{ stored, want uint64 }{
		{0, 1 << 32},
		{7, 1 << 32},
		{1<<32 - 1, 1 << 32},
		{1 << 32, 2 << 32}, // a life in which nothing was written
		{1<<32 + 5, 2 << 32},
		{1<<64 - 2<<32, 1<<64 - 1<<32},
	} {
		floor := dmutex.NextEpoch(tt.stored)
		require.Equal(t, tt.want, floor)
		m, err := lamport.New(dmutex.Start{Self: 1, Members: members(1), Fence: floor})
		require.NoError(t, err)
		_, err = m.Request()
		require.NoError(t, err)
		require.Equal(t, floor+1, m.Fence())
	}
	for _, stored := range []uint64{1<<64 - 1<<32, math.MaxUint64} {
		_, err := dmutex.NewSite(dmutex.Start{Self: 1, Members: members(1), Fence: dmutex.NextEpoch(stored)})
		require.ErrorIs(t, err, dmutex.ErrMisuse)
		require.ErrorContains(t, err, "Start.Fence")
	}
}

func TestSitePeers(t *testing.T) {
	given := members(5, 1, 3)
	site := newSite(t, dmutex.Start{Self: 3, Members: given})
	require.Equal(t, members(1, 5), site.Peers(), "ascending, without itself")
	require.Equal(t, members(5, 1, 3), given, "the caller's list stays as it was")
}

// The life of a request, as the comment of Site tells it.
func TestSiteLife(t *testing.T) {
	site := newSite(t, dmutex.Start{Self: 1, Members: members(1, 2)})
	check := func(phase dmutex.Phase, pending bool, want string) {
		t.Helper()
		require.Equal(t, phase, site.Phase())
		require.Equal(t, pending, site.Pending())
		require.Equal(t, want, text(t, &site))
	}

	fresh, err := site.Ask()
	require.NoError(t, err)
	require.True(t, fresh)
	check(dmutex.Waiting, true, "1 waiting attempt=1 clock=1")
	require.Equal(t, dmutex.Stamp{Clock: 1, Node: 1}, site.Stamp())

	cancel(t, &site)
	check(dmutex.Idle, true, "1 withdrawn attempt=1 clock=1")
	require.False(t, site.Idle(), "it is still on its way")

	fresh, err = site.Ask()
	require.NoError(t, err)
	require.False(t, fresh, "the withdrawn request is taken up again")
	check(dmutex.Waiting, true, "1 waiting attempt=1 clock=1")

	require.False(t, site.Enter())
	check(dmutex.Held, false, "1 held attempt=1 clock=1 known=1 fence=1")
	require.Equal(t, uint64(1), site.Fence())

	over, err := site.Leave()
	require.NoError(t, err)
	require.Equal(t, dmutex.Stamp{Clock: 1, Node: 1}, over)
	check(dmutex.Idle, false, "1 idle clock=1 known=1")
	require.Zero(t, site.Fence())
	require.Zero(t, site.Stamp().Clock)

	site.Witness(6, 4)
	site.Witness(5, 3) // nothing new
	_, err = site.Ask()
	require.NoError(t, err)
	cancel(t, &site)
	require.True(t, site.Enter(), "the request was withdrawn")
	check(dmutex.Idle, false, "1 idle clock=7 known=4")

	require.True(t, site.Idle())
	require.Equal(t, []uint64{7, 4}, []uint64{site.Clock(), site.Known()})
}

func TestSiteMisuse(t *testing.T) {
	ask := func(s *dmutex.Site) error { _, err := s.Ask(); return err }
	cancel := func(s *dmutex.Site) error { _, err := s.Cancel(); return err }
	leave := func(s *dmutex.Site) error { _, err := s.Leave(); return err }
	for _, tt := range []struct {
		name  string
		begin func(s *dmutex.Site)
		input func(s *dmutex.Site) error
		err   string
	}{
		{"cancel idle", func(*dmutex.Site) {}, cancel, "Cancel while idle"},
		{"release idle", func(*dmutex.Site) {}, leave, "Release while idle"},
		{"request waiting", func(s *dmutex.Site) { s.Ask() }, ask, "Request while Waiting"},
		{"release waiting", func(s *dmutex.Site) { s.Ask() }, leave, "Release while waiting"},
		{"cancel twice", func(s *dmutex.Site) { s.Ask(); s.Cancel() }, cancel, "Cancel while idle"},
		{"request held", func(s *dmutex.Site) { s.Ask(); s.Enter() }, ask, "Request while Held"},
		{"cancel held", func(s *dmutex.Site) { s.Ask(); s.Enter() }, cancel, "Cancel while held"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			site := newSite(t, dmutex.Start{Self: 1, Members: members(1, 2)})
			tt.begin(&site)
			before := text(t, &site)
			err := tt.input(&site)
			require.ErrorIs(t, err, dmutex.ErrMisuse)
			require.ErrorContains(t, err, tt.err)
			require.Equal(t, before, text(t, &site))
		})
	}
}

// An epoch that is at its end is nobody's mistake, and the next one is fresh.
func TestSiteExhausted(t *testing.T) {
	first := dmutex.FirstFence(7)
	for _, tt := range []struct {
		name         string
		clock, fence uint64
		err          string
	}{
		{"last clock", 1 << 61, first, "its logical times are used up"},
		{"last fence", 0, first + 1<<32 - 1<<20, "its fences are used up"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			site := newSite(t, dmutex.Start{Self: 1, Members: members(1, 2), Fence: first})
			site.Witness(tt.clock, tt.fence)
			before := text(t, &site)
			_, err := site.Ask()
			require.ErrorIs(t, err, dmutex.ErrExhausted)
			require.NotErrorIs(t, err, dmutex.ErrMisuse)
			require.EqualError(t, err, "dmutex: epoch exhausted: "+tt.err)
			require.Equal(t, before, text(t, &site))

			site = newSite(t, dmutex.Start{Self: 1, Members: members(1, 2), Fence: dmutex.NextEpoch(tt.fence)})
			_, err = site.Ask()
			require.NoError(t, err)
			require.False(t, site.Enter())
			require.Equal(t, dmutex.FirstFence(8)+1, site.Fence())
		})
	}
	site := newSite(t, dmutex.Start{Self: 1, Members: members(1, 2)})
	site.Witness(1<<61-1, 1<<32-1<<20-1)
	_, err := site.Ask()
	require.NoError(t, err, "one is left of each")
}

func TestEpoch(t *testing.T) {
	for _, epoch := range []uint32{0, 1, 7, math.MaxUint32} {
		first := dmutex.FirstFence(epoch)
		require.Equal(t, epoch, dmutex.Epoch(first))
		require.Equal(t, epoch, dmutex.Epoch(first+1<<32-1))
	}
	require.Equal(t, uint64(3<<32), dmutex.FirstFence(3))
}

func TestSiteCheck(t *testing.T) {
	const epoch = 3 << 32
	good := dmutex.Message{Kind: dmutex.Request, From: 5, To: 2, Attempt: 1, Fence: epoch}
	for _, tt := range []struct {
		name  string
		spoil func(m *dmutex.Message)
		err   string
	}{
		{"good", func(*dmutex.Message) {}, ""},
		{"late fence", func(m *dmutex.Message) { m.Fence = epoch + 1<<32 - 1<<19 }, ""},
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
		{"number", func(m *dmutex.Message) { m.Kind, m.Numbers = dmutex.Token, []uint64{1, 1<<61 + 1} }, "beyond 1<<61"},
		{"numbers", func(m *dmutex.Message) { m.Numbers = []uint64{1} }, "carries a list"},
		{"names", func(m *dmutex.Message) { m.Kind, m.Nodes = dmutex.Reply, members(5) }, "carries a list"},
		{"earlier epoch", func(m *dmutex.Message) { m.Fence = epoch - 1 }, "its fence is of another epoch"},
		{"later epoch", func(m *dmutex.Message) { m.Fence = epoch + 1<<32 }, "its fence is of another epoch"},
		{"fences used up", func(m *dmutex.Message) { m.Fence = epoch + 1<<32 - 1 }, "its fence is beyond the last fence of the epoch"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			site := newSite(t, dmutex.Start{Self: 2, Members: members(1, 2, 5), Fence: epoch})
			msg := good
			tt.spoil(&msg)
			before := text(t, &site)
			from, err := site.Check(msg)
			require.Equal(t, before, text(t, &site))
			if tt.err == "" {
				require.NoError(t, err)
				require.Equal(t, msg.From, site.Peers()[from])
				return
			}
			require.ErrorIs(t, err, dmutex.ErrPeer)
			require.ErrorContains(t, err, tt.err)
			msg.Numbers, msg.Nodes = nil, nil
			require.ErrorContains(t, err, msg.String(), "the error quotes the message")
		})
	}
}

// A driver that keeps the output beyond the next input sends nonsense at once.
func TestSiteOutput(t *testing.T) {
	site := newSite(t, dmutex.Start{Self: 1, Members: members(1, 2, 3), Fence: 8})
	_, err := site.Ask()
	require.NoError(t, err)
	site.Send(dmutex.Request, 2, 1)
	site.Send(dmutex.Request, 3, 1).Clock = 4
	out := site.Out()
	require.Equal(t, []dmutex.Message{
		{Kind: dmutex.Request, From: 1, To: 2, Attempt: 1, Fence: 8},
		{Kind: dmutex.Request, From: 1, To: 3, Attempt: 1, Fence: 8, Clock: 4},
	}, out)

	cancel(t, &site)
	require.Empty(t, site.Out())
	require.Equal(t, make([]dmutex.Message, 2), out)
}

func TestSiteClone(t *testing.T) {
	site := newSite(t, dmutex.Start{Self: 1, Members: members(1, 2)})
	_, err := site.Ask()
	require.NoError(t, err)
	site.Send(dmutex.Request, 2, 1)
	c := site.Clone()
	require.Equal(t, text(t, &site), text(t, &c))
	require.Empty(t, c.Out())

	c.Send(dmutex.Reply, 2, 7)
	require.False(t, c.Enter())
	require.Equal(t, dmutex.Waiting, site.Phase())
	require.Equal(t, "1->2 REQUEST attempt=1", site.Out()[0].String())
}

// An error stays small, however long the lists of the message are.
func TestSiteRefuse(t *testing.T) {
	site := newSite(t, dmutex.Start{Self: 1, Members: members(1, 2)})
	err := site.Refuse(dmutex.Message{
		Kind: dmutex.Token, From: 2, To: 1, Numbers: make([]uint64, 1000), Nodes: make([]dmutex.NodeID, 3),
	}, "why")
	require.EqualError(t, err, "dmutex: peer's mistake: 2->1 TOKEN len(numbers)=1000 len(nodes)=3: why")
}

// Whatever time a peer claims, a correct node's own messages are accepted by
// the others, and it may be forgotten and born again.
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
