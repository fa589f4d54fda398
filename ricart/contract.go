package ricart

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/site"
)

// The rest of the contract of [dmutex.Machine].

var (
	_ dmutex.Keeper = (*carvalho)(nil)
	_ dmutex.Sharer = (*machine)(nil)
)

func (m *core) impossible(msg dmutex.Message) string {
	if msg.Kind != dmutex.Request && msg.Kind != dmutex.Reply {
		return "Ricart-Agrawala has no such message"
	}
	return ""
}

func (m *machine) impossible(msg dmutex.Message) string {
	switch {
	case msg.Kind == dmutex.Inquire && msg.Attempt == m.Stamp().Clock && m.Shared():
		return "the request shares"
	case msg.Kind == dmutex.Share || msg.Kind == dmutex.Inquire || msg.Kind == dmutex.Release:
		return ""
	}
	return m.core.impossible(msg)
}

// WaitsFor implements [dmutex.Machine]: the peers whose REPLY is missing, which is none
// unless a request is pending. The holder has not sent it.
func (m *core) WaitsFor(b []dmutex.NodeID) []dmutex.NodeID {
	for j, peer := range m.Peers() {
		if m.awaiting[j] {
			b = append(b, peer)
		}
	}
	return b
}

// Wanted implements [dmutex.Sharer]: a REPLY is deferred.
func (m *machine) Wanted() bool {
	return slices.ContainsFunc(m.deferred, func(t uint64) bool { return t != 0 })
}

// Keeps implements [dmutex.Keeper]: without its permissions an idle node has to ask again.
func (m *carvalho) Keeps() bool { return m.Idle() && slices.Contains(m.kept, true) }

// Forget implements [dmutex.Machine]. An idle node owes no node a REPLY.
func (m *core) Forget() (clock, known uint64, ok bool) {
	return m.Clock(), m.Known(), m.Idle()
}

// fields are those of the algorithm itself.
func (m *core) fields(f *site.Fields) {
	f.Set("awaiting", &m.awaiting)
	f.Times("deferred", &m.deferred)
}

// Fields is for [site.Complete].
func (m *machine) Fields(f *site.Fields) string {
	m.fields(f)
	f.Set("inquires", &m.inquires)
	return "ricart"
}

// Fields is for [site.Complete].
func (m *carvalho) Fields(f *site.Fields) string {
	m.fields(f)
	f.Set("kept", &m.kept)
	return "carvalho ricart"
}
