package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// Ready waits until this node is in a view that grants locks. For that, all members
// that have not left and were not evicted or excluded must be up and have agreed on the
// view. Acquire waits for the same. If ctx ends first, the error names the missing members, and
// wraps ctx's error and, if a member is configured differently, [ErrConfig].
//
// A node may stop being ready while the group changes: for a few round trips, or, if
// a member crashes during the change, until it is back, evicted or excluded. It stays
// ready while only some locks wait for members that were excluded.
func (n *Node) Ready(ctx context.Context) error {
	switch {
	case ctx == nil:
		return hold.ContextError(ctx)
	case n.group == nil:
		return errUnopened
	}
	return n.waited(ctx, n.group.Ready(ctx))
}

// waited says what the group was waiting for if ctx has ended.
func (n *Node) waited(ctx context.Context, err error) error {
	if err != nil && err == ctx.Err() {
		err = n.notReady(hold.ContextError(ctx))
	}
	return public("", err)
}

// notReady names the members that this node waits for.
func (n *Node) notReady(why error) error {
	missing, err := n.group.Waits()
	e := &Error{Err: fmt.Errorf("%w: %w", n.obstacle(missing, err), why)}
	for _, id := range missing {
		if _, err := n.group.Peer(id); err != nil {
			e.Peer = cmp.Or(e.Peer, id)
		}
	}
	return e
}

// obstacle says what the group waits for: for these members, and for what err says.
func (n *Node) obstacle(missing []dmutex.NodeID, err error) error {
	switch {
	case err != nil && len(missing) > 0:
		err = fmt.Errorf("%w; also waiting for members %w", err, n.group.Describe(missing))
	case len(missing) > 0:
		err = fmt.Errorf("waiting for members %w", n.group.Describe(missing))
	case err == nil:
		err = errors.New("the members are agreeing on a view")
	}
	return err
}

// idle says why this node grants nothing now, and is empty if it does grant. Confirmations of sessions wait
// for it, so it waits for nothing.
func (n *Node) idle() string {
	switch why := n.locks.Why(); {
	case why != nil:
		return why.Error()
	case n.group.Acting():
		return ""
	}
	missing, err, ok := n.group.Glance()
	if !ok {
		return "the group is changing"
	}
	return n.obstacle(missing, err).Error()
}

// longAfter is how often this node looks for long waits.
const longAfter = 10 * time.Second

// logLongWaits logs what the first waiters of this node have waited for, after 10 to 20 seconds,
// again after twice that, and so on; but neither that the whole node waits, which is logged too,
// nor the candidates of elections.
func (n *Node) logLongWaits() {
	for look := time.Tick(n.mail.Clock().Span(longAfter)); ; {
		select {
		case <-look:
		case <-n.quit:
			return
		}
		for lock, waited := range n.locks.Waits() {
			if many := waited / longAfter; many > 0 && many&(many-1) == 0 && n.group.Acting() && !strings.HasPrefix(lock, electionPrefix) {
				n.logLongWait(lock, waited)
			}
		}
	}
}

func (n *Node) logLongWait(lock string, waited time.Duration) {
	st := n.locks.Status(lock)
	attrs := []slog.Attr{slog.String("lock", lock), slog.Duration("waited", waited.Round(time.Second))}
	if st.Holder != dmutex.None {
		attrs = append(attrs, n.group.Named(st.Holder, slog.Uint64("holder", uint64(st.Holder))), slog.Duration("held", st.HeldFor.Round(time.Second)))
	}
	if len(st.Former) > 0 {
		attrs = append(attrs, slog.String("for", n.heldBy(lock, st, "this process", answer{})))
	} else if why := n.silent(st); why != nil {
		attrs = append(attrs, slog.String("for", why.Error()))
	}
	n.group.Log(slog.LevelWarn, "lock is waited for", attrs...)
}

