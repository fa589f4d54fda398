package central

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
)

// The rest of the contract of [dmutex.Machine].

var (
	_ dmutex.Lender      = (*machine)(nil)
	_ dmutex.Coordinator = (*machine)(nil)
	_ dmutex.Excluder    = (*machine)(nil)
)

func (m *machine) impossible(msg dmutex.Message) string {
	switch msg.Kind {
	case dmutex.Request, dmutex.Release:
		switch waits := m.waiting(msg.From); {
		case !m.coordinates():
			return "this node is not the coordinator"
		case msg.Kind == dmutex.Request && waits != 0 && waits < msg.Attempt:
			return "the sender's last request still waits"
		case msg.Kind == dmutex.Release && waits == msg.Attempt:
			return "the sender was not granted it"
		}
	case dmutex.Grant:
		if msg.From != m.coordinator {
			return "the sender is not the coordinator"
		}
	default:
		return "the central algorithm has no such message"
	}
	return ""
}

// WaitsFor implements [dmutex.Machine]: only the coordinator grants.
func (m *machine) WaitsFor(b []dmutex.NodeID) []dmutex.NodeID {
	if m.Pending() && !m.coordinates() {
		b = append(b, m.coordinator)
	}
	return b
}

// Lends implements [dmutex.Lender]. Only the coordinator lends.
func (m *machine) Lends() dmutex.NodeID { return m.holder.Node }

// Holder implements [dmutex.Coordinator]: the coordinator knows, and the holder itself.
func (m *machine) Holder() dmutex.NodeID {
	if m.Phase() == dmutex.Held {
		return m.Self()
	}
	return m.holder.Node
}

// Excludes implements [dmutex.Excluder]: a node enters only if the coordinator has granted
// it the lock, and its RELEASE takes the grant back.
func (m *machine) Excludes(peer dmutex.NodeID) bool {
	return m.Site.Excludes(peer) || m.coordinates() && m.holder.Node != peer
}

// Forget implements [dmutex.Machine]. If no node has the grant, no node waits for it.
func (m *machine) Forget() (clock, known uint64, ok bool) {
	return m.Clock(), m.Known(), m.Idle() && m.holder.Clock == 0
}

func (m *machine) AppendText(b []byte) ([]byte, error) {
	b = m.AppendSite(append(b, "central "...))
	b = canon.Number(b, " coordinator=", uint64(m.coordinator))
	if m.holder.Clock != 0 {
		b = m.holder.AppendTo(append(b, " holder "...))
	}
	for _, r := range m.queue {
		b = r.AppendTo(append(b, " queued "...))
	}
	return b, nil
}

func (m *machine) Clone() dmutex.Machine {
	c := *m
	c.Site = m.Site.Clone()
	c.queue = slices.Clone(m.queue)
	return &c
}

// fixed is the machine of At. It is a [dmutex.Declarer], too.
type fixed struct {
	machine
	at dmutex.NodeID
}

func (m *fixed) Clone() dmutex.Machine { return &fixed{*m.machine.Clone().(*machine), m.at} }

// Declare implements [dmutex.Declarer].
func (m *fixed) Declare() string { return "central/1 coordinator " + m.at.String() }
