package maekawa

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

// A message that no correct peer sends is refused, and one that is late or repeated is
// ignored. Neither changes anything.
func TestRefuses(t *testing.T) {
	msg := func(kind dmutex.Kind, from dmutex.NodeID, attempt uint64) dmutex.Message {
		return dmutex.Message{Kind: kind, From: from, To: 1, Attempt: attempt}
	}
	// Node 1 asks 1 and 2. As an arbiter it has voted for 3, and queues 2 and itself.
	group := rows{{1, 2}, {1, 2}, {1, 2}, {2}}
	birth := func() *machine {
		m, err := With(group.of)(dmutex.Start{Self: 1, Members: dmutextest.Nodes(4)})
		require.NoError(t, err)
		_, err = m.Handle(msg(dmutex.Request, 3, 5))
		require.NoError(t, err)
		_, err = m.Handle(msg(dmutex.Request, 2, 9))
		require.NoError(t, err)
		_, err = m.Request()
		require.NoError(t, err)
		return m.(*machine)
	}
	const before = "maekawa 1 waiting attempt=10 clock=10 arbiter 1 failed arbiter 2 vote 3@5 queued 2@9 told queued 1@10 told"
	for _, c := range []struct {
		name string
		msg  dmutex.Message
		why  string // none: it is ignored
	}{
		{"REQUEST repeated, has the vote", msg(dmutex.Request, 3, 5), ""},
		{"REQUEST outdated", msg(dmutex.Request, 3, 4), ""},
		{"REQUEST repeated, waits", msg(dmutex.Request, 2, 9), ""},
		{"REQUEST older than the one that waits", msg(dmutex.Request, 2, 8), ""},
		{"REQUEST while the last one waits", msg(dmutex.Request, 2, 10), "the sender's last request still waits"},
		{"RELEASE of an earlier request", msg(dmutex.Release, 3, 4), ""},
		{"RELEASE of a request that waits", msg(dmutex.Release, 2, 9), "the sender was not granted it"},
		{"YIELD of an earlier request", msg(dmutex.Yield, 3, 4), ""},
		{"YIELD that nobody asked for", msg(dmutex.Yield, 3, 5), "nobody asked for the vote back"},
		{"REPLY to an earlier request", msg(dmutex.Reply, 2, 9), ""},
		{"REPLY to a request never made", msg(dmutex.Reply, 2, 11), "it answers a request that was never made"},
		{"REPLY by no arbiter", msg(dmutex.Reply, 3, 10), "the sender is not in this node's quorum"},
		{"FAILED for an earlier request", msg(dmutex.Failed, 2, 9), ""},
		{"FAILED for a request never made", msg(dmutex.Failed, 2, 11), "it answers a request that was never made"},
		{"FAILED by no arbiter", msg(dmutex.Failed, 4, 10), "the sender is not in this node's quorum"},
		{"INQUIRE about an earlier request", msg(dmutex.Inquire, 2, 9), ""},
		{"INQUIRE about a request never made", msg(dmutex.Inquire, 2, 11), "it answers a request that was never made"},
		{"INQUIRE by no arbiter", msg(dmutex.Inquire, 3, 10), "the sender is not in this node's quorum"},
		{"GRANT", msg(dmutex.Grant, 2, 10), "Maekawa's algorithm has no such message"},
		{"TOKEN", msg(dmutex.Token, 2, 0), "Maekawa's algorithm has no such message"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := birth()
			require.Equal(t, before, text(m))
			out, err := m.Handle(c.msg)
			if c.why != "" {
				require.ErrorIs(t, err, dmutex.ErrPeer)
				require.ErrorContains(t, err, c.why)
			} else {
				require.NoError(t, err)
			}
			require.Empty(t, out)
			require.Equal(t, before, text(m))
		})
	}
}

// A node that yields a vote for one request has not sent another.
func TestYieldAfterNextRequest(t *testing.T) {
	m, err := With(pairs.of)(dmutex.Start{Self: 1, Members: dmutextest.Nodes(3)})
	require.NoError(t, err)
	for _, msg := range []dmutex.Message{
		{Kind: dmutex.Request, From: 3, To: 1, Attempt: 2}, // has the vote
		{Kind: dmutex.Request, From: 2, To: 1, Attempt: 1}, // goes before it
		{Kind: dmutex.Request, From: 3, To: 1, Attempt: 3}, // overtakes the RELEASE
	} {
		_, err := m.Handle(msg)
		require.NoError(t, err)
	}
	_, err = m.Handle(dmutex.Message{Kind: dmutex.Yield, From: 3, To: 1, Attempt: 2})
	require.ErrorIs(t, err, dmutex.ErrPeer)
	require.ErrorContains(t, err, "the sender has a later request")
}

