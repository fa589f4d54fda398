package node

import (
	"context"
	"fmt"

	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// Ask asks the holder of the lock, at any node including this one, to give it back.
// The holder sees that in [Asked], and decides whether and when to release. Ask
// does not wait for that.
//
// A node passes the request on to the holder at the moment when it arrives, not to
// later holders. While the lock is changing hands it may reach two holders or none,
// so a caller that still waits should ask again; a holder that is asked twice
// notices it once. Holders without a handle do not notice it: the functions of
// [Mutex.Do] and [Election.Campaign], and users of a [Mutex.Locker].
//
// Ask sends one message to each other member. It first waits as [Node.Ready] does,
// and returns ctx's error if ctx ends before that. Other errors: [ErrClosed]; an
// [ErrStopped] if the node has stopped by itself; an [Error] with a Peer if one stands in the
// way; [dmutex.ErrMisuse] for a name that is empty or too long. If Ask returns an error
// it has asked no holder.
func (m *Mutex) Ask(ctx context.Context) error {
	if err := lawful(m.name); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return public(m.name, hold.ContextError(ctx))
	}
	n := m.node
	if err := n.Ready(ctx); err != nil {
		return err
	}
	if err := n.locks.Obstacle(); err != nil {
		return public(m.name, err)
	}
	n.tellPeers(appendAsk(nil, m.name)) // a peer that is gone holds nothing
	n.mail.Flush()
	n.locks.Ask(m.name)
	return nil
}

// asked takes a peer's request to give a lock back.
func (n *Node) asked(message []byte) error {
	name, err := readAsk(message)
	if err != nil {
		return fmt.Errorf("Ask: %w", err)
	}
	n.locks.Ask(string(name))
	return nil
}

// Asked returns a channel that is closed when a [Mutex.Ask] reaches this handle. The
// end of the hold does not close it. A long-running holder checks it between two
// steps, or selects on it. It is nil for a handle of another package, which cannot be asked.
func Asked(h lock.Held) <-chan struct{} {
	if h, ok := h.(*locks.Held); ok {
		return h.Asked()
	}
	return nil
}
