package node

import (
	"context"
	"errors"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// An Observer has functions that are called with the outcome of each Acquire and
// each hold. Any of them may be nil, and then costs nothing.
//
// Wait and Hold run in the goroutine that called Acquire, TryAcquire, Release or
// Close, before that call returns. For a hold lost with its lease, Hold runs in a
// goroutine of the node. No mutex of the node is held, so they may use the
// node and its locks. A slow function delays only its caller. Several may run at the
// same time. They may keep the values that they get. If a function panics, the panic
// reaches the caller, which then holds no lock.
//
// For one handle Wait is called before Hold, except that if the node is closed while
// Acquire returns, Hold may come first or alone. For two holds of one lock at one
// node either may be reported first, because the next begins as soon as the one
// before it ends; their fences tell the order.
//
// More frequent events, such as messages and retransmissions, are counted in
// [Status].
type Observer struct {
	Wait func(Wait) // an Acquire or TryAcquire has ended; not called for misuse
	Hold func(Hold) // a hold has ended

	// View: the group has changed, and the locks go on. It is called in a goroutine of
	// its own, for one change at a time and in order. A slow function delays only
	// Close, and misses changes when it is more than 64 behind. It must not call Close.
	View func(ViewChange)

	// Lease: the lease of this node is valid, late to be renewed, or has ended. It is
	// called as View is, and only with Config.Store.
	Lease func(LeaseState)
}

// A LeaseState is how the lease of a node with Config.Store stands.
type LeaseState uint8

// The states of a lease.
const (
	LeaseEnded LeaseState = iota // or not begun: nothing is held, and nothing is granted
	LeaseValid
	LeaseLate // two thirds have passed without a renewal: see Held.Suspended
)

// String returns ended, valid or late.
func (s LeaseState) String() string { return [...]string{"ended", "valid", "late"}[s] }

// A ViewChange is a view that has begun to act at this node.
type ViewChange struct {
	Epoch   uint64          // of the view: its fences begin with it
	Members []dmutex.NodeID // ascending
	Joined  []dmutex.NodeID // those that were not in the last view that acted here, or were there as another process
	Left    []dmutex.NodeID // those of the last view that have left, or were replaced by another process
	Took    time.Duration   // how long nothing was granted here
	Cause   error           // why this node asked for the change: a PeerError or LockError; nil if it did not, as when a member joins or leaves
}

// event has tellEvents tell the Observer.
func (n *Node) event(tell func()) {
	select {
	case n.events <- tell:
	default:
	}
}

// tellEvents tells the Observer what has happened until the node is closed.
func (n *Node) tellEvents() {
	for {
		select {
		case tell := <-n.events:
			tell()
		case <-n.quit:
			return
		}
	}
}

// A Wait is the outcome of an Acquire or a TryAcquire.
type Wait struct {
	Lock  string
	Err   error         // what the call returns: nil if the lock was granted
	Fence uint64        // of the grant; 0 if there is none
	Took  time.Duration // from the call to its end, including the time until the node was ready
}

// Outcome sums up Err in a word that can label a metric: granted; busy; canceled or
// deadline, if ctx ended; deadlock; or failed, for any other error.
func (w Wait) Outcome() string {
	switch {
	case w.Err == nil:
		return "granted"
	case errors.Is(w.Err, ErrBusy):
		return "busy"
	case errors.Is(w.Err, context.Canceled):
		return "canceled"
	case errors.Is(w.Err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(w.Err, ErrDeadlock):
		return "deadlock"
	default:
		return "failed"
	}
}

// A Hold is the outcome of a grant.
type Hold struct {
	Lock  string
	Err   error         // nil if it was released, an ErrLost if it was lost
	Fence uint64        // of the grant
	Took  time.Duration // from the grant to its end
}

// Outcome sums up Err in a word that can label a metric: released or lost.
func (h Hold) Outcome() string {
	if h.Err == nil {
		return "released"
	}
	return "lost"
}

// observe is wait for an Observer.
func (m *Mutex) observe(ctx context.Context, trying bool) (*Held, error) {
	n := m.node
	called := n.mail.Now()
	h, err := m.wait(ctx, trying)
	w := Wait{Lock: m.name, Err: err, Took: time.Duration(n.mail.Now() - called)}
	if h != nil {
		w.Fence = h.Fence()
	}
	told := false
	defer func() {
		if !told && h != nil {
			_ = h.Release() // nobody else will
		}
	}()
	n.cfg.Observer.Wait(w)
	told = true
	return h, err
}

// tell passes holds to the Observer.
func (n *Node) tell(holds ...locks.Hold) {
	if n.cfg.Observer == nil || n.cfg.Observer.Hold == nil {
		return
	}
	for _, h := range holds {
		n.cfg.Observer.Hold(Hold(h))
	}
}
