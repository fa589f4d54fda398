// Package maekawa is Maekawa's algorithm: a node asks only a quorum, and
// enters when all nodes of the quorum have voted for it. Any two quorums
// share a node, and a node has one vote.
//
// Maekawa, "A √N Algorithm for Mutual Exclusion in Decentralized Systems", ACM
// TOCS 3(2), 1985. Sanders, "The Information Structure of Distributed Mutual
// Exclusion Algorithms", ACM TOCS 5(3), 1987, reported that its cure for
// deadlocks can itself deadlock; rule (C) below corrects that. The names REPLY,
// FAILED and YIELD are from textbooks; the paper says LOCKED, FAIL and RELINQUISH.
//
// # Theory of operation
//
// Every node plays two independent roles. As a requester it sends REQUEST to
// its quorum, enters when the whole quorum has sent REPLY, and sends RELEASE
// to the quorum when it leaves. As an arbiter it gives its one vote, by REPLY,
// to one request at a time, keeps the other requests in a queue, and gives the
// vote to the first of them when the vote comes back. Requests are ordered by
// stamp: by logical clock, then by node. A node sends itself no messages.
//
// So far this deadlocks: two requesters may each hold a vote that the other
// waits for. The cure is to let the later of two requests give way.
//
//   - An arbiter that receives a request which precedes the one with its vote
//     sends INQUIRE to the latter: can I have the vote back?
//   - A requester that cannot win for now, because some arbiter has sent FAILED
//     or has had its vote back, answers with YIELD, waits for that vote again,
//     and loses only time. A requester that may still win remembers the INQUIRE;
//     it answers with YIELD when it fails, or with RELEASE when it has won.
//   - An arbiter sends FAILED to every request that waits behind another: to a
//     new request that follows the one with the vote or one in the queue, and
//     (C) to the head of the queue when a new request displaces it, if it has
//     not been told yet.
//
// Rule (C) is the correction. Without it a displaced request may still hope to win, and
// keeps its votes: in the grid of four, 2 waits for arbiter 1, which waits for an answer
// from 3; 3 waits for arbiter 4, which has displaced it untold and waits for 2. By (C)
// arbiter 4 sends FAILED to 3, 3 yields to arbiter 1, and 2 enters. (See
// mutant-no-displaced-failed.txt and grid.txt in testdata.)
//
// M1. An arbiter has one vote: it votes again only when RELEASE or YIELD has brought it
// back.
//
// M2. A queued request that has not been told FAILED is the head of the queue
// and precedes the one with the vote, which has been sent INQUIRE.
//
// M3, mutual exclusion. Two nodes in the critical section would each have the vote of every
// node of its quorum; the quorums share one, which has voted twice.
//
// M4. The common arbiter of two successive entries hears the fence of the first by
// RELEASE and passes it on by REPLY: fences rise, without gaps.
//
// Progress. By M2 a request that waits and has not been sent FAILED waits for votes that
// later requests have and that were asked back. Of these requests, one that fails or has
// yielded yields; one that has all its votes enters and leaves; any other waits in turn,
// unfailed, for a vote that a still later request has. The chain ends, so the answer comes.
// For the smallest request of all, that applies to every vote. And each request becomes the
// smallest: a receiver catches up with the sender's clock, so that once a request has
// reached its arbiters, every other node enters at most twice before it.
//
// Order and count. Let K be the size of a quorum that contains its own node. An entry costs
// 3(K-1) messages when no other node is interested. Under contention the arrival of a
// REQUEST causes at most one of: FAILED to itself; FAILED to the request that it displaces;
// or INQUIRE, with its YIELD and a second REPLY. So the mean is at most 6(K-1). Of the runs
// explored the worst costs 4.5(K-1) an entry, and a random load about 4(K-1):
// testdata/messages.txt. (The paper's bound of 5(K-1) is not proved for the corrected
// rules.) The delay is two message hops when no other node is interested, two from a
// release to the next entry, or up to four if a vote has to be asked back, and one if the
// arbiter between is one of the two. The channels must not repeat messages. They may
// reorder them, though the paper's may not: an INQUIRE that overtakes its REPLY is
// remembered.
//
// Crashes. A node that stops as an arbiter stops the nodes whose quorums it is in. The
// others go on until one of those asks: it gets and keeps the votes of the rest of its
// quorum, because no arbiter tells it that it fails, and that stops all nodes. So does a
// node that stops with a request, pending or granted.
//
// Departures from the paper: (C); every message names its request, so that an
// outdated one is ignored; quorums need not be of one size, nor contain their own
// node; fences and canceled requests as [site.Site] describes.
package maekawa

import (
	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/site"
)

type machine struct {
	site.Site
	quorums assignment // of all nodes

	// The requester's half.
	quorum  []dmutex.NodeID // the arbiters that we ask, ascending
	ballots []ballot        // what each of them has said to our pending request

	// The arbiter's half.
	vote  dmutex.Stamp // the request that has our vote; zero if none
	asked bool         // INQUIRE was sent for this vote, for a request that waits
	queue []entry      // the requests that wait for the vote in their order, at most one a node
}

func (m *machine) Request() ([]dmutex.Message, error) {
	if fresh, err := m.Ask(dmutex.Request); err != nil || !fresh {
		return nil, err
	}
	m.sayAll(dmutex.Request, m.Stamp())
	return m.Out(), nil
}

func (m *machine) Release() ([]dmutex.Message, error) {
	over, err := m.Leave()
	if err != nil {
		return nil, err
	}
	m.sayAll(dmutex.Release, over)
	return m.Out(), nil
}

func (m *machine) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if _, err := m.Check(msg, m.impossible); err != nil {
		return nil, err
	}
	m.Witness(max(msg.Attempt, msg.Clock), msg.Fence)
	m.hear(msg.Kind, msg.From, about(msg))
	return m.Out(), nil
}

// about returns the request that a message is about: the receiver's if an arbiter speaks.
func about(msg dmutex.Message) dmutex.Stamp {
	switch msg.Kind {
	case dmutex.Reply, dmutex.Failed, dmutex.Inquire:
		return dmutex.Stamp{Clock: msg.Attempt, Node: msg.To}
	default:
		return dmutex.Stamp{Clock: msg.Attempt, Node: msg.From}
	}
}

func (m *machine) sayAll(kind dmutex.Kind, r dmutex.Stamp) {
	for _, k := range m.quorum {
		m.say(kind, k, r)
	}
}

func (m *machine) say(kind dmutex.Kind, to dmutex.NodeID, r dmutex.Stamp) {
	if to == m.Self() {
		m.hear(kind, to, r)
	} else {
		m.Send(kind, to, r.Clock).Clock = m.Clock()
	}
}

func (m *machine) hear(kind dmutex.Kind, from dmutex.NodeID, r dmutex.Stamp) {
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
