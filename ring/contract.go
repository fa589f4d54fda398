package ring

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
	"github.com/dmutex/dmutex/site"
)

// The rest of the contract of [dmutex.Machine].

var (
	_ dmutex.Keeper   = (*parked)(nil)
	_ dmutex.Excluder = (*parked)(nil)
	_ dmutex.Declarer = (*parked)(nil)
	_ dmutex.Keeper   = (*circulating)(nil)
	_ dmutex.Excluder = (*circulating)(nil)
	_ dmutex.Ticker   = (*circulating)(nil)
)

// impossible says why msg cannot come along the ring, and "" if it may.
func (t *seat) impossible(msg dmutex.Message) string {
	switch {
	case msg.From != t.before:
		return "the sender is not the predecessor in the ring"
	case msg.Kind == dmutex.Token && t.token:
		return "the token is here: there cannot be a second one"
	}
	return ""
}

func (m *parked) impossible(msg dmutex.Message) string {
	if why := m.seat.impossible(msg); why != "" {
		return why
	}
	switch {
	case msg.Kind != dmutex.Request && msg.Kind != dmutex.Token:
		return "the ring has no such message"
	case len(msg.Numbers) > 0:
		return "there are no numbers in the ring"
	case len(msg.Nodes) == 0:
		return "it names no node that wants the token"
	case msg.Kind == dmutex.Request && len(msg.Nodes) > 1:
		return "a WANT names one node"
	case msg.Kind == dmutex.Request && msg.Nodes[0] == m.Self() && msg.Attempt > m.Clock():
		return "it is about a request that was never made"
	}
	last := dmutex.None
	for _, node := range msg.Nodes {
		_, member := slices.BinarySearch(m.Members(), node)
		switch {
		case !member:
			return "it names a stranger"
		case node <= last:
			return "the names are not ascending"
		case msg.Kind == dmutex.Token && node == msg.From:
			return "the sender had the token and still wants it"
		}
		last = node
	}
	return ""
}

func (m *circulating) impossible(msg dmutex.Message) string {
	if why := m.seat.impossible(msg); why != "" {
		return why
	}
	if msg.Kind != dmutex.Token || len(msg.Nodes) > 0 || len(msg.Numbers) > 0 {
		return "in this ring there is only the token, and it carries no list"
	}
	return ""
}

// Excludes implements [dmutex.Excluder]: while the token is here, no other node can enter.
func (t *seat) Excludes(dmutex.NodeID) bool { return t.token }

// Keeps implements [dmutex.Keeper]: an idle node must not forget where the token is.
func (m *parked) Keeps() bool {
	return m.Idle() && len(m.wanters) == 0 && m.token != m.first
}

func (m *circulating) Keeps() bool { return m.Idle() }

// Forget implements [dmutex.Machine]. The node where the token rests must
// remember it, and the one where the token of a fresh group would begin must
// remember that it is elsewhere. The others may always forget an idle lock.
func (m *parked) Forget() (clock, known uint64, ok bool) {
	return m.Clock(), m.Known(), m.Idle() && len(m.wanters) == 0 && m.token == m.first
}

// Forget implements [dmutex.Machine]. It answers no: the token never comes to rest.
func (m *circulating) Forget() (clock, known uint64, ok bool) {
	return m.Clock(), m.Known(), false
}

// Declare implements [dmutex.Declarer]: members with another order would have another token.
func (m *parked) Declare() string {
	if !m.ordered {
		return "ring/1"
	}
	return string(canon.List(nil, "ring/1 order ", m.order))
}

// Fields is for [site.Complete].
func (m *parked) Fields(f *site.Fields) string {
	m.fields(f)
	f.Nodes("wanted", &m.wanters)
	return "ring"
}

// Fields is for [site.Complete].
func (m *circulating) Fields(f *site.Fields) string {
	m.fields(f)
	f.Number("rested", uint64(m.rested))
	return "ring"
}

func (t *seat) fields(f *site.Fields) {
	f.Number("after", uint64(t.after))
	f.Flag("token", t.token)
}
