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
// coordinator grants at once if nobody holds the lock, and queues the request
// otherwise; a RELEASE grants the head of the queue. Any member may be the
// coordinator, and it may itself lock: every machine plays the client, one of
// them also the coordinator, and what a node says to itself is not sent.
//
// Mutual exclusion. The coordinator grants only when the last holder's RELEASE
// is in.
//
// Progress. Every GRANT is answered by a RELEASE, and then the head of the
// queue goes. The order is that in which requests reach the coordinator, not
// that in which they were made.
//
// Order and count. The channels may reorder messages, but not repeat them. An
// entry costs exactly 3 messages, and none for the coordinator's own. The delay
// is two message hops when nobody else is interested, two hops from a release
// to the next entry, and half of that where one end is the coordinator. A crash
// of the coordinator, or of the holder, stops everybody; so does that of a
// client with a request, withdrawn or not, once its turn comes. One of any other
// client stops nobody else.
//
// Every message names its request, so that an answer to an earlier one is
// worth nothing; messages carry the highest fence known; a cancelled request
// runs its course as [dmutex.Site] tells.
package central

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
)

// Machine is one lock at one node. It implements [dmutex.Machine] and
// [dmutex.Lender].
type Machine struct {
	site        dmutex.Site
	coordinator dmutex.NodeID

	// The coordinator's half; empty at the other nodes.
	holder dmutex.Stamp // the request that was granted; zero if none
	*line               // nil until somebody has had to wait
}

// A line is those that wait.
type line struct {
	queue []dmutex.Stamp // at most one a node, first come first
}

// New returns the machine of a fresh lock, or one that [dmutex.Start.Holder]
// holds. The member with the lowest number is the coordinator. New has the
// shape of [dmutex.Algorithm].
func New(s dmutex.Start) (dmutex.Machine, error) {
	return newMachine(s, dmutex.None)
}

// At returns the algorithm with the given member as the coordinator. All nodes
// of a group must name the same one; a Start of which it is no member is
// refused with [dmutex.ErrMisuse].
func At(coordinator dmutex.NodeID) dmutex.Algorithm {
	return func(s dmutex.Start) (dmutex.Machine, error) {
		if !slices.Contains(s.Members, coordinator) {
			return nil, dmutex.Misuse("the coordinator " + coordinator.String() + " is not among Start.Members")
		}
		return newMachine(s, coordinator)
	}
}

func newMachine(s dmutex.Start, coordinator dmutex.NodeID) (dmutex.Machine, error) {
	site, err := dmutex.NewSite(s)
	if err != nil {
		return nil, err
	}
	if coordinator == dmutex.None {
		coordinator = slices.Min(s.Members)
	}
	m := &Machine{site: site, coordinator: coordinator}
	if m.coordinates() && s.Holder != dmutex.None {
		m.holder = dmutex.Stamp{Clock: dmutex.Carried, Node: s.Holder}
	}
	return m, nil
}

func (m *Machine) coordinates() bool { return m.site.Self() == m.coordinator }

// Request implements [dmutex.Machine].
func (m *Machine) Request() ([]dmutex.Message, error) {
	fresh, err := m.site.Request()
	if err != nil || !fresh {
		return nil, err
	}
	m.say(dmutex.Request, m.site.Stamp(), m.coordinator)
	return m.site.Out(), nil
}

// Cancel implements [dmutex.Machine].
func (m *Machine) Cancel() ([]dmutex.Message, error) {
	return nil, m.site.Cancel()
}

// Release implements [dmutex.Machine].
func (m *Machine) Release() ([]dmutex.Message, error) {
	r := m.site.Stamp()
	if err := m.site.Release(); err != nil {
		return nil, err
	}
	m.say(dmutex.Release, r, m.coordinator)
	return m.site.Out(), nil
}

// Handle implements [dmutex.Machine].
func (m *Machine) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if _, err := m.site.Check(msg); err != nil {
		return nil, err
	}
	if why := m.impossible(msg); why != "" {
		return nil, m.site.Refuse(msg, why)
	}
	m.site.Witness(0, msg.Fence)
	if msg.Kind == dmutex.Grant {
		m.hear(msg.Kind, dmutex.Stamp{Clock: msg.Attempt, Node: msg.To})
	} else {
		m.hear(msg.Kind, dmutex.Stamp{Clock: msg.Attempt, Node: msg.From})
	}
	return m.site.Out(), nil
}

