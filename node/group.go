package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/dmutex/dmutex"
)

// Ready waits until this node is in a view that grants locks. For that, all members
// that have not left or been evicted must be up and have agreed on the view. Acquire
// waits for the same. If ctx ends first, the error names the missing members, and
// wraps ctx's error and, if a member is configured differently, [ErrConfig].
//
// A node may stop being ready while the group changes: for a few round trips, or, if
// a member crashes during the change, until it is back.
func (n *Node) Ready(ctx context.Context) error { return n.waited(ctx, n.group.Ready(ctx)) }

// waited says what the group was waiting for if ctx has ended.
func (n *Node) waited(ctx context.Context, err error) error {
	if err != nil && err == ctx.Err() {
		err = n.notReady(err)
	}
	return public("", err)
}

// notReady names the members that this node waits for.
func (n *Node) notReady(why error) error {
	missing, err := n.group.Waits()
	switch {
	case err != nil && len(missing) == 0:
		return fmt.Errorf("%w: %w", err, why)
	case len(missing) == 0:
		return fmt.Errorf("the members are agreeing on a view: %w", why)
	}
	// An Error names one peer: the first of which something is known. The text names all.
	e := &Error{text: "waiting for members " + n.group.Describe(missing) + ": " + why.Error()}
	causes := []error{why}
	if err != nil {
		e.text, causes = err.Error()+"; also "+e.text, append(causes, err)
	}
	for _, id := range missing {
		if _, err := n.group.Peer(id); err != nil {
			e.Peer, causes = cmp.Or(e.Peer, id), append(causes, err)
		}
	}
	e.Err = errors.Join(causes...)
	return e
}

// Evict removes members from the group, on the operator's word that their processes
// are dead. The others go on without them until new processes with their numbers
// start. Evict returns when a view without them acts, at once if they are in no view.
// All other members must be up.
//
// Make sure first that the processes are dead, for example by cutting the power of
// the machine. If an evicted process still runs, two processes may hold one lock,
// until the evicted one hears from a member. Then its node grants nothing more, and its
// handles are lost ([ErrEvicted]) when a second member says so, or within a second.
//
// Evict returns [dmutex.ErrMisuse] with Config.Store, where a member that is gone is
// excluded without an operator's word, for this node itself, for a number that is not a
// member, before this node was in a view, and if one of the members has restarted
// meanwhile: the group takes its new process in. If ctx ends first, it returns ctx's
// error and names the missing members.
func (n *Node) Evict(ctx context.Context, members ...dmutex.NodeID) error {
	return n.waited(ctx, n.group.Evict(ctx, members...))
}
