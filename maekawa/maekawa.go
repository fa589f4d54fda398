// Package maekawa is Maekawa's algorithm: ask not everybody but a quorum, and
// enter when all of it has voted for you. Any two quorums share a node, and a
// node has one vote.
//
// Maekawa, "A √N Algorithm for Mutual Exclusion in Decentralized Systems", ACM
// TOCS 3(2), 1985. Sanders, "The Information Structure of Distributed Mutual
// Exclusion Algorithms", ACM TOCS 5(3), 1987, reported that its cure for
// deadlocks can itself deadlock; rule (C) below mends that. Of the names of the
// messages, REPLY, FAILED and YIELD are the textbooks'; the paper says LOCKED,
// FAIL and RELINQUISH.
//
// # Theory of operation
//
// Every node plays two roles that know nothing of each other. As a requester
// it sends REQUEST to its quorum, enters when all of it has sent REPLY, and
// sends RELEASE to all of it when it leaves. As an arbiter it gives its one
// vote, by REPLY, to one request at a time, keeps the others in a queue, and
// when the vote comes back gives it to the first of them. Requests are ordered
// by stamp: by logical clock, then by node. What a node says to itself is not
// sent.
//
// So far this deadlocks: two requesters may each hold a vote that the other
// waits for. The cure is to let the later of two requests give way.
//
//   - An arbiter that receives a request which precedes the one with its vote
//     sends INQUIRE to the latter: can I have the vote back?
//   - A requester that cannot win for now, because some arbiter has sent FAILED
//     or has had its vote back, answers with YIELD, waits for that vote again,
//     and loses nothing but time. One that may still win remembers the INQUIRE;
//     it answers with YIELD when it fails, or with RELEASE when it has won.
//   - An arbiter sends FAILED to every request that waits behind another: to a
//     newcomer that follows the one with the vote or one in the queue, and
//     (C) to the head of the queue that a newcomer displaces, if it has not
//     been told yet.
//
// Rule (C) is the correction. Without it a displaced request believes that it
// may still win and sits on its votes. In the grid of four, quorums {1,2,3},
// {1,2,4}, {1,3,4} and {2,3,4}, let 2, 3 and 4 ask at the same time, each with
// its own vote at once. Arbiter 1 votes for 3, then hears 2 and sends INQUIRE
// to 3, which remembers it: nobody has failed 3. Arbiter 4 has voted for
// itself; it hears 3, queues it as the head and asks itself back; then it hears
// 2, which displaces 3 untold. Arbiter 2 fails 4; so 4 yields, and arbiter 4
// votes for 2. Arbiter 3 fails 4. Now 2 waits for arbiter 1, which waits for 3
// to answer; 3 waits for arbiter 4, which waits for 2. The paper's own rules
// end here; by (C) arbiter 4 sends FAILED to 3, 3 yields to arbiter 1, and 2
// enters. (The run and its mending: mutant-no-displaced-failed.txt and grid.txt
// in testdata.)
//
// M1. An arbiter has one vote: it votes again only when RELEASE or YIELD has
// brought the vote back.
//
// M2. A queued request that has not been told FAILED is the head of the queue
// and precedes the one with the vote, which has been sent INQUIRE.
//
// M3, mutual exclusion. Two nodes in the critical section would each have the
// vote of every node of its quorum; the quorums share one, which has voted
// twice.
//
// M4. The common arbiter of two successive entries hears of the first one's
// fence by RELEASE and passes it on by REPLY: fences rise, and without gaps.
//
// Progress. By M2 a request that waits and was nowhere failed waits for votes
// that later requests have and that were asked back. Whichever of those fails,
// or has yielded, yields; one that has all its votes enters and leaves; any
// other waits in turn, unfailed, for a vote that a still later request has. The
// chain ends, so the answer comes. For the smallest request of all this means
// every vote. And a request becomes the smallest: messages carry the sender's
// clock and a receiver catches up, so that once a request has reached its
// arbiters, every other node enters at most twice before it.
//
// Order and count. Let K be the size of a quorum that contains its own node. An
// entry costs 3(K-1) messages when nobody else is interested. Under contention
// the arrival of a REQUEST causes at most one of: FAILED to itself; FAILED to
// the request that it displaces; or INQUIRE, with its YIELD and a second REPLY.
// So the mean is at most 6(K-1). Of the runs explored the worst costs 4.5(K-1)
// an entry, and a random load about 4(K-1): testdata/messages.txt. (The paper's
// bound of 5(K-1) is not proved for the corrected rules.) The delay is two
// message hops when nobody else is interested, two from a release to the next
// entry, and one if the arbiter between is one of the two. (Up to four were seen
// where a request was made just before the release and a vote had to be asked
// back.) The channels may
// reorder messages, though the paper's may not: every message names its request,
// and an INQUIRE that overtakes its REPLY is remembered. They must not repeat
// them. In the groups explored, at most 6 were on their way from one node to
// another.
//
// Crashes. A node that stops as an arbiter stops those whose quorums it is in.
// The others go on until one of those asks: it gets and keeps the votes of the
// rest of its quorum, for nobody tells it that it fails, and that stops
// everybody. So does a node that stops with a request of its own, pending or
// granted.
//
// Departures from the paper: (C); every message names the request that it is
// about, so that an outdated one is worth nothing; quorums need not be of one
// size, nor contain their own node; messages carry the highest fence known; a
// cancelled request runs its course as [dmutex.Site] tells.
package maekawa

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
)

