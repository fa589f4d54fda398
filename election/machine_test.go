package election

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

var families = []struct {
	name      string
	algorithm Algorithm
}{
	{"bully", Bully},
	{"ring", Ring},
	{"changroberts", ChangRoberts},
}

func text(t testing.TB, m Machine) string {
	t.Helper()
	b, err := m.AppendText(nil)
	require.NoError(t, err)
	return string(b)
}

// A bad Config is refused, and the error says what to change.
func TestBirth(t *testing.T) {
	two := dmutextest.Nodes(2)
	for _, tt := range []struct {
		config Config
		why    string // what Bully says
		rings  bool   // the rings say so too
	}{
		{Config{Self: 1, Answer: 1, Outcome: 2}, "not among Config.Members", true},
		{Config{Self: 3, Members: two, Answer: 1, Outcome: 2}, "not among Config.Members", true},
		{Config{Self: 1, Members: []dmutex.NodeID{1, 2, 1}, Answer: 1, Outcome: 2}, "names a node twice", true},
		{Config{Self: 1, Members: []dmutex.NodeID{1, 0}, Answer: 1, Outcome: 2}, "number nodes from 1", true},
		{Config{Self: 1, Members: two, Epoch: lastNumber + 1, Answer: 1, Outcome: 2}, "beyond 1<<62", true},
		{Config{Self: 1, Members: two, Answer: 1}, "Outcome must be at least 1", true},
		{Config{Self: 1, Members: two, Outcome: 2}, "Answer must be at least 1", false},
		{Config{Self: 1, Members: two, Answer: 2, Outcome: 2}, "less than Config.Outcome", false},
	} {
		for _, f := range families {
			_, err := f.algorithm(tt.config)
			if f.name != "bully" && !tt.rings {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, dmutex.ErrMisuse)
			require.ErrorContains(t, err, tt.why)
		}
	}
}

// A call that is refused says whose mistake it is, and changes nothing. Node 2
// of 1 to 4 runs.
func TestRefusals(t *testing.T) {
	list := func(ids ...dmutex.NodeID) []dmutex.NodeID { return ids }
	suspect := func(node dmutex.NodeID) func(Machine) error {
		return func(m Machine) error { _, err := m.Suspect(node); return err }
	}
	unsuspect := func(node dmutex.NodeID) func(Machine) error {
		return func(m Machine) error { _, err := m.Unsuspect(node); return err }
	}
	handle := func(msg Message) func(Machine) error {
		return func(m Machine) error { _, err := m.Handle(msg); return err }
	}
	for _, tt := range []struct {
		name      string
		algorithm string // all if empty
		call      func(Machine) error
		kind      error
	}{
		{"suspect oneself", "", suspect(2), dmutex.ErrMisuse},
		{"suspect a stranger", "", suspect(5), dmutex.ErrMisuse},
		{"unsuspect oneself", "", unsuspect(2), dmutex.ErrMisuse},
		{"unsuspect a stranger", "", unsuspect(5), dmutex.ErrMisuse},
		{"no kind", "", handle(Message{From: 1, To: 2, Ballot: 4}), dmutex.ErrPeer},
		{"unknown kind", "", handle(Message{Kind: 9, From: 1, To: 2, Ballot: 4}), dmutex.ErrPeer},
		{"for another", "", handle(Message{Kind: Coordinator, From: 1, To: 3, Epoch: 4}), dmutex.ErrPeer},
		{"of a stranger", "", handle(Message{Kind: Coordinator, From: 5, To: 2, Epoch: 4}), dmutex.ErrPeer},
		{"of oneself", "", handle(Message{Kind: Coordinator, From: 2, To: 2, Epoch: 4}), dmutex.ErrPeer},
		{"no ballot", "", handle(Message{Kind: Election, From: 1, To: 2}), dmutex.ErrPeer},
		{"no epoch", "", handle(Message{Kind: Coordinator, From: 1, To: 2}), dmutex.ErrPeer},
		{"vast ballot", "", handle(Message{Kind: Election, From: 1, To: 2, Ballot: lastNumber + 4}), dmutex.ErrPeer},
		{"vast epoch", "", handle(Message{Kind: Coordinator, From: 1, To: 2, Epoch: lastNumber + 4}), dmutex.ErrPeer},
		{"ballot of another", "bully", handle(Message{Kind: Election, From: 1, To: 2, Ballot: 5}), dmutex.ErrPeer},
		{"election of a higher node", "bully", handle(Message{Kind: Election, From: 4, To: 2, Ballot: 3}), dmutex.ErrPeer},
		{"answer of a lower node", "bully", handle(Message{Kind: Answer, From: 1, To: 2, Ballot: 4}), dmutex.ErrPeer},
		{"agree", "bully", handle(Message{Kind: Agree, From: 1, To: 2, Ballot: 4}), dmutex.ErrPeer},
		{"no list", "ring", handle(Message{Kind: Election, From: 1, To: 2, Ballot: 4}), dmutex.ErrPeer},
		{"stranger on the list", "ring", handle(Message{Kind: Election, From: 1, To: 2, Ballot: 4, Nodes: list(1, 5)}), dmutex.ErrPeer},
		{"one twice on the list", "ring", handle(Message{Kind: Election, From: 1, To: 2, Ballot: 4, Nodes: list(1, 3, 3)}), dmutex.ErrPeer},
		{"long list", "ring", handle(Message{Kind: Election, From: 1, To: 2, Ballot: 4, Nodes: list(1, 2, 3, 4, 1)}), dmutex.ErrPeer},
		{"list of another's ballot", "ring", handle(Message{Kind: Election, From: 1, To: 2, Ballot: 4, Nodes: list(3, 1)}), dmutex.ErrPeer},
		{"epoch of another ballot", "ring", handle(Message{Kind: Coordinator, From: 1, To: 2, Ballot: 4, Epoch: 9}), dmutex.ErrPeer},
		{"epoch of a lower node", "ring", handle(Message{Kind: Coordinator, From: 1, To: 2, Ballot: 7, Epoch: 6}), dmutex.ErrPeer},
		{"passed nobody", "changroberts", handle(Message{Kind: Election, From: 1, To: 2, Ballot: 4, Epoch: 4}), dmutex.ErrPeer},
		{"passed too many", "changroberts", handle(Message{Kind: Election, From: 1, To: 2, Ballot: 4, Epoch: 4, Passed: 5}), dmutex.ErrPeer},
		{"ballot not met", "changroberts", handle(Message{Kind: Election, From: 1, To: 2, Ballot: 4, Passed: 1}), dmutex.ErrPeer},
	} {
		for _, f := range families {
			if tt.algorithm != "" && tt.algorithm != f.name {
				continue
			}
			t.Run(tt.name+", "+f.name, func(t *testing.T) {
				m, err := f.algorithm(Config{Self: 2, Members: dmutextest.Nodes(4), Answer: 1, Outcome: 2})
				require.NoError(t, err)
				m.Start()
				before := text(t, m)
				require.ErrorIs(t, tt.call(m), tt.kind)
				require.Equal(t, before, text(t, m))
			})
		}
	}
}

