package node

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dmutex/dmutex"
)

// An Observer is told what Acquire and Release come to. Any of its functions may
// be nil, and costs nothing then.
//
// It is told in the goroutine that called Acquire, TryAcquire, Release or Close,
// before that call returns and under no lock of the node's: a function may use
// the node and its locks, and as long as it takes, its caller waits, and nobody
// else. So functions run at the same time as each other. It is given values
// and may keep them. What it panics with goes to the caller, who then has no lock.
//
// Of one handle the Wait is told before the Hold. (Only if the node is closed
// while Acquire returns, its Hold may come first, or alone.) Of two holds of one
// lock at one node either may be told first, since the next begins as soon as the
// one before it ends; their fences tell the order.
//
// What happens too often to be told one by one is counted in [Status]: messages,
// and for each peer what had to be sent again.
type Observer struct {
	Wait func(Wait) // an Acquire or TryAcquire has come to its end; not told of calls that are misuse
	Hold func(Hold) // a hold has ended

	// View: the group has changed, and the locks go on. It is told in a goroutine
	// of its own, one change at a time and in order; a slow function delays only
	// Close, and misses changes once it is 64 behind.
	View func(ViewChange)
}

// A ViewChange is a view that has begun to act at this node.
type ViewChange struct {
	Epoch   uint32          // of the view: its fences begin with it
	Members []dmutex.NodeID // ascending
	Joined  []dmutex.NodeID // those that were not in the last view that acted here, or as another process
	Left    []dmutex.NodeID // those of that view that have left or were replaced by another process
	Took    time.Duration   // for how long nothing was granted here
	Cause   error           // why this node had asked for it: a PeerError or LockError; nil if somebody joined or left
}

func (c ViewChange) attrs() []slog.Attr {
	attrs := []slog.Attr{slog.Uint64("epoch", uint64(c.Epoch)), slog.Any("members", c.Members)}
	if len(c.Joined) > 0 {
		attrs = append(attrs, slog.Any("joined", c.Joined))
	}
	if len(c.Left) > 0 {
		attrs = append(attrs, slog.Any("left", c.Left))
	}
	return append(attrs, slog.Duration("took", c.Took))
}

// tellChanges tells the Observer what comes, until the node is closed.
func (n *Node) tellChanges() {
	for {
		select {
		case c := <-n.changes:
			n.cfg.Observer.View(c)
		case <-n.quit:
			return
		}
	}
}

// A Wait is what became of an Acquire or a TryAcquire.
type Wait struct {
	Lock  string
	Err   error         // what the call returns: nil if the lock was granted
	Fence uint64        // of the grant; 0 if there is none
	Took  time.Duration // from the call to its end, with the time until the node was ready

	// Away is how long the lock was away although it was wanted here: from the
	// end of the last hold at this node to this grant, with the turns that other
	// nodes had between. It is 0 if no goroutine of this node was waiting then, or
	// the last that waited has given up since.
	Away time.Duration
}

// Outcome sums up Err in a word that a metric can be labelled with: granted;
// busy; canceled or deadline, if ctx ended; deadlock; and failed, if something else
// stood in the way.
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

// A Hold is what became of a grant.
type Hold struct {
	Lock  string
	Err   error         // nil if it was released in time, ErrMaxHold if later, an ErrLost if it was lost
	Fence uint64        // of the grant
	Took  time.Duration // from the grant to its end

	// Messages is what the entry cost this node: how many messages about the
	// lock it sent and received from its request up to and with its release.
	// If nobody else wants the lock, that is the number of messages that the
	// algorithm is known for; else those that serve the others are among them.
	Messages int
}

// Outcome sums up Err in a word that a metric can be labelled with: released, late
// or lost.
func (h Hold) Outcome() string {
	switch h.Err {
	case nil:
		return "released"
	case ErrMaxHold:
		return "late"
	default:
		return "lost"
	}
}

// observed is a handle that an Observer will be told of.
type observed struct {
	Held
	wait Wait
}

// observe is wait for an Observer.
func (m *Mutex) observe(ctx context.Context, trying bool) (*Held, error) {
	n := m.node
	called := n.mail.Now()
	o := &observed{Held: Held{ctx: ctx}, wait: Wait{Lock: m.name}}
	err := m.wait(&o.Held, &o.wait, trying)
	o.wait.Took = time.Duration(n.mail.Now() - called)
	if o.wait.Err = err; err == nil {
		o.wait.Fence = o.fence
	}
	told := false
	defer func() {
		if !told && err == nil {
			_ = o.Release() // nobody else will
		}
	}()
	n.cfg.Observer.Wait(o.wait)
	told = true
	return &o.Held, err
}

// observe notes how a hold ends that ends now.
func (h *Held) observe(why error, told *Hold) {
	if why == ErrReleased {
		why = h.Err() // nil, or ErrMaxHold
	}
	l := h.lock
	*told = Hold{Lock: l.name, Err: why, Fence: h.fence, Took: time.Duration(l.shard.mail.Now() - h.since)}
}

// tell tells the Observer of holds. Those without a fence are none.
func (ls *locks) tell(holds ...Hold) {
	if ls.cfg.Observer == nil || ls.cfg.Observer.Hold == nil {
		return
	}
	for _, hold := range holds {
		if hold.Fence != 0 {
			ls.cfg.Observer.Hold(hold)
		}
	}
}
