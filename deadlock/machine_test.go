package deadlock

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

func newAnd(self dmutex.NodeID, members []dmutex.NodeID) *Machine {
	m, err := NewAnd(self, members)
	if err != nil {
		panic(err)
	}
	return m
}

func newOr(self dmutex.NodeID, members []dmutex.NodeID) *Machine {
	m, err := NewOr(self, members)
	if err != nil {
		panic(err)
	}
	return m
}

func text(t *testing.T, m *Machine) string {
	t.Helper()
	b, err := m.AppendText(nil)
	require.NoError(t, err)
	return string(b)
}

// An invalid group is refused, and the error says what to change.
func TestBirth(t *testing.T) {
	for _, tt := range []struct {
		self    dmutex.NodeID
		members []dmutex.NodeID
		why     string
	}{
		{1, nil, "Self 1 is not among Members"},
		{3, []dmutex.NodeID{1, 2}, "Self 3 is not among Members"},
		{1, []dmutex.NodeID{1, 2, 1}, "twice"},
		{1, []dmutex.NodeID{1, 0}, "number nodes from 1"},
	} {
		_, err := NewAnd(tt.self, tt.members)
		require.ErrorIs(t, err, dmutex.ErrMisuse)
		require.ErrorContains(t, err, tt.why)
		_, err = NewOr(tt.self, tt.members)
		require.ErrorIs(t, err, dmutex.ErrMisuse)
		require.ErrorContains(t, err, tt.why)
	}
}

// A call that is refused says whose mistake it is, and changes nothing. Node 2
// of 1 to 4 waits for 3 and 4, and 1 has asked it.
func TestRefusals(t *testing.T) {
	ids := func(list ...dmutex.NodeID) []dmutex.NodeID { return list }
	message := func(m Message) func(*Machine) error {
		return func(d *Machine) error { _, err := d.Handle(m); return err }
	}
	wait := func(on ...dmutex.NodeID) func(*Machine) error {
		return func(d *Machine) error { return d.Wait(on) }
	}
	granted := func(by dmutex.NodeID) func(*Machine) error {
		return func(d *Machine) error { return d.Granted(by) }
	}
	detect := func(d *Machine) error { _, err := d.Detect(); return err }
	asked := func(by dmutex.NodeID) func(*Machine) error {
		return func(d *Machine) error { return d.Asked(by) }
	}
	settled := func(with dmutex.NodeID) func(*Machine) error {
		return func(d *Machine) error { return d.Settled(with) }
	}
	for _, tt := range []struct {
		name   string
		model  string // and, or, both
		active bool
		call   func(*Machine) error
		kind   error
	}{
		{"wait while blocked", "both", false, wait(1), dmutex.ErrMisuse},
		{"wait for nobody", "both", true, wait(), dmutex.ErrMisuse},
		{"wait for oneself", "both", true, wait(1, 2), dmutex.ErrMisuse},
		{"wait for a stranger", "both", true, wait(1, 5), dmutex.ErrMisuse},
		{"wait for one twice", "both", true, wait(1, 3, 1), dmutex.ErrMisuse},
		{"grant not awaited", "both", false, granted(1), dmutex.ErrMisuse},
		{"grant of a stranger", "both", false, granted(5), dmutex.ErrMisuse},
		{"grant while active", "both", true, granted(3), dmutex.ErrMisuse},
		{"withdraw while active", "both", true, (*Machine).Withdraw, dmutex.ErrMisuse},
		{"detect while active", "both", true, detect, dmutex.ErrMisuse},
		{"asked twice", "both", false, asked(1), dmutex.ErrMisuse},
		{"asked by oneself", "both", false, asked(2), dmutex.ErrMisuse},
		{"asked by a stranger", "both", false, asked(5), dmutex.ErrMisuse},
		{"settled with none", "both", false, settled(3), dmutex.ErrMisuse},
		{"settled with a stranger", "both", false, settled(5), dmutex.ErrMisuse},
		{"no kind", "both", false, message(Message{0, 1, 2, 1, 1}), dmutex.ErrPeer},
		{"unknown kind", "both", false, message(Message{9, 1, 2, 1, 1}), dmutex.ErrPeer},
		{"for another", "both", false, message(Message{Probe, 1, 3, 1, 1}), dmutex.ErrPeer},
		{"of a stranger", "both", false, message(Message{Probe, 5, 2, 1, 1}), dmutex.ErrPeer},
		{"of oneself", "both", false, message(Message{Probe, 2, 2, 1, 1}), dmutex.ErrPeer},
		{"initiator a stranger", "both", false, message(Message{Probe, 1, 2, 5, 1}), dmutex.ErrPeer},
		{"no number", "both", false, message(Message{Probe, 1, 2, 1, 0}), dmutex.ErrPeer},
		{"vast number", "both", false, message(Message{Probe, 1, 2, 1, lastNumber + 1}), dmutex.ErrPeer},
		{"never begun", "both", false, message(Message{Probe, 1, 2, 2, 2}), dmutex.ErrPeer},
		{"query", "and", false, message(Message{Query, 1, 2, 1, 1}), dmutex.ErrPeer},
		{"probe", "or", false, message(Message{Probe, 1, 2, 1, 1}), dmutex.ErrPeer},
		{"reply to no query", "or", false, message(Message{Reply, 3, 2, 1, 1}), dmutex.ErrPeer},
		{"reply of one not asked", "or", false, message(Message{Reply, 1, 2, 2, 1}), dmutex.ErrPeer},
	} {
		for model, born := range map[string]func(dmutex.NodeID, []dmutex.NodeID) *Machine{"and": newAnd, "or": newOr} {
			if tt.model != "both" && tt.model != model {
				continue
			}
			t.Run(tt.name+", "+model, func(t *testing.T) {
				d := born(2, dmutextest.Nodes(4))
				require.NoError(t, d.Asked(1))
				if !tt.active {
					require.NoError(t, d.Wait(ids(3, 4)))
					require.NoError(t, detect(d))
				}
				before := text(t, d)
				require.ErrorIs(t, tt.call(d), tt.kind)
				require.Equal(t, before, text(t, d))
			})
		}
	}
}

