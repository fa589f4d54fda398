package lamport

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/site"
)

// The rest of the contract of [dmutex.Machine].

var _ dmutex.Sharer = (*machine)(nil)

func (m *machine) impossible(msg dmutex.Message) string {
	j, _ := slices.BinarySearch(m.Peers(), msg.From)
	switch msg.Kind {
	case dmutex.Request, dmutex.Share:
		switch {
		case msg.Clock != msg.Attempt:
			return "a request is sent at the time that it is stamped with"
		case m.queue[j] != 0 && m.queue[j] < msg.Attempt:
			return "the sender's last request is still in the queue"
		}
	case dmutex.Reply, dmutex.Release:
		if msg.Clock <= msg.Attempt {
			return "it is not later than the request that it is about"
		}
	default:
		return "Lamport's algorithm has no such message"
	}
	return ""
}

// WaitsFor implements [dmutex.Machine]: the peers that have sent nothing later, and
// those ahead in the queue. The holder is one of these.
func (m *machine) WaitsFor(b []dmutex.NodeID) []dmutex.NodeID {
	if !m.Pending() {
		return b
	}
	for j, peer := range m.Peers() {
		if m.keepsOut(j) {
			b = append(b, peer)
		}
	}
	return b
}

// Wanted implements [dmutex.Sharer].
func (m *machine) Wanted() bool {
	for j := range m.Peers() {
		if m.conflicts(j) {
			return true
		}
	}
	return false
}

// Forget implements [dmutex.Machine]. What came before the next request is not later.
func (m *machine) Forget() (clock, known uint64, ok bool) {
	others := slices.ContainsFunc(m.queue, func(request uint64) bool { return request != 0 })
	return m.Clock(), m.Known(), m.Idle() && !others
}

// Fields is for [site.Complete].
func (m *machine) Fields(f *site.Fields) string {
	f.Times("queued", &m.queue)
	f.Set("shares", &m.shares)
	f.Only(m.Pending())
	f.Set("later", &m.later)
	return "lamport"
}