// Machine is one lock at one node. It implements [dmutex.Machine] and
// [dmutex.Lender].
type Machine struct {
	site     dmutex.Site
	vote     dmutex.Stamp // the request that has our vote; zero if none
	*contest              // nil at rest: we have no pending request, and none waits for our vote; see rest.go
}

// A contest is what is said about requests that are not granted yet.
type contest struct {
	// The requester's half.
	ballots []ballot // what each of our quorum has said to our pending request

	// The arbiter's half.
	asked bool    // INQUIRE was sent for this vote, for one that waits
	queue []entry // the requests that wait for the vote in their order, at most one a node
}

// A ballot is what one arbiter has said to our pending request.
type ballot struct {
	locked   bool // we have its vote
	failed   bool // another request goes before ours there
	yielded  bool // it has had its vote back
	inquired bool // it asked for its vote back, and we have not answered
}

// An entry is a request that waits for our vote.
type entry struct {
	request dmutex.Stamp
	told    bool // that another goes before it
}

// Request implements [dmutex.Machine].
func (m *Machine) Request() ([]dmutex.Message, error) {
	fresh, err := m.site.Request()
	if err != nil || !fresh {
		return nil, err
	}
	m.wake()
	defer m.rest()
	m.sayAll(dmutex.Request, m.site.Stamp())
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
	m.wake()
	defer m.rest()
	m.sayAll(dmutex.Release, r)
	return m.site.Out(), nil
}

// Handle implements [dmutex.Machine].
func (m *Machine) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if _, err := m.site.Check(msg); err != nil {
		return nil, err
	}
	m.wake()
	defer m.rest()
	if why := m.impossible(msg); why != "" {
		return nil, m.site.Refuse(msg, why)
	}
	m.site.Witness(max(msg.Attempt, msg.Clock), msg.Fence)
	m.hear(msg.Kind, msg.From, about(msg))
	return m.site.Out(), nil
}

// about returns the request that a message is about: the sender's if a
// requester speaks, the receiver's if an arbiter does.
func about(msg dmutex.Message) dmutex.Stamp {
	switch msg.Kind {
	case dmutex.Reply, dmutex.Failed, dmutex.Inquire:
		return dmutex.Stamp{Clock: msg.Attempt, Node: msg.To}
	default:
		return dmutex.Stamp{Clock: msg.Attempt, Node: msg.From}
	}
}