// An INQUIRE to a node in the critical section is answered only by the RELEASE. An
// INQUIRE that overtakes the REPLY is answered after the REPLY.
func TestInquire(t *testing.T) {
	answer := func(kind dmutex.Kind, from dmutex.NodeID) dmutex.Message {
		return dmutex.Message{Kind: kind, From: from, To: 1, Attempt: 1}
	}
	birth := func() *machine {
		m, err := With(full.of)(dmutex.Start{Self: 1, Members: dmutextest.Nodes(3)})
		require.NoError(t, err)
		_, err = m.Request()
		require.NoError(t, err)
		return m.(*machine)
	}
	for _, c := range []struct {
		name string
		in   []dmutex.Message
		out  string // of the last
	}{
		{"in the critical section", []dmutex.Message{answer(dmutex.Reply, 2), answer(dmutex.Reply, 3), answer(dmutex.Inquire, 2)}, ""},
		{"may still win", []dmutex.Message{answer(dmutex.Reply, 2), answer(dmutex.Inquire, 2)}, ""},
		{"fails later", []dmutex.Message{answer(dmutex.Reply, 2), answer(dmutex.Inquire, 2), answer(dmutex.Failed, 3)}, "1->2 YIELD attempt=1 clock=1"},
		{"has failed", []dmutex.Message{answer(dmutex.Failed, 3), answer(dmutex.Reply, 2), answer(dmutex.Inquire, 2)}, "1->2 YIELD attempt=1 clock=1"},
		{"failed and was then voted for", []dmutex.Message{answer(dmutex.Failed, 3), answer(dmutex.Reply, 3), answer(dmutex.Inquire, 3)}, ""},
		{"has yielded", []dmutex.Message{answer(dmutex.Failed, 3), answer(dmutex.Reply, 2), answer(dmutex.Inquire, 2), answer(dmutex.Reply, 3), answer(dmutex.Inquire, 3)}, "1->3 YIELD attempt=1 clock=1"},
		{"before the REPLY", []dmutex.Message{answer(dmutex.Failed, 3), answer(dmutex.Inquire, 2), answer(dmutex.Reply, 2)}, "1->2 YIELD attempt=1 clock=1"},
		{"twice", []dmutex.Message{answer(dmutex.Failed, 3), answer(dmutex.Reply, 2), answer(dmutex.Inquire, 2), answer(dmutex.Inquire, 2)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, out := birth(), ""
			for _, msg := range c.in {
				sent, err := m.Handle(msg)
				require.NoError(t, err)
				out = ""
				for _, o := range sent {
					out += o.String()
				}
			}
			require.Equal(t, c.out, out)
		})
	}
}

func text(m *machine) string {
	b, _ := m.AppendText(nil)
	return string(b)
}

// LESSONS L60: quorums that share no node are refused.
func TestWithRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		quorums rows
		self    dmutex.NodeID
		why     string // none: it is accepted
	}{
		{"lawful", rows{{1, 2}, {2, 3}, {3, 1}}, 1, ""},
		{"a member twice", rows{{2, 1, 2}, {2, 2}, {2}}, 1, ""},
		{"one for all", rows{{3}, {3}, {3}}, 1, ""},
		{"disjoint from ours", rows{{1, 2}, {2, 3}, {3}}, 1, "the quorums of nodes 1 and 3 share no node"},
		{"disjoint from theirs", rows{{1, 2}, {2, 3}, {3}}, 3, "the quorums of nodes 3 and 1 share no node"},
		{"our own is empty", rows{{}, {2}, {2}}, 1, "the quorum of node 1 is empty"},
		{"another's is empty", rows{{1}, {1}, nil}, 1, "the quorum of node 3 is empty"},
		{"ours has a stranger", rows{{1, 4}, {1}, {1}}, 1, "the quorum of node 1 contains 4, which is not among Start.Members"},
		{"another's has a stranger", rows{{1}, {1, 0}, {1}}, 1, "the quorum of node 2 contains 0, which is not among Start.Members"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := With(c.quorums.of)(dmutex.Start{Self: c.self, Members: dmutextest.Nodes(3)})
			if c.why == "" {
				require.NoError(t, err)
				return
			}
			require.Nil(t, m)
			require.ErrorIs(t, err, dmutex.ErrMisuse)
			require.ErrorContains(t, err, c.why)
		})
	}
	m, err := New(dmutex.Start{Self: 1})
	require.Nil(t, m)
	require.ErrorIs(t, err, dmutex.ErrMisuse)
}

// TestOutdatedYield: a YIELD of a request that no longer has the vote is ignored, also
// when a later request of its node waits. Then only a YIELD of the request that has the
// vote is a mistake.
func TestOutdatedYield(t *testing.T) {
	m, err := With(rows{{1, 2}, {1, 2}, {1, 2}}.of)(dmutex.Start{Self: 1, Members: dmutextest.Nodes(3)})
	require.NoError(t, err)
	for _, msg := range []dmutex.Message{
		{Kind: dmutex.Request, From: 3, To: 1, Attempt: 5}, // has the vote
		{Kind: dmutex.Request, From: 2, To: 1, Attempt: 9}, // waits
	} {
		_, err := m.Handle(msg)
		require.NoError(t, err)
	}
	before := text(m.(*machine))
	out, err := m.Handle(dmutex.Message{Kind: dmutex.Yield, From: 2, To: 1, Attempt: 8})
	require.NoError(t, err)
	require.Empty(t, out)
	require.Equal(t, before, text(m.(*machine)))
}