// impossible says why no correct peer sends msg, and "" if one may.
func (m *Machine) impossible(msg dmutex.Message) string {
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
		switch {
		case msg.From != m.coordinator:
			return "the sender is not the coordinator"
		case msg.Attempt > m.site.Clock():
			return "it answers a request that was never made"
		}
	default:
		return "the central algorithm has no such message"
	}
	return ""
}

// waiting returns the number of a node's request in the queue, 0 if none.
func (m *Machine) waiting(node dmutex.NodeID) uint64 {
	if m.line == nil {
		return 0
	}
	for _, r := range m.queue {
		if r.Node == node {
			return r.Clock
		}
	}
	return 0
}

// say sends a message about request r, or hears it at once if it is for this
// node itself.
func (m *Machine) say(kind dmutex.Kind, r dmutex.Stamp, to dmutex.NodeID) {
	if to == m.site.Self() {
		m.hear(kind, r)
	} else {
		m.site.Send(kind, to, r.Clock)
	}
}

func (m *Machine) hear(kind dmutex.Kind, r dmutex.Stamp) {
	switch kind {
	case dmutex.Request: // the coordinator's half
		m.request(r)
	case dmutex.Release:
		m.release(r)
	case dmutex.Grant: // the client's half
		m.granted(r)
	}
}

// request grants or queues; a repeated or outdated REQUEST is ignored.
func (m *Machine) request(r dmutex.Stamp) {
	switch {
	case m.holder.Clock == 0:
		m.grant(r)
	case m.holder.Node == r.Node && m.holder.Clock >= r.Clock, m.waiting(r.Node) != 0:
	default:
		if m.line == nil {
			m.line = new(line)
		}
		m.queue = append(m.queue, r)
	}
}

// release ends the holder's critical section and lets the next one in.
func (m *Machine) release(r dmutex.Stamp) {
	if r != m.holder {
		return
	}
	m.holder = dmutex.Stamp{}
	if m.line != nil && len(m.queue) > 0 {
		next := m.queue[0]
		m.queue = slices.Delete(m.queue, 0, 1)
		m.grant(next)
	}
}

func (m *Machine) grant(r dmutex.Stamp) {
	m.holder = r
	m.say(dmutex.Grant, r, r.Node)
}

// granted enters if the GRANT is for our present request. For a withdrawn one
// the critical section is empty.
func (m *Machine) granted(r dmutex.Stamp) {
	if m.site.Pending() && m.site.Stamp() == r && !m.site.Enter() {
		m.say(dmutex.Release, r, m.coordinator)
	}
}

// Holder returns the node to which the coordinator has granted the lock. It is
// known at the coordinator, and to the holder itself; else None.
func (m *Machine) Holder() dmutex.NodeID {
	if m.site.Phase() == dmutex.Held {
		return m.site.Self()
	}
	return m.holder.Node
}

// WaitsFor implements [dmutex.Machine]: only the coordinator says yes.
func (m *Machine) WaitsFor(b []dmutex.NodeID) []dmutex.NodeID {
	if m.site.Pending() && !m.coordinates() {
		b = append(b, m.coordinator)
	}
	return b
}

// Lends implements [dmutex.Lender]. Only the coordinator does.
func (m *Machine) Lends() dmutex.NodeID { return m.holder.Node }

// Phase implements [dmutex.Machine].
func (m *Machine) Phase() dmutex.Phase { return m.site.Phase() }

// Pending implements [dmutex.Machine].
func (m *Machine) Pending() bool { return m.site.Pending() }

// Fence implements [dmutex.Machine].
func (m *Machine) Fence() uint64 { return m.site.Fence() }

// Forget implements [dmutex.Machine]. The queue is empty when nobody holds.
func (m *Machine) Forget() (clock, fence uint64, ok bool) {
	clock, fence, ok = m.site.Forget()
	return clock, fence, ok && m.holder.Clock == 0
}

// AppendText appends the canonical state: machines of equal text behave alike
// for ever. The error is always nil.
func (m *Machine) AppendText(b []byte) ([]byte, error) {
	b, err := m.site.AppendText(append(b, "central "...))
	b = append(b, " coordinator="...)
	b = strconv.AppendUint(b, uint64(m.coordinator), 10)
	if m.holder.Clock != 0 {
		b = m.holder.AppendTo(append(b, " holder "...))
	}
	if m.line == nil {
		return b, err
	}
	for _, r := range m.queue {
		b = r.AppendTo(append(b, " queued "...))
	}
	return b, err
}

// Clone returns an independent copy.
func (m *Machine) Clone() dmutex.Machine {
	c := *m
	c.site = m.site.Clone()
	if m.line != nil {
		c.line = &line{slices.Clone(m.queue)}
	}
	return &c
}
