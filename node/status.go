package node

import "github.com/dmutex/dmutex"

// MutexStatus is how one node sees one lock.
type MutexStatus struct {
	Phase   dmutex.Phase  // of this node
	Holder  dmutex.NodeID // who holds it; None if nobody does or the algorithm does not tell this node
	Fence   uint64        // of this node's grant, 0 if it does not hold the lock
	Waiters int           // goroutines of this node that wait
	Err     error         // why the lock is stopped, for as long as the group lasts; nil while it works
}

// Status returns how this node sees the lock now.
func (m *Mutex) Status() MutexStatus {
	m.shard.mu.Lock()
	defer m.shard.mu.Unlock()
	l := m.shard.locks.find(m.hash, m.name)
	if l == nil {
		return MutexStatus{}
	}
	return MutexStatus{
		Phase:   l.machine.Phase(),
		Holder:  l.holder(),
		Fence:   l.machine.Fence(),
		Waiters: len(l.waiters()),
		Err:     l.broken(),
	}
}

// Status is how a node stands.
type Status struct {
	Err     error           // why nothing is granted: ErrClosed, or a PeerError if the group is broken; nil while all is well
	Unmet   []dmutex.NodeID // members that were never met; Acquire waits for them
	Unready []dmutex.NodeID // members that have not yet met everybody themselves; Acquire waits for them too
	Left    []dmutex.NodeID // members that have closed
	Locks   int             // locks that this node remembers: those in use or stopped, a few that rest, and those of which the algorithm forgets nothing

	Granted  uint64               // locks acquired
	Sent     [dmutex.Kinds]uint64 // messages of the algorithm, by kind
	Received [dmutex.Kinds]uint64
	Refused  uint64 // frames and messages that no correct peer sends
}

// Status returns how the node stands now. Each number is exact, but they are
// not read at one instant.
func (n *Node) Status() Status {
	st := Status{Err: n.downReason(), Refused: n.refused.Load()}
	for _, p := range n.peers {
		if !p.met.Load() {
			st.Unmet = append(st.Unmet, p.id)
		}
		if !p.ready.Load() {
			st.Unready = append(st.Unready, p.id)
		}
		if p.left.Load() {
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
