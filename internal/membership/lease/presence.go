package lease

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/membership"
)

// A presence is who of the other members is here, and from when on a silent one is to be excluded.
// It is policy: it decides when, and never whether it is safe.
type presence struct {
	peers []peer // the other members of the view
}

// A peer is what is known of another member.
type peer struct {
	node   dmutex.NodeID
	life   uint64
	here   bool  // it was met, and is not lost since
	dead   bool  // there is evidence that its process has ended, and it was not met since
	proved bool  // the evidence is a proof
	since  int64 // when it was met or lost last
	awayAt int64 // if it is not here: from when on its silence counts; never if it does not yet

	heard uint64 // the last view that it has spoken of
}

// peer returns what is known of a node, nil if it is not another member.
func (q *presence) peer(node dmutex.NodeID) *peer {
	if i := slices.IndexFunc(q.peers, func(p peer) bool { return p.node == node }); i >= 0 {
		return &q.peers[i]
	}
	return nil
}

// adopt makes the other members of a view the peers.
func (q *presence) adopt(now int64, v *membership.View, self dmutex.NodeID) {
	q.peers = slices.DeleteFunc(q.peers, func(p peer) bool { return !v.Has(p.node, p.life) })
	for _, who := range v.Members {
		if who.Node != self && q.peer(who.Node) == nil {
			q.peers = append(q.peers, peer{node: who.Node, life: who.Life, since: now, awayAt: now})
		}
	}
}

// meets notes that a life was met, and reports whether it is a peer. One that is proved to be dead is
// never met again.
func (q *presence) meets(now int64, node dmutex.NodeID, life uint64) bool {
	p := q.peer(node)
	if p == nil || p.life != life || p.proved {
		return false
	}
	p.here, p.dead, p.since = true, false, now
	return true
}

// loses notes that a peer is gone, and reports whether it was here. Its silence does not count before
// the store has answered.
func (q *presence) loses(now int64, node dmutex.NodeID) bool {
	p := q.peer(node)
	if p == nil || !p.here {
		return false
	}
	p.here, p.since, p.awayAt = false, now, due.Never
	return true
}

// buries notes the evidence that the process of a peer has ended.
func (q *presence) buries(now int64, node dmutex.NodeID, proved bool) {
	if p := q.peer(node); p != nil {
		if p.proved = p.proved || proved; !p.dead {
			p.here, p.dead, p.since, p.awayAt = false, true, now, now
		}
	}
}

// answered notes that the store has answered what was asked at the time sent. From then on the silence
// of a peer counts: before, this life may have been cut off from both.
func (q *presence) answered(now, sent int64) {
	for i := range q.peers {
		if p := &q.peers[i]; !p.here && p.awayAt == due.Never && p.since <= sent {
			p.awayAt = now
		}
	}
}

// unanswered notes that the store does not answer: this life may be cut off from the members, too.
func (q *presence) unanswered() {
	for i := range q.peers {
		q.peers[i].awayAt = due.Never
	}
}

// away returns how many peers are not here.
func (q *presence) away() (n int64) {
	for i := range q.peers {
		if !q.peers[i].here {
			n++
		}
	}
	return n
}

// rank is how many of the members that are here may change the record before this one.
func (q *presence) rank(self dmutex.NodeID) (rank int64) {
	for i := range q.peers {
		if p := &q.peers[i]; p.node < self && p.here {
			rank++
		}
	}
	return rank
}

// excludeAt returns when to exclude a peer for what is known of its process, never if there is no
// reason: at once if it has ended by all evidence, and else after a grace for each that is away, up
// to three. A life that has not acted yet, a novice, gives one more.
func (q *presence) excludeAt(p *peer, grace int64, novice bool) int64 {
	switch {
	case p.dead:
		return p.since
	case p.here || p.awayAt == due.Never:
		return due.Never
	}
	times := q.away()
	if novice {
		times++
	}
	return p.awayAt + min(times, 3)*grace
}