// Ticks count, and an old announcement changes nothing.
func TestTicks(t *testing.T) {
	m, err := Bully(Config{Self: 1, Members: dmutextest.Nodes(2), Answer: 3, Outcome: 5})
	require.NoError(t, err)
	require.Equal(t, "bully 1 idle", text(t, m))
	require.Empty(t, m.Tick(), "no timeout while idle")
	require.Zero(t, m.TicksLeft())
	require.Len(t, m.Start(), 1)
	require.Equal(t, 3, m.TicksLeft())
	require.Empty(t, m.Start(), "an election is under way")
	require.Equal(t, "bully 1 asking left=3 met=2 ballot=2", text(t, m))
	require.Empty(t, m.Tick())
	require.Empty(t, m.Tick())
	require.Equal(t, []Message{{Kind: Coordinator, From: 1, To: 2, Epoch: 2}}, m.Tick())
	leader, epoch := m.Leader()
	require.Equal(t, dmutex.NodeID(1), leader)
	require.Equal(t, uint64(2), epoch)

	out, err := m.Handle(Message{Kind: Coordinator, From: 2, To: 1, Epoch: 1})
	require.NoError(t, err)
	require.Equal(t, []Message{{Kind: Coordinator, From: 1, To: 2, Epoch: 2}}, out, "node 2 is told the newer epoch")
	_, err = m.Handle(Message{Kind: Coordinator, From: 2, To: 1, Epoch: 3})
	require.NoError(t, err)
	require.Equal(t, "bully 1 idle led epoch=3 met=3", text(t, m))
}

// The caller may keep the output, and a clone shares nothing that changes.
func TestOutput(t *testing.T) {
	for _, f := range families {
		m, err := f.algorithm(Config{Self: 1, Members: dmutextest.Nodes(3), Answer: 1, Outcome: 2})
		require.NoError(t, err)
		out := m.Start()
		require.Equal(t, Election, out[0].Kind)
		sent := out[0].String()
		before := text(t, m)
		c := m.Clone()
		require.Equal(t, before, text(t, c))
		c.Tick()
		_, err = c.Suspect(2)
		require.NoError(t, err)
		require.Equal(t, before, text(t, m))
		m.Tick()
		require.Equal(t, sent, out[0].String())
	}
}

// No message makes a machine panic or answer with more than a message or two for each
// member, a refused message changes nothing, and the epoch never falls.
func FuzzHandle(f *testing.F) {
	f.Add([]byte{0, 1, 1, 2, 4, 0, 1, 1, 3, 3, 2, 1, 11, 0, 0})
	f.Add([]byte{1, 1, 1, 2, 4, 0, 1, 1, 4, 3, 2, 4, 7, 1, 2})
	f.Add([]byte{5, 1, 1, 2, 4, 4, 1, 1, 4, 3, 2, 4, 7, 1, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		m, err := families[int(b[0])%3].algorithm(Config{Self: 2, Members: dmutextest.Nodes(4), Majority: b[0]&128 != 0, Answer: 1, Outcome: 2})
		require.NoError(t, err)
		for b = b[1:]; len(b) >= 7; b = b[7:] {
			before := text(t, m)
			_, was := m.Leader()
			msg := Message{
				Kind: Kind(b[0] & 7), From: dmutex.NodeID(b[1]), To: 2,
				Ballot: uint64(b[2]), Epoch: uint64(b[3]), Passed: uint64(b[4]),
			}
			for node := dmutex.NodeID(1); node <= 5; node++ {
				if b[5]>>node&1 == 1 {
					msg.Nodes = append(msg.Nodes, node)
				}
			}
			out, err := m.Handle(msg)
			require.LessOrEqual(t, len(out), 8)
			if err != nil {
				require.ErrorIs(t, err, dmutex.ErrPeer)
				require.Equal(t, before, text(t, m))
			}
			switch node := dmutex.NodeID(b[6]%5 + 1); b[6] >> 6 {
			case 1:
				_, _ = m.Suspect(node) // refused for itself and the stranger
			case 2:
				_, _ = m.Unsuspect(node)
			case 3:
				m.Tick()
			}
			_, epoch := m.Leader()
			require.GreaterOrEqual(t, epoch, was)
		}
	})
}
