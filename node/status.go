package node

import (
	"iter"
	"time"

	"github.com/dmutex/dmutex"
)

// MutexStatus is how one node sees one lock.
type MutexStatus struct {
	Phase dmutex.Phase // of this node

	// Holder is who holds the lock, as far as this node knows, and None else.
	// Every node knows of itself. Of others it knows only where it has let them
	// in alone: that is so at the coordinator of package central, for which a
	// node holds from when it is granted until its release has arrived. With the
	// other algorithms nobody knows: that a request is the first, or has
	// somebody's vote, or that the token was sent to a node, does not say
	// whether it is in there now.
	Holder dmutex.NodeID

	Fence   uint64        // of this node's grant, 0 if it does not hold the lock
	Age     time.Duration // for how long it has been held here, or else for how long the first that waits here has waited; 0 if Idle
	Waiters int           // goroutines of this node that wait

	// WaitsFor is, if Waiting or if a request was withdrawn and has not had its
	// turn, whose answers the request lacks: a peer that does not answer is among
	// them. With the token algorithms that is everybody, or
	// whoever is next on the way, for nobody knows where the token is.
	WaitsFor []dmutex.NodeID

	Err error // why the lock is stopped, for as long as the group lasts; nil while it works
}

// Status returns how this node sees the lock now.
func (m *Mutex) Status() MutexStatus {
	m.shard.mu.Lock()
	defer m.shard.mu.Unlock()
	l := m.shard.locks.find(m.hash, m.name)
	if l == nil {
		return MutexStatus{}
	}
	return l.status()
}

func (l *lock) status() MutexStatus {
	st := MutexStatus{
		Phase:   l.machine.Phase(),
		Holder:  l.holder(),
		Fence:   l.machine.Fence(),
		Waiters: len(l.waiters()),
		Err:     l.broken(),
	}
	if st.Err == nil {
		st.WaitsFor = l.machine.WaitsFor(nil)
	}
	switch now := l.shard.node.now(); {
	case l.held != nil:
		st.Age = time.Duration(now - l.held.since)
	case len(l.waiters()) > 0:
		st.Age = time.Duration(now - l.waiters()[0].held.since)
	}
	return st
}

// Locks returns the locks in use as this node sees them, by name and in no
// order: those that are held, asked for or stopped here, and those with which
// it is busy on behalf of others. Each is as it was at one moment during the
// iteration; the loop may use the locks. It takes memory for a small part of
// the locks at a time.
func (n *Node) Locks() iter.Seq2[string, MutexStatus] {
	return func(yield func(string, MutexStatus) bool) {
		var names []string
		var states []MutexStatus
		for i := range n.locks {
			names, states = n.locks[i].inUse(names[:0], states[:0])
			for j, name := range names {
				if !yield(name, states[j]) {
					return
				}
			}
		}
	}
}

// inUse appends the locks of the shard that are not at rest.
func (s *shard) inUse(names []string, states []MutexStatus) ([]string, []MutexStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.locks.all() {
		if !l.atRest() {
			names, states = append(names, l.name), append(states, l.status())
		}
	}
	return names, states
}

// Usage sums up the locks of a node, for those who cannot look at each.
type Usage struct {
	Held       int           // locks that this node holds
	Waiting    int           // locks that it waits for
	Stopped    int           // locks that are stopped here, see [MutexStatus]; held ones count as Held too
	Waiters    int           // goroutines that wait for a lock
	OldestHold time.Duration // the highest Age of those held
	OldestWait time.Duration // the highest Age of those waited for
}

// Usage looks at every lock that the node remembers and sums them up.
func (n *Node) Usage() Usage {
	var u Usage
	for i := range n.locks {
		n.locks[i].addToUsage(&u)
	}
	return u
}

func (s *shard) addToUsage(u *Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.node.now()
	for l := range s.locks.all() {
		waiters := l.waiters()
		u.Waiters += len(waiters)
		switch {
		case l.held != nil:
			u.Held++
			u.OldestHold = max(u.OldestHold, time.Duration(now-l.held.since))
		case len(waiters) > 0:
			u.Waiting++
			u.OldestWait = max(u.OldestWait, time.Duration(now-waiters[0].held.since))
		}
		if l.broken() != nil {
			u.Stopped++
		}
	}
}

