package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/hold"
)

// A Holder is who held a lock, and for how long, when it was asked.
type Holder struct {
	Node  dmutex.NodeID // None: no member held it, or it was changing hands
	Name  string        // Config.Name, empty if it is not known
	Fence uint64
	Age   time.Duration
}

// Holder asks all members of the view who holds the lock. The answer may be out of date when
// it arrives, so it is for people, not for programs that decide by it.
//
// It first waits as [Node.Ready] does, and then until the holder has answered, or all have. If
// ctx ends first, the error wraps ctx's and names the members that have not answered: a holder
// that does not answer may have crashed. A member that is excluded need not answer. Other
// errors are those of [Mutex.Ask].
func (m *Mutex) Holder(ctx context.Context) (Holder, error) {
	if err := lawful(m.name); err != nil {
		return Holder{}, err
	}
	n := m.node
	if err := n.Ready(ctx); err != nil {
		return Holder{}, err
	}
	if err := n.locks.Obstacle(); err != nil {
		return Holder{}, public(m.name, err)
	}
	if st := n.locks.Status(m.name); st.Phase == dmutex.Held && st.Holder == n.Self() {
		return Holder{st.Holder, n.cfg.Name, st.Fence, st.Age}, nil
	}
	number, answers := n.asks.begin()
	defer n.asks.end(number)
	var epoch uint64
	var heard []dmutex.NodeID
	look := time.NewTicker(time.Second) // whether the view is another now
	defer look.Stop()
	for {
		view := n.group.Status().View
		if view.Epoch != epoch { // a process that has restarted was not asked
			epoch = view.Epoch
			n.tellPeers(appendWho(nil, number, m.name))
			n.mail.Flush()
		}
		var missing []dmutex.NodeID
		for _, id := range view.Members {
			if id != n.Self() && !slices.Contains(heard, id) {
				missing = append(missing, id)
			}
		}
		if len(missing) == 0 {
			return Holder{}, nil
		}
		select {
		case h := <-answers:
			if h.Fence != 0 {
				h.Name = n.group.About(h.Node).Name
				return h, nil
			}
			heard = append(heard, h.Node)
		case <-look.C:
		case <-n.locks.Ended():
			return Holder{}, public(m.name, n.locks.Why())
		case <-ctx.Done():
			return Holder{}, public(m.name, fmt.Errorf("no answer from %s: %w", n.group.Describe(missing), hold.ContextError(ctx)))
		}
	}
}

// asks are the questions of this node that wait for answers.
type asks struct {
	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan Holder
}

func (a *asks) begin() (number uint64, answers <-chan Holder) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = make(map[uint64]chan Holder)
	}
	a.last++
	c := make(chan Holder, 64)
	a.waiting[a.last] = c
	return a.last, c
}

func (a *asks) end(number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, number)
}

// questioned answers a peer.
func (n *Node) questioned(from dmutex.NodeID, message []byte) error {
	number, name, err := readWho(message)
	if err != nil {
		return fmt.Errorf("question who holds a lock: %w", err)
	}
	var fence, age uint64
	if st := n.locks.Status(name); st.Phase == dmutex.Held && st.Holder == n.Self() {
		fence, age = st.Fence, uint64(st.Age.Milliseconds())
	}
	_, _ = n.mail.Send(from, func(b []byte) []byte { return appendHold(b, number, fence, age) })
	return nil
}

// answered takes the answer of a peer. One that nobody waits for any more is dropped, and so
// are those of a peer that answers more than once.
func (n *Node) answered(from dmutex.NodeID, message []byte) error {
	number, fence, age, err := readHold(message)
	if err != nil {
		return fmt.Errorf("answer who holds a lock: %w", err)
	}
	n.asks.mu.Lock()
	defer n.asks.mu.Unlock()
	select {
	case n.asks.waiting[number] <- Holder{Node: from, Fence: fence, Age: time.Duration(age) * time.Millisecond}:
	default:
	}
	return nil
}
