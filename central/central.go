// Package central is the algorithm of the central coordinator: one node grants
// the lock to one request at a time, first come, first served.
//
// Tanenbaum and van Steen, "Distributed Systems", section "Mutual exclusion: a
// centralized algorithm". It is folklore; no paper claims it.
//
// # Theory of operation
//
// A node that wants the critical section sends REQUEST to the coordinator and
// enters when GRANT comes back; when it leaves it sends RELEASE. The
// coordinator grants at once if no node holds the lock, and queues the
// request otherwise. When RELEASE arrives, it grants the head of the queue.
// Any member may be the coordinator, and the coordinator may lock, too: every
// machine has the client's half, one of them also has the coordinator's half,
// and a node sends itself no messages.
//
// Mutual exclusion. The coordinator grants only when the last holder's RELEASE has arrived.
//
// Progress. Every GRANT is answered by a RELEASE, and then the head of the queue is
// granted. Requests are granted in the order in which they reach the coordinator.
//
// Order and count. The channels may reorder messages, but not repeat them. An
// entry costs exactly 3 messages, and none for the coordinator's own. The delay
// is two message hops when no other node is interested, two hops from a release
// to the next entry, and half of that where one end is the coordinator. A crash
// of the coordinator or of the holder stops all nodes. So does a crash of a
// client with a request, withdrawn or not, once its turn comes. A crash of any
// other client stops no other node.
//
// Every message names its request, so that an answer to an earlier request is
// ignored. Fences and canceled requests are as [site.Site] describes.
package central

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/site"
)

type machine struct {
	site.Site
	coordinator dmutex.NodeID

	// The coordinator's half; empty at the other nodes.
	holder dmutex.Stamp   // the request that was granted; zero if none
	queue  []dmutex.Stamp // the requests that wait, first come first, at most one a node
}

// New is a [dmutex.Algorithm]. [dmutex.Start.Home] is the coordinator.
func New(s dmutex.Start) (dmutex.Machine, error) { return newMachine(s, dmutex.None) }

// At returns the algorithm with the given coordinator, for all locks. While that is not a
// member, [dmutex.Start.Home] takes its place. All nodes of a group must give the same one.
func At(coordinator dmutex.NodeID) dmutex.Algorithm {
	return func(s dmutex.Start) (dmutex.Machine, error) {
		m, err := newMachine(s, coordinator)
		if err != nil {
			return nil, err
		}
		return &fixed{*m.(*machine), coordinator}, nil
	}
}

func newMachine(s dmutex.Start, coordinator dmutex.NodeID) (dmutex.Machine, error) {
	own, err := site.New(s)
	if err != nil {
		return nil, err
	}
	m := &machine{Site: own, coordinator: site.Home(s, coordinator)}
	if m.coordinates() && s.Holder != dmutex.None {
		m.holder = dmutex.Stamp{Clock: site.Carried, Node: s.Holder}
	}
	return m, nil
}

func (m *machine) coordinates() bool { return m.Self() == m.coordinator }

func (m *machine) Request() ([]dmutex.Message, error) {
	if fresh, err := m.Ask(); err != nil || !fresh {
		return nil, err
	}
	m.say(dmutex.Request, m.coordinator, m.Stamp())
	return m.Out(), nil
}

func (m *machine) Release() ([]dmutex.Message, error) {
	over, err := m.Leave()
	if err != nil {
		return nil, err
	}
	m.say(dmutex.Release, m.coordinator, over)
	return m.Out(), nil
}

func (m *machine) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if _, err := m.Check(msg, m.impossible); err != nil {
		return nil, err
	}
	m.Witness(0, msg.Fence)
	about := dmutex.Stamp{Clock: msg.Attempt, Node: msg.From}
	if msg.Kind == dmutex.Grant {
		about.Node = msg.To
	}
	m.hear(msg.Kind, about)
	return m.Out(), nil
}

func (m *machine) say(kind dmutex.Kind, to dmutex.NodeID, r dmutex.Stamp) {
	if to == m.Self() {
		m.hear(kind, r)
	} else {
		m.Send(kind, to, r.Clock)
	}
}

func (m *machine) hear(kind dmutex.Kind, r dmutex.Stamp) {
	switch kind {
	case dmutex.Request:
		m.request(r)
	case dmutex.Release:
		m.release(r)
	case dmutex.Grant:
		m.granted(r)
	}
}

// The client's half.

// granted enters if the GRANT is for the pending request.
func (m *machine) granted(r dmutex.Stamp) {
	if !m.Pending() || m.Stamp() != r {
		return
	}
	if withdrawn := m.Enter(); withdrawn {
		m.say(dmutex.Release, m.coordinator, r)
	}
}

// The coordinator's half.

// request grants or queues; a repeated or outdated REQUEST is ignored.
func (m *machine) request(r dmutex.Stamp) {
	switch {
	case m.holder.Clock == 0:
		m.grant(r)
	case m.holder.Node == r.Node && m.holder.Clock >= r.Clock, m.waiting(r.Node) != 0:
	default:
		m.queue = append(m.queue, r)
	}
}

// waiting returns the number of a node's request in the queue, 0 if none.
func (m *machine) waiting(node dmutex.NodeID) uint64 {
	for _, r := range m.queue {
		if r.Node == node {
			return r.Clock
		}
	}
	return 0
}

func (m *machine) release(r dmutex.Stamp) {
	if r != m.holder {
		return
	}
	m.holder = dmutex.Stamp{}
	if len(m.queue) > 0 {
		next := m.queue[0]
		m.queue = slices.Delete(m.queue, 0, 1)
		m.grant(next)
	}
}

func (m *machine) grant(r dmutex.Stamp) {
	m.holder = r
	m.say(dmutex.Grant, r.Node, r)
}
