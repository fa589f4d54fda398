package maekawa

import (
	"slices"

	"github.com/dmutex/dmutex"
)

// The arbiter's half of a machine.

// An entry is a request that waits for our vote.
type entry struct {
	request dmutex.Stamp
	told    bool // FAILED: that another goes before it
}

// request votes for r or queues it; a repeated or outdated REQUEST is ignored.
func (m *machine) request(r dmutex.Stamp) {
	switch {
	case m.vote.Clock == 0:
		m.grant(r)
		return
	case m.vote.Node == r.Node && m.vote.Clock >= r.Clock, m.waiting(r.Node) != 0:
		return
	}
	if at := m.insert(r, false); at > 0 || m.vote.Less(r) {
		m.fail(at)
		return
	}
	m.failDisplaced()
	m.inquire()
}

func (m *machine) grant(r dmutex.Stamp) {
	m.vote = r
	m.say(dmutex.Reply, r.Node, r)
}

// fail tells a request in the queue that another goes before it.
func (m *machine) fail(at int) {
	r := m.queue[at].request
	m.queue[at].told = true
	m.say(dmutex.Failed, r.Node, r)
}

// failDisplaced is rule (C): a newcomer has become the head of the queue.
func (m *machine) failDisplaced() {
	if len(m.queue) > 1 && !m.queue[1].told {
		m.fail(1)
	}
}

// inquire asks for the vote back, once.
func (m *machine) inquire() {
	if !m.asked {
		m.asked = true
		m.say(dmutex.Inquire, m.vote.Node, m.vote)
	}
}

func (m *machine) release(r dmutex.Stamp) {
	if r == m.vote {
		m.next()
	}
}

// yield takes the vote back from a request that continues to wait.
func (m *machine) yield(r dmutex.Stamp) {
	if r == m.vote {
		m.insert(r, true)
		m.next()
	}
}

func (m *machine) next() {
	m.vote, m.asked = dmutex.Stamp{}, false
	if len(m.queue) > 0 {
		r := m.queue[0].request
		m.queue = slices.Delete(m.queue, 0, 1)
		m.grant(r)
	}
}

// insert queues r and returns its place.
func (m *machine) insert(r dmutex.Stamp, told bool) int {
	at, _ := slices.BinarySearchFunc(m.queue, r, func(e entry, r dmutex.Stamp) int {
		return e.request.Compare(r)
	})
	m.queue = slices.Insert(m.queue, at, entry{r, told})
	return at
}

// waiting returns the number of a node's request in the queue, 0 if none.
func (m *machine) waiting(node dmutex.NodeID) uint64 {
	for _, e := range m.queue {
		if e.request.Node == node {
			return e.request.Clock
		}
	}
	return 0
}
