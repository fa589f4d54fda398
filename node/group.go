package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
)

// Ready waits until this node is in a view that grants locks. For that, all members
// that have not left or been evicted must be up and have agreed on the view. Acquire
// waits for the same. If ctx ends first, the error names the missing members, and
// wraps ctx's error and, if a member is configured differently, [ErrConfig].
//
// A node may stop being ready while the group changes: for a few round trips, or, if
// a member crashes during the change, until it is back.
func (n *Node) Ready(ctx context.Context) error {
	n.views.mu.Lock()
	acting, next := n.views.acting.Load(), n.views.next
	n.views.mu.Unlock()
	if why := n.locks.Why(); acting || why != nil {
		return why
	}
	select {
	case <-n.locks.Ended():
		return n.locks.Why()
	case <-next:
		return nil
	case <-ctx.Done():
		return n.notReady(ctx.Err())
	}
}

// notReady names the members that this node waits for.
func (n *Node) notReady(why error) error {
	missing, err := n.views.missing()
	switch {
	case err != nil && len(missing) == 0:
		return fmt.Errorf("%w: %w", err, why)
	case len(missing) == 0:
		return fmt.Errorf("node: the members are agreeing on a view: %w", why)
	}
	text, causes := "node: waiting for members "+n.describePeers(missing), []error{why}
	if err != nil {
		text, causes = err.Error()+"; also waiting for members "+n.describePeers(missing), append(causes, err)
	}
	for _, id := range missing {
		if err := n.peerStatus(id).Err; err != nil {
			causes = append(causes, &PeerError{id, err})
		}
	}
	return &missingError{text + ": " + why.Error(), causes}
}

// A missingError is why a node is not ready: the text says it of all missing members.
type missingError struct {
	text   string
	causes []error
}

func (e *missingError) Error() string { return e.text }

func (e *missingError) Unwrap() []error { return e.causes }

// Evict removes members from the group, on the operator's word that their processes
// are dead. The others go on without them until new processes with their numbers
// start. Evict returns when a view without them acts, at once if they are in no view.
// All other members must be up.
//
// Make sure first that the processes are dead, for example by cutting the power of
// the machine. If an evicted process still runs, two processes may hold one lock,
// until the evicted one hears from a member. Then its handles are lost, and its node
// grants nothing more ([ErrEvicted]).
//
// Evict returns [dmutex.ErrMisuse] with Config.Store, where a member that is gone is
// excluded without an operator's word, for this node itself, for a number that is not a
// member, before this node was in a view, and if one of the members has restarted
// meanwhile: the group takes its new process in. If ctx ends first, it returns ctx's
// error and names the missing members.
func (n *Node) Evict(ctx context.Context, members ...dmutex.NodeID) error {
	c, ok := n.views.who.(*consent)
	if !ok {
		return dmutex.Misuse("evict: the group has a store, and excludes members that are gone by itself")
	}
	lives := make(map[dmutex.NodeID]uint64) // that the operator spoke of
	for {
		err := n.locks.Why()
		if err != nil {
			return err
		}
		var gone bool
		var next <-chan struct{}
		n.views.do(func(_ machine, now int64) []membership.Message {
			m := c.machine
			next = n.views.next
			out := m.View().Epoch > 0 && !slices.ContainsFunc(members, func(id dmutex.NodeID) bool {
				return slices.Contains(m.View().Nodes(), id) || !slices.Contains(n.cfg.Members, id)
			})
			if gone = out && m.Phase() == membership.Acting; out {
				return nil // such a view acts when it is due, and another would be due later
			}
			for _, id := range members {
				if known, again := lives[id]; again && m.Newest(id) > known {
					err = dmutex.Misuse(fmt.Sprintf("evict: member %v has restarted meanwhile, and joins again", id))
					return nil
				}
				lives[id] = m.Newest(id)
			}
			var say []membership.Message
			say, err = m.Evict(now, members...)
			return say
		})
		n.mail.Flush()
		if gone || err != nil {
			return err
		}
		select {
		case <-next:
		case <-time.After(time.Second): // another's round may have come between
		case <-n.locks.Ended():
			err = n.locks.Why()
		case <-ctx.Done():
			err = n.notReady(ctx.Err())
		}
		if err != nil {
			return err
		}
	}
}