// impossible says why no correct peer sends msg, and "" if one may.
func (m *Machine) impossible(msg dmutex.Message) string {
	r := about(msg)
	waits := m.waiting(msg.From)
	_, arbiter := slices.BinarySearch(m.quorum(), msg.From)
	switch msg.Kind {
	case dmutex.Request:
		if waits != 0 && waits < r.Clock {
			return "the sender's last request still waits"
		}
	case dmutex.Release:
		if waits == r.Clock {
			return "the sender was not granted it"
		}
	case dmutex.Yield:
		switch {
		case r == m.vote && !m.asked:
			return "nobody asked for the vote back"
		case r == m.vote && waits != 0:
			return "the sender has a later request"
		}
	case dmutex.Reply, dmutex.Failed, dmutex.Inquire:
		switch {
		case !arbiter:
			return "the sender is not in this node's quorum"
		case r.Clock > m.site.Clock():
			return "it answers a request that was never made"
		}
	default:
		return "Maekawa's algorithm has no such message"
	}
	return ""
}

// sayAll sends a message about our request r to the quorum.
func (m *Machine) sayAll(kind dmutex.Kind, r dmutex.Stamp) {
	for _, k := range m.quorum() {
		m.say(kind, k, r)
	}
}

// say sends a message about request r, or hears it at once if it is for this
// node itself.
func (m *Machine) say(kind dmutex.Kind, to dmutex.NodeID, r dmutex.Stamp) {
	if to == m.site.Self() {
		m.hear(kind, to, r)
		return
	}
	m.site.Send(kind, to, r.Clock).Clock = m.site.Clock()
}

func (m *Machine) hear(kind dmutex.Kind, from dmutex.NodeID, r dmutex.Stamp) {
	switch kind {
	case dmutex.Reply, dmutex.Failed, dmutex.Inquire:
		m.answer(kind, from, r)
	case dmutex.Request:
		m.request(r)
	case dmutex.Release:
		m.release(r)
	case dmutex.Yield:
		m.yield(r)
	}
}

// The requester's half.

// answer notes what an arbiter says to our pending request. Said to an earlier
// one it is void; and an INQUIRE that finds us in the critical section is
// answered by the RELEASE.
func (m *Machine) answer(kind dmutex.Kind, from dmutex.NodeID, r dmutex.Stamp) {
	if !m.site.Pending() || r != m.site.Stamp() {
		return
	}
	k, _ := slices.BinarySearch(m.quorum(), from)
	b := &m.ballots[k]
	switch kind {
	case dmutex.Reply:
		b.locked, b.failed, b.yielded = true, false, false
	case dmutex.Failed:
		b.failed = true
	case dmutex.Inquire:
		b.inquired = true
	}
	if m.won() {
		m.enter()
	} else if m.lost() {
		m.giveWay()
	}
}

// won reports whether we have every vote.
func (m *Machine) won() bool {
	return !slices.ContainsFunc(m.ballots, func(b ballot) bool { return !b.locked })
}

// lost reports whether we cannot win for now.
func (m *Machine) lost() bool {
	return slices.ContainsFunc(m.ballots, func(b ballot) bool { return b.failed || b.yielded })
}

// giveWay gives back the votes that were asked back.
func (m *Machine) giveWay() {
	for k, arbiter := range m.quorum() {
		if b := &m.ballots[k]; b.locked && b.inquired {
			b.locked, b.inquired, b.yielded = false, false, true
			m.say(dmutex.Yield, arbiter, m.site.Stamp())
		}
	}
}

// enter takes the lock. For a withdrawn request the critical section is empty.
func (m *Machine) enter() {
	r := m.site.Stamp()
	clear(m.ballots)
	if !m.site.Enter() {
		m.sayAll(dmutex.Release, r)
	}
}

// The arbiter's half.

