package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// Ask asks the holder of the lock, at any node including this one, to give it back. The holder
// sees that in [Asked], and decides whether and when to release. Ask does not wait for that.
//
// It reaches the holder of the moment when it arrives, not later ones: while the lock changes
// hands that may be two holders or none, so a caller that still waits should ask again. Holders
// without a handle do not notice it: the functions of [Mutex.Do] and [Election.Campaign].
//
// Ask waits as [Node.Ready] does, and sends one message to each other member. Its errors are those
// of [Mutex.Acquire]; after an error it has asked no holder.
func (m *Mutex) Ask(ctx context.Context) error {
	if err := m.reach(ctx); err != nil {
		return err
	}
	m.node.sendAll(&message{says: saysAsk, name: m.name}) // a peer that is gone holds nothing
	m.node.mail.Flush()
	m.node.locks.Ask(m.name)
	return nil
}

// reach waits until the other members can be asked about the lock.
func (m *Mutex) reach(ctx context.Context) error {
	switch err := lawful(m.name); {
	case !m.made():
		return errUnmade
	case err != nil:
		return err
	}
	if err := hold.ContextError(ctx); err != nil {
		return public(m.name, err)
	}
	if err := m.node.Ready(ctx); err != nil {
		return err
	}
	return public(m.name, m.node.locks.Obstacle())
}

// Asked returns a channel that is closed when a [Mutex.Ask] reaches this handle, or when the handle
// shares the lock and a call waits to hold it alone, but not by the end of the hold. It is nil for a
// handle of another package, which cannot be asked.
func Asked(h lock.Held) <-chan struct{} {
	if h, ok := h.(*locks.Held); ok {
		return h.Asked()
	}
	return nil
}

// A Holder is who held a lock, and for how long, when it was asked.
type Holder struct {
	Node  dmutex.NodeID // None: no member held it, or it was changing hands
	Name  string        // Config.Name, empty if it is not known
	Fence uint64
	Age   time.Duration // since its grant, by the holder's own clock, when it answered
}

// Holder asks all members of the view who holds the lock, and returns one of those that share it. The
// answer may be out of date when it arrives, so it is for people, not for programs that decide by it.
//
// It first waits as [Node.Ready] does, and then until the holder has answered, or all members of
// the view have. If ctx ends first, the error wraps ctx's and names the members that have not
// answered: one of them may hold the lock and have crashed. Other errors are those of [Mutex.Ask].
func (m *Mutex) Holder(ctx context.Context) (Holder, error) {
	if err := m.reach(ctx); err != nil {
		return Holder{}, err
	}
	n := m.node
	if own := n.holds(m.name); own.Fence != 0 {
		return own, nil
	}
	q := n.question(m.name)
	defer n.asks.Delete(q.number)
	var epoch uint64
	var heard []dmutex.NodeID
	look := time.Tick(n.mail.Clock().Span(time.Second))
	for {
		view := n.group.Status().View
		if view.Epoch == 0 { // this node was excluded meanwhile, so there is nobody that has answered
			if err := m.reach(ctx); err != nil {
				return Holder{}, err
			}
			continue
		}
		if view.Epoch != epoch { // a process that has restarted was not asked
			epoch = view.Epoch
			n.sendAll(&q.message)
			n.mail.Flush()
		}
		missing := slices.DeleteFunc(view.Members, func(id dmutex.NodeID) bool {
			return id == n.Self() || slices.Contains(heard, id)
		})
		if len(missing) == 0 {
			return Holder{}, nil
		}
		select {
		case h := <-q.answers:
			if h.Fence != 0 {
				h.Name = n.group.About(h.Node).Name
				return h.Holder, nil
			}
			heard = append(heard, h.Node)
		case <-look: // whether the view is another now
			epoch = 0 // and ask again: there may have been no room
		case <-n.locks.Ended():
			return Holder{}, public(m.name, n.locks.Why())
		case <-ctx.Done():
			return Holder{}, public(m.name, fmt.Errorf("no answer from %w: %w", n.group.Describe(missing), hold.ContextError(ctx)))
		}
	}
}

// A question is a message that asks who holds a lock, and the answers to it.
type question struct {
	message
	answers chan answer
}

// An answer says whether a node holds a lock, and for how long a call there has waited to hold it alone,
// 0 if none does.
type answer struct {
	Holder
	waited time.Duration
}

// question asks who holds a lock. The answers come until its number is deleted from asks.
func (n *Node) question(name string) *question {
	q := &question{message{says: saysWho, number: n.numbers.Add(1), name: name}, make(chan answer, 64)}
	n.asks.Store(q.number, q.answers)
	return q
}

// holds returns what this node answers: a Holder without a fence if it does not hold the lock.
func (n *Node) holds(name string) (own Holder) {
	if st := n.locks.Status(name); st.Fence != 0 {
		own = Holder{n.Self(), n.cfg.Name, st.Fence, st.Age}
	}
	return own
}

// answered takes the answer of a peer. An answer that nobody waits for is dropped, and so is one
// more than the peers have to give.
func (n *Node) answered(from dmutex.NodeID, m *message) {
	answers, _ := n.asks.Load(m.number)
	c, _ := answers.(chan answer)
	select {
	case c <- answer{Holder{Node: from, Fence: m.fence, Age: time.Duration(m.age) * time.Millisecond}, time.Duration(m.waited) * time.Millisecond}:
	default:
	}
}
