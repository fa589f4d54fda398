package site_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/site"
)

// A roll has a field of each kind.
type roll struct {
	site.Machine
	set     []bool
	times   []uint64
	queue   []dmutex.Stamp
	nodes   []dmutex.NodeID
	numbers []uint64
	token   bool
	old     []uint64
}

func (*roll) Request() ([]dmutex.Message, error)              { return nil, nil }
func (*roll) Release() ([]dmutex.Message, error)              { return nil, nil }
func (*roll) Handle(dmutex.Message) ([]dmutex.Message, error) { return nil, nil }

func (m *roll) Fields(f *site.Fields) string {
	f.Set("set", &m.set)
	f.Times("of", &m.times)
	f.Stamps("queued", &m.queue)
	f.Nodes("nodes", &m.nodes)
	f.Numbers("numbers", &m.numbers)
	f.Flag("token", m.token)
	f.Number("count", uint64(len(m.old)))
	f.Only(m.token)
	f.Numbers("old", &m.old)
	f.Number("more", 1)
	return "roll"
}

func newRoll(t *testing.T) *roll {
	m := &roll{Machine: site.Machine{Site: newSite(t, dmutex.Start{Self: 2, Members: members(1, 2, 5)})}}
	require.Same(t, m, site.Complete(m))
	return m
}

// A completed machine writes, copies and forgets by its fields.
func TestComplete(t *testing.T) {
	m := newRoll(t)
	write := func(m dmutex.Machine) string {
		b, err := m.AppendText([]byte("> "))
		require.NoError(t, err)
		return string(b)
	}
	require.Equal(t, "> roll 2 idle", write(m))
	_, _, ok := m.Forget()
	require.True(t, ok)
	for _, tt := range []struct {
		text string
		set  func(m *roll)
	}{
		{"set 5", func(m *roll) { m.set = []bool{false, true} }},
		{"of 1@7", func(m *roll) { m.times = []uint64{7, 0} }},
		{"queued 2@3 queued 5@4", func(m *roll) { m.queue = []dmutex.Stamp{{Clock: 3, Node: 2}, {Clock: 4, Node: 5}} }},
		{"nodes=5,1", func(m *roll) { m.nodes = members(5, 1) }},
		{"numbers=0,3", func(m *roll) { m.numbers = []uint64{0, 3} }},
		{"token more=1", func(m *roll) { m.token = true }},
		{"count=2", func(m *roll) { m.old = []uint64{8, 9} }},
	} {
		m := newRoll(t)
		tt.set(m)
		require.Equal(t, "> roll 2 idle "+tt.text, write(m))
		_, _, ok := m.Forget()
		require.False(t, ok, tt.text)

		c := m.Clone().(*roll)
		require.Equal(t, write(m), write(c))
		_, err := c.Ask(dmutex.Request)
		require.NoError(t, err)
		require.Equal(t, "> roll 2 waiting attempt=1 clock=1 "+tt.text, write(c))
		c.queue, c.old, c.numbers = append(c.queue, dmutex.Stamp{Clock: 1, Node: 1}), append(c.old, 1), append(c.numbers, 1)
		for i := range c.set {
			c.set[i] = !c.set[i]
		}
		for i := range c.old {
			c.old[i]++
		}
		require.Equal(t, "> roll 2 idle "+tt.text, write(m), "the clone shares nothing")
	}
	require.Empty(t, m.WaitsFor(nil))
	_, err := m.Ask(dmutex.Request)
	require.NoError(t, err)
	require.Equal(t, members(9, 1, 5), m.WaitsFor(members(9)))
	_, _, ok = m.Forget()
	require.False(t, ok)
}

// A machine around a completed one is not that one.
func TestCompleteCopy(t *testing.T) {
	const uncompleted = "site: a machine that embeds a site.Machine has its own AppendText, Clone and Forget, or is made by site.Complete, also if it is a copy"
	type around struct{ roll }
	m := &around{*newRoll(t)}
	require.PanicsWithValue(t, uncompleted, func() { m.Clone() })
	require.Same(t, m, site.Complete(m))
	require.IsType(t, m, m.Clone())
	bare := &roll{Machine: site.Machine{Site: newSite(t, dmutex.Start{Self: 1, Members: members(1)})}}
	require.PanicsWithValue(t, uncompleted, func() { bare.Clone() })
}

// The Site makes no machine a Keeper, a Lender or anything else that it does not say itself.
func TestCompleteClaims(t *testing.T) {
	m := site.Complete(newRoll(t))
	_, keeps := m.(dmutex.Keeper)
	_, lends := m.(dmutex.Lender)
	_, shares := m.(dmutex.Sharer)
	_, declares := m.(dmutex.Declarer)
	_, coordinates := m.(dmutex.Coordinator)
	_, ticks := m.(dmutex.Ticker)
	require.Equal(t, [6]bool{}, [6]bool{keeps, lends, shares, declares, coordinates, ticks})
}

// A field that Fields does not name is found.
type hasty struct {
	site.Machine
	replies int
}

func (m *hasty) Fields(*site.Fields) string { return "hasty" }

func (m *hasty) Request() ([]dmutex.Message, error) {
	if fresh, err := m.Ask(dmutex.Request); err != nil || !fresh {
		return nil, err
	}
	m.replies = 0
	for _, peer := range m.Peers() {
		m.Send(dmutex.Request, peer, m.Stamp().Clock)
	}
	return m.Out(), nil
}

func (m *hasty) Release() ([]dmutex.Message, error) {
	_, err := m.Leave()
	return nil, err
}

func (m *hasty) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if _, err := m.Check(msg, func(dmutex.Message) string { return "" }); err != nil {
		return nil, err
	}
	m.Witness(msg.Attempt, msg.Fence)
	if msg.Kind == dmutex.Request {
		m.Send(dmutex.Reply, msg.From, msg.Attempt)
	} else if m.replies++; m.replies == len(m.Peers()) {
		m.Enter()
	}
	return m.Out(), nil
}

func TestCompleteForgottenField(t *testing.T) {
	_, err := dmutextest.Explore(dmutextest.Config{Members: dmutextest.Nodes(3), Requests: []int{1}, Algorithm: func(s dmutex.Start) (dmutex.Machine, error) {
		own, err := site.New(s)
		if err != nil {
			return nil, err
		}
		return site.Complete(&hasty{Machine: site.Machine{Site: own}}), nil
	}})
	require.ErrorIs(t, err, dmutextest.ErrContract)
	require.ErrorContains(t, err, "AppendText")
}