// request votes for r or queues it; a repeated or outdated REQUEST is ignored.
func (m *Machine) request(r dmutex.Stamp) {
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

// release takes the vote back from one who has left.
func (m *Machine) release(r dmutex.Stamp) {
	if r == m.vote {
		m.next()
	}
}

// yield takes the vote back from one who waits on.
func (m *Machine) yield(r dmutex.Stamp) {
	if r == m.vote {
		m.insert(r, true)
		m.next()
	}
}

// next gives the vote to the first in the queue.
func (m *Machine) next() {
	m.vote, m.asked = dmutex.Stamp{}, false
	if len(m.queue) > 0 {
		r := m.queue[0].request
		m.queue = slices.Delete(m.queue, 0, 1)
		m.grant(r)
	}
}

func (m *Machine) grant(r dmutex.Stamp) {
	m.vote = r
	m.say(dmutex.Reply, r.Node, r)
}

// fail tells a request in the queue that another goes before it.
func (m *Machine) fail(at int) {
	r := m.queue[at].request
	m.queue[at].told = true
	m.say(dmutex.Failed, r.Node, r)
}

// failDisplaced is rule (C): a newcomer has become the head of the queue.
func (m *Machine) failDisplaced() {
	if len(m.queue) > 1 && !m.queue[1].told {
		m.fail(1)
	}
}

// inquire asks for the vote back, once.
func (m *Machine) inquire() {
	if !m.asked {
		m.asked = true
		m.say(dmutex.Inquire, m.vote.Node, m.vote)
	}
}

// insert queues r and returns its place.
func (m *Machine) insert(r dmutex.Stamp, told bool) int {
	at, _ := slices.BinarySearchFunc(m.queue, r, func(e entry, r dmutex.Stamp) int {
		return e.request.Compare(r)
	})
	m.queue = slices.Insert(m.queue, at, entry{r, told})
	return at
}

// waiting returns the number of a node's request in the queue, 0 if none.
func (m *Machine) waiting(node dmutex.NodeID) uint64 {
	for _, e := range m.queue {
		if e.request.Node == node {
			return e.request.Clock
		}
	}
	return 0
}

// WaitsFor implements [dmutex.Machine]: the arbiters whose vote is missing. One of
// them, or this node itself, has voted for whoever is in the critical section.
func (m *Machine) WaitsFor(b []dmutex.NodeID) []dmutex.NodeID {
	if !m.site.Pending() {
		return b
	}
	for k, arbiter := range m.quorum() {
		if !m.ballots[k].locked && arbiter != m.site.Self() {
			b = append(b, arbiter)
		}
	}
	return b
}

// Lends implements [dmutex.Lender]: it returns who has the vote.
func (m *Machine) Lends() dmutex.NodeID { return m.vote.Node }

// Phase implements [dmutex.Machine].
func (m *Machine) Phase() dmutex.Phase { return m.site.Phase() }

// Pending implements [dmutex.Machine].
func (m *Machine) Pending() bool { return m.site.Pending() }

// Fence implements [dmutex.Machine].
func (m *Machine) Fence() uint64 { return m.site.Fence() }

// Forget implements [dmutex.Machine]. The queue is empty when nobody has the
// vote.
func (m *Machine) Forget() (clock, fence uint64, ok bool) {
	clock, fence, ok = m.site.Forget()
	return clock, fence, ok && m.vote.Clock == 0
}

// AppendText appends the canonical state: machines of equal text behave alike
// for ever. The error is always nil.
func (m *Machine) AppendText(b []byte) ([]byte, error) {
	b, err := m.site.AppendText(append(b, "maekawa "...))
	c := m.contest
	if c == nil {
		c = m.newContest()
	}
	for k, arbiter := range m.quorum() {
		b = strconv.AppendUint(append(b, " arbiter "...), uint64(arbiter), 10)
		b = appendFlag(b, " locked", c.ballots[k].locked)
		b = appendFlag(b, " failed", c.ballots[k].failed)
		b = appendFlag(b, " yielded", c.ballots[k].yielded)
		b = appendFlag(b, " inquired", c.ballots[k].inquired)
	}
	if m.vote.Clock != 0 {
		b = m.vote.AppendTo(append(b, " vote "...))
		b = appendFlag(b, " asked", c.asked)
	}
	for _, e := range c.queue {
		b = e.request.AppendTo(append(b, " queued "...))
		b = appendFlag(b, " told", e.told)
	}
	return b, err
}

func appendFlag(b []byte, name string, set bool) []byte {
	if set {
		b = append(b, name...)
	}
	return b
}

// Clone returns an independent copy.
func (m *Machine) Clone() dmutex.Machine {
	c := *m
	c.site = m.site.Clone()
	if m.contest != nil {
		c.contest = &contest{slices.Clone(m.ballots), m.asked, slices.Clone(m.queue)}
	}
	return &c
}