// One REPLY more than there were QUERYs is refused.
func TestSurplusReply(t *testing.T) {
	m := newOr(1, dmutextest.Nodes(2))
	require.NoError(t, m.Wait(dmutextest.Nodes(2)[1:]))
	_, err := m.Detect()
	require.NoError(t, err)
	_, err = m.Handle(Message{Reply, 2, 1, 1, 1})
	require.NoError(t, err)
	require.True(t, m.Deadlocked())
	_, err = m.Handle(Message{Reply, 2, 1, 1, 1})
	require.ErrorIs(t, err, dmutex.ErrPeer)
}

// A declaration ends with the wait, and a probe of an earlier wait declares
// nothing in a later one.
func TestNextWait(t *testing.T) {
	m := newAnd(1, dmutextest.Nodes(3))
	declare := func() {
		_, err := m.Handle(Message{Probe, 3, 1, 1, 1})
		require.NoError(t, err)
	}
	require.NoError(t, m.Asked(3))
	require.NoError(t, m.Wait(dmutextest.Nodes(3)[1:]))
	_, err := m.Detect()
	require.NoError(t, err)
	declare()
	require.True(t, m.Deadlocked())
	require.NoError(t, m.Granted(2))
	require.True(t, m.Deadlocked(), "3 has not granted")
	require.NoError(t, m.Withdraw())
	require.False(t, m.Deadlocked())
	require.NoError(t, m.Wait(dmutextest.Nodes(2)[1:]))
	declare()
	require.False(t, m.Deadlocked())
}

// The caller may keep the output, and a clone shares nothing that changes.
func TestOutput(t *testing.T) {
	for _, born := range []func(dmutex.NodeID, []dmutex.NodeID) *Machine{newAnd, newOr} {
		m := born(1, dmutextest.Nodes(3))
		require.NoError(t, m.Wait(dmutextest.Nodes(3)[1:]))
		out, err := m.Detect()
		require.NoError(t, err)
		require.Len(t, out, 2)
		sent := out[0]
		c := m.Clone()
		before := text(t, m)
		require.Equal(t, before, text(t, c))
		_, err = c.Detect()
		require.NoError(t, err)
		require.NoError(t, c.Granted(2))
		require.Equal(t, before, text(t, m))
		require.NotEqual(t, before, text(t, c))
		_, err = m.Detect()
		require.NoError(t, err)
		require.Equal(t, sent, out[0])
	}
}

// No message makes a machine panic, and a refused message changes
// nothing.
func FuzzHandle(f *testing.F) {
	f.Add([]byte{1, 2, 1, 1, 1, 2, 3, 1, 1, 1})
	f.Add([]byte{2, 2, 1, 3, 4, 3, 3, 1, 3, 4, 3, 2, 1, 1, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, born := range []func(dmutex.NodeID, []dmutex.NodeID) *Machine{newAnd, newOr} {
			m := born(1, dmutextest.Nodes(4))
			require.NoError(t, m.Asked(2))
			for ; len(b) >= 5; b = b[5:] {
				if b[0]&16 != 0 && m.Wait(dmutextest.Nodes(4)[1:]) == nil {
					_, err := m.Detect()
					require.NoError(t, err)
				}
				msg := Message{Kind(b[0] & 3), dmutex.NodeID(b[1]), dmutex.NodeID(b[2]), dmutex.NodeID(b[3]), uint64(b[4])}
				before := text(t, m)
				out, err := m.Handle(msg)
				require.LessOrEqual(t, len(out), 3)
				if err != nil {
					require.ErrorIs(t, err, dmutex.ErrPeer)
					require.Equal(t, before, text(t, m))
				}
			}
		}
	})
}
