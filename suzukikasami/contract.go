package suzukikasami

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/site"
)

// The rest of the contract of [dmutex.Machine].

var (
	_ dmutex.Keeper   = (*machine)(nil)
	_ dmutex.Excluder = (*machine)(nil)
)

func (m *machine) impossible(msg dmutex.Message) string {
	switch {
	case msg.Kind != dmutex.Request && msg.Kind != dmutex.Token:
		return "Suzuki-Kasami has no such message"
	case msg.Kind == dmutex.Request:
		return ""
	case msg.Attempt == 0:
		return "it names no request"
	case msg.Attempt > m.Clock():
		return "it serves a request that was never made"
	case !m.serves(msg):
		return ""
	case len(msg.Numbers) != len(m.rn):
		return "LN does not have one number for each member"
	case msg.Numbers[m.Place()] != msg.Attempt:
		return "by LN it serves another request"
	}
	for i, node := range msg.Nodes {
		if node == m.Self() || m.place(node) < 0 || slices.Contains(msg.Nodes[:i], node) {
			return "Q is not a list of different other members"
		}
	}
	return ""
}

// Excludes implements [dmutex.Excluder]: while the token is here, no other node can enter.
func (m *machine) Excludes(dmutex.NodeID) bool { return m.token }

func (m *machine) Keeps() bool { return m.Idle() }

// Forget implements [dmutex.Machine]. The answer is always no: the numbers of
// all requests, and where the token is, must be remembered.
func (m *machine) Forget() (clock, known uint64, ok bool) {
	return m.Clock(), m.Known(), false
}

// Fields is for [site.Complete].
func (m *machine) Fields(f *site.Fields) string {
	f.Numbers("rn", &m.rn)
	f.Flag("token", m.token)
	f.Only(m.token)
	f.Numbers("ln", &m.ln)
	f.Nodes("q", &m.q)
	return "suzukikasami"
}
