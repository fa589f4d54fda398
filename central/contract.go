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
	_ dmutex.Sharer      = (*machine)(nil)
	_ dmutex.Declarer    = (*machine)(nil)
)

func (m *machine) impossible(msg dmutex.Message) string {
	switch msg.Kind {
	case dmutex.Request, dmutex.Share, dmutex.Release:
		switch waits := m.waiting(msg.From); {
		case m.witnesses() && msg.From == m.coordinator:
		case !m.coordinates():
			return "this node is not the coordinator"
		case m.mayWithdraw(msg.From):
		case msg.Kind != dmutex.Release && waits != 0 && waits < msg.Attempt:
			return "the sender's last request still waits"
		case msg.Kind == dmutex.Release && waits == msg.Attempt:
			return "the sender was not granted it"
		}
	case dmutex.Grant, dmutex.Inquire:
		switch {
		case msg.From != m.coordinator:
			return "the sender is not the coordinator"
		case msg.Kind == dmutex.Inquire && msg.Attempt == m.Stamp().Clock && !m.Shared() && msg.Clock > 0:
			return "the request does not share, so there is only one"
		}
	case dmutex.Reply:
		switch {
		case !m.coordinates() || msg.From != m.witness:
			return "the sender is not this node's witness"
		case m.Pending() && m.Stamp().Clock == msg.Attempt && !m.asksWitness():
			return "the witness was not asked"
		}
	default:
		return "the central algorithm has no such message"
	}
	return ""
}

// mayWithdraw reports whether a node was told that its request in the queue keeps out nodes that share.
func (m *machine) mayWithdraw(node dmutex.NodeID) bool {
	return slices.ContainsFunc(m.queue(), func(a ask) bool { return a.Node == node && a.inquiries > 0 })
}

// WaitsFor implements [dmutex.Machine]: only the coordinator grants, and the witness agrees to
// the coordinator's own entry.
func (m *machine) WaitsFor(b []dmutex.NodeID) []dmutex.NodeID {
	switch {
	case !m.Pending():
	case !m.coordinates():
		b = append(b, m.coordinator)
	case m.asksWitness():
		b = append(b, m.witness)
	}
	return b
}

// asksWitness reports whether the coordinator's own pending request is granted but for the REPLY.
func (m *machine) asksWitness() bool { return place(m.granted(), m.Stamp()) >= 0 }

// Lends implements [dmutex.Lender]. Only the coordinator lends, and none while nodes share the lock.
func (m *machine) Lends() dmutex.NodeID {
	if !m.coordinates() || len(m.granted()) == 0 || m.granted()[0].shares {
		return dmutex.None
	}
	return m.granted()[0].Node
}

// Holder implements [dmutex.Coordinator]: the coordinator knows, and the holder itself.
func (m *machine) Holder() dmutex.NodeID {
	if m.Phase() == dmutex.Held && !m.Shared() {
		return m.Self()
	}
	return m.Lends()
}

// Excludes implements [dmutex.Excluder]: a node enters only if the coordinator has granted
// it the lock, and its RELEASE takes the grant back. The coordinator enters only while its
// witness remembers the request.
func (m *machine) Excludes(peer dmutex.NodeID) bool {
	theirs := func(g ask) bool { return g.Node == peer }
	return m.Site.Excludes(peer) || m.coordinates() && !slices.ContainsFunc(m.granted(), theirs) ||
		m.witnesses() && m.seen().Clock == 0 && peer == m.coordinator
}

// ExcludesAlone implements [dmutex.Sharer].
func (m *machine) ExcludesAlone(peer dmutex.NodeID) bool {
	return m.Site.ExcludesAlone(peer) || m.coordinates() && m.Lends() != peer ||
		m.witnesses() && (m.seen().Clock == 0 || m.seen().shares) && peer == m.coordinator
}

// Wanted implements [dmutex.Sharer].
func (m *machine) Wanted() bool { return m.inquiries%2 == 1 }

// Sharers implements [dmutex.Sharer]: the coordinator knows all, the others themselves.
func (m *machine) Sharers(b []dmutex.NodeID) []dmutex.NodeID {
	if !m.coordinates() {
		return m.Site.Sharers(b)
	}
	for i, g := range m.granted() { // a node's next request may have overtaken its RELEASE
		if g.shares && !slices.ContainsFunc(m.granted()[:i], func(o ask) bool { return o.Node == g.Node }) {
			b = append(b, g.Node)
		}
	}
	return b
}

// Forget implements [dmutex.Machine]. If no node has the grant, no node waits for it.
func (m *machine) Forget() (clock, known uint64, ok bool) {
	return m.Clock(), m.Known(), m.Idle() && m.has == 0
}

// Declare implements [dmutex.Declarer].
func (m *machine) Declare() string {
	switch {
	case m.rule.witnessed:
		return "central/1 witness"
	case m.rule.given != dmutex.None:
		return "central/1 coordinator " + m.rule.given.String()
	default:
		return "central/1"
	}
}

func (m *machine) AppendText(b []byte) ([]byte, error) {
	b = m.AppendSite(append(canon.Flag(b, "witnessed ", m.rule.witnessed), "central "...))
	b = canon.Number(b, " coordinator=", uint64(m.coordinator))
	for _, g := range m.granted() {
		switch {
		case m.witnesses(): // see below
		case g.shares:
			b = g.appendTo(append(b, " shares"...))
		default:
			b = g.AppendTo(append(b, " holder "...))
		}
	}
	for _, r := range m.queue() {
		b = r.appendTo(append(b, " queued"...))
	}
	b = canon.Number(b, " seen=", m.seen().Clock)
	b = canon.Flag(b, " seen-shared", m.seen().shares)
	return canon.Number(b, " inquiries=", m.inquiries), nil
}

func (r ask) appendTo(b []byte) []byte {
	b = r.Stamp.AppendTo(append(b, ' '))
	return canon.Number(canon.Flag(b, "-shared", r.shares), "-inquiries=", r.inquiries)
}

func (m *machine) Clone() dmutex.Machine {
	c := *m
	c.Site = m.Site.Clone()
	c.asks = slices.Clone(m.asks)
	return &c
}