// waitError is the error of an Acquire whose context has ended: it says what the call was waiting
// for, and wraps why. holder and writer are what other nodes have answered to awaitGrant, if this node knows
// none: who holds the lock, and who waits to hold it alone and keeps out a call that shares.
func (n *Node) waitError(lock string, holder, writer answer, why error) error {
	if !n.group.Acting() {
		return n.notReady(why)
	}
	st := n.locks.Status(lock)
	silent := n.silent(st)
	if st.Holder == dmutex.None && holder.Fence != 0 {
		st.Holder, st.HeldFor = holder.Node, holder.Age+n.mail.Now().Age()
	}
	if by := n.heldBy(lock, st, "this process", writer); by != "" {
		why = fmt.Errorf("%s: %w", by, why)
	}
	if silent != nil {
		why = fmt.Errorf("waiting for %w: %w", silent, why)
	}
	return why
}

// heldBy says who holds a lock, or may hold it, and who keeps out those that would share it, as far as this
// node knows, which is called here, or as the writer of another node has answered.
func (n *Node) heldBy(lock string, st locks.Status, here string, writer answer) string {
	by := n.holder(st, here)
	alone, before, elsewhere := n.locks.Alone(lock)
	switch {
	case by == "" || len(st.Former) > 0:
		return by
	case alone > 0 && before:
		writer.Name, writer.waited = here, alone
	case writer.waited != 0:
		writer.Name, writer.waited = n.group.Called(writer.Node), writer.waited+n.mail.Now().Age()
	case elsewhere:
		return by + ", and a call of another process waits to hold it alone"
	default:
		return by
	}
	return fmt.Sprintf("%s, and a call of %s has waited %v to hold it alone", by, writer.Name, writer.waited.Round(100*time.Millisecond))
}

// holder says who holds a lock, or may hold it.
func (n *Node) holder(st locks.Status, here string) string {
	who := here
	switch {
	case len(st.Former) > 0 && st.Phase != dmutex.Held:
		return fmt.Sprintf("waiting for the leases of former members %s, which may hold it: at most %v more", strings.Join(n.group.AllCalled(st.Former), ", "), st.Drains.Round(100*time.Millisecond))
	case len(st.Sharers) > 0:
		names := n.group.AllCalled(st.Sharers)
		if i := slices.Index(st.Sharers, n.Self()); i >= 0 {
			names[i] = here
		}
		return "shared by " + strings.Join(names, ", ")
	case st.Holder == dmutex.None:
		return ""
	case st.Phase != dmutex.Held:
		who = n.group.Called(st.Holder)
	case st.Client != "":
		who = fmt.Sprintf("client %q of %s", st.Client, here)
	}
	return fmt.Sprintf("held by %s for %v", who, st.HeldFor.Round(100*time.Millisecond))
}

// silent describes the peers that a lock waits for: the holder if it is known and
// another node, else the peers whose answers are missing.
func (n *Node) silent(st locks.Status) error {
	ids := st.WaitsFor
	if st.Holder != dmutex.None && st.Holder != n.Self() {
		ids = []dmutex.NodeID{st.Holder}
	}
	return n.group.Describe(ids)
}

// Evict removes members from the group, on the operator's word that their processes are dead. The others go on
// without them until new processes with their numbers start. Evict returns when a view without them acts. All other
// members must be up.
//
// Make sure first that the processes are dead, for example by cutting the power of the machine. If an evicted process
// still runs, two processes may hold one lock, until the evicted one hears from a member. Then its node grants nothing
// more, and its handles are lost ([ErrEvicted]) when a second member says so, or within a second.
//
// Evict returns [dmutex.ErrMisuse] in the lease mode, for this node itself, for a number that is not a member, before
// this node was in a view, if one of the members has answered meanwhile, which the dead do not, and if one has
// restarted: the group takes its new process in. If ctx ends first, the error is as for Ready.
func (n *Node) Evict(ctx context.Context, members ...dmutex.NodeID) error {
	switch {
	case ctx == nil:
		return hold.ContextError(ctx)
	case n.group == nil:
		return errUnopened
	}
	return n.waited(ctx, n.group.Evict(ctx, members...))
}