// atRest reports whether the lock is kept only for what it remembers.
func (l *lock) atRest() bool {
	if l.held != nil || l.line != nil {
		return false
	}
	_, _, fresh := l.forget()
	keeper, ok := l.machine.(dmutex.Keeper)
	return fresh || ok && keeper.Keeps()
}

// PeerStatus is how one node sees another member, and its session with it.
type PeerStatus struct {
	ID          dmutex.NodeID
	Incarnation uint64 // names the life of its process that was met last; 0 if none was
	Met         bool   // it was met, and need not be met again; Acquire waits for that
	Ready       bool   // it has met everybody itself; Acquire waits for that too
	Left        bool   // it has closed

	// Silent is since when nothing was heard of it; 0 if nothing ever was. An
	// idle group is silent: this is no failure detector.
	Silent time.Duration

	// Err is an ErrConfig if it was last heard to be configured differently, else nil.
	Err error

	Unacked  uint64 // messages that it has not acknowledged; if it has left, those that came too late for it
	Backlog  int    // their size in bytes: above 2 MiB, Acquire says ErrOverflow
	Resent   uint64 // frames sent to it again, since no acknowledgement came
	Repeated uint64 // frames received from it again

	// RoundTrip is, smoothed, from a frame to the acknowledgement of it, which
	// may wait up to 5 ms for something to travel with. 0 until measured.
	RoundTrip time.Duration
}

func (p *peer) status() PeerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	stats := p.session.Stats()
	var silent time.Duration
	if p.spoke != 0 {
		silent = time.Duration(max(p.node.now()-p.spoke, 1))
	}
	var err error
	if p.other != 0 {
		err = p.node.differs(p.other)
	}
	return PeerStatus{
		ID:          p.id,
		Incarnation: p.session.Peer(),
		Met:         p.met.Load(),
		Ready:       p.ready.Load(),
		Left:        p.left.Load(),
		Silent:      silent,
		Err:         err,
		Unacked:     p.session.Sent() - p.session.Acked(),
		Backlog:     p.session.Backlog(),
		Resent:      stats.Resent,
		Repeated:    stats.Repeated,
		RoundTrip:   time.Duration(stats.RoundTrip),
	}
}

// Status is how a node stands.
type Status struct {
	Err         error           // why nothing is granted: ErrClosed, a PeerError if the group is broken, or transport.ErrClosed; nil while all is well
	Incarnation uint64          // names this life of this process
	Peers       []PeerStatus    // the other members, ascending by ID
	Unmet       []dmutex.NodeID // members that are to be met; Acquire waits for them
	Unready     []dmutex.NodeID // members that have not yet met everybody themselves; Acquire waits for them too
	Left        []dmutex.NodeID // members that have closed
	Locks       int             // locks that this node remembers: those in use or stopped, a few that rest, and those of which the algorithm forgets nothing

	Granted  uint64               // locks acquired
	Sent     [dmutex.Kinds]uint64 // messages of the algorithm, by kind; over all nodes, Sent by Granted is the messages an entry
	Received [dmutex.Kinds]uint64
	Refused  uint64 // frames and messages that no correct peer sends

	Probes    uint64 // messages sent to find deadlocks, or sent on
	Deadlocks uint64 // waits at this node that ended in ErrDeadlock
}

// Status returns how the node stands now. Each number is exact, but they are
// not read at one instant.
func (n *Node) Status() Status {
	st := Status{Err: n.downReason(), Incarnation: n.incarnation, Refused: n.refused.Load(), Probes: n.probes.Load(), Deadlocks: n.deadlocks.Load()}
	for _, p := range n.peers {
		peer := p.status()
		st.Peers = append(st.Peers, peer)
		if !peer.Met {
			st.Unmet = append(st.Unmet, p.id)
		}
		if !peer.Ready {
			st.Unready = append(st.Unready, p.id)
		}
		if peer.Left {
			st.Left = append(st.Left, p.id)
		}
	}
	for i := range n.locks {
		n.locks[i].addTo(&st)
	}
	return st
}

func (s *shard) addTo(st *Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Locks += s.locks.count
	st.Granted += s.granted
	for k := range dmutex.Kinds {
		st.Sent[k] += s.sent[k]
		st.Received[k] += s.received[k]
	}
}
