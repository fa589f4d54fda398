package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/stream"
)

// A View is the group as this node sees it, and how the last view that acted came about.
// Package node documents the fields.
type View struct {
	Epoch   uint64
	Members []dmutex.NodeID
	Acts    bool
	Age     time.Duration
	Missing []dmutex.NodeID
	Err     error
	Ahead   time.Duration

	Changes uint64
	Joined  []dmutex.NodeID
	Left    []dmutex.NodeID
	Took    time.Duration
	Cause   error
}

// attrs are those of a line in the log. Members that left appear by name, because nothing else names them now.
func (v *View) attrs(left []string) []slog.Attr {
	attrs := []slog.Attr{slog.Uint64("epoch", v.Epoch), slog.Any("members", v.Members)}
	if len(v.Joined) > 0 {
		attrs = append(attrs, slog.Any("joined", v.Joined))
	}
	if len(v.Left) > 0 {
		attrs = append(attrs, slog.Any("left", left))
	}
	return append(attrs, slog.Duration("took", v.Took))
}

// ahead returns how far an epoch is ahead of the clock, if that is more than a minute.
func (g *Group) ahead(epoch uint64) time.Duration {
	by := time.Duration(int64(epoch)-int64(g.clockNow())) * time.Millisecond
	if by <= time.Minute {
		return 0
	}
	return by
}

// A Lease is how the lease of this node stands. Package node documents the fields.
type Lease struct {
	State      leases.State
	Length     time.Duration
	Remains    time.Duration
	Err        error
	Exclusions int
}

// covered reports whether locks may be held now, as far as was noticed.
func (g *Group) covered() bool { return g.lease != leases.Ended }

// Recheck asks the record whether this life is a member still, by an operation that is sent later than
// now: then what was lent and lost is given back.
func (g *Group) Recheck() {
	g.happens(stranger{})
	g.Mail.Flush()
}

// Acting reports whether the locks act.
func (g *Group) Acting() bool { return g.acting.Load() }

// A Status is the state of the group at this node.
type Status struct {
	View    View
	Lives   membership.View
	Lease   *Lease // nil without a store
	Life    uint64
	Refused uint64
}

// Status returns the state of the group at this node.
func (g *Group) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.who.now() // first: the lease may have ended
	st, v := g.standing(now), g.shown
	v.Epoch, v.Members, v.Acts, v.Age = st.view.Epoch, st.view.Nodes(), g.acting.Load(), time.Duration(now-g.since)
	v.Missing, v.Err, v.Ahead = st.missing, st.why, g.ahead(v.Epoch)
	return Status{v, st.view, st.lease, g.life, g.refused.Load()}
}

// Waits returns the members that this node waits for, and what else it waits for.
func (g *Group) Waits() ([]dmutex.NodeID, error) {
	st := g.stands()
	return st.missing, st.why
}

// Glance is Waits for callers that must not wait: ok is false while the group is busy.
func (g *Group) Glance() (missing []dmutex.NodeID, err error, ok bool) {
	if !g.mu.TryLock() {
		return nil, nil, false
	}
	defer g.mu.Unlock()
	st := g.standing(g.who.now())
	return st.missing, st.why, true
}

// stands returns how this node stands in its group.
func (g *Group) stands() standing {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.standing(g.who.now()) // which may end the lease
}

// standing is stands for callers that have the mutex.
func (g *Group) standing(now int64) standing {
	st := g.who.stands(now)
	st.why = cmp.Or(st.why, g.refusal)
	return st
}

// Ready waits until this node is in a view that acts. If ctx ends first, it returns ctx's
// error.
func (g *Group) Ready(ctx context.Context) error {
	g.mu.Lock()
	acting, next := g.acting.Load(), g.next
	g.mu.Unlock()
	if why := g.Locks.Why(); acting || why != nil {
		return why
	}
	return g.awaitView(ctx, next, nil)
}

// awaitView waits for the next view that acts, or until enough time has passed.
func (g *Group) awaitView(ctx context.Context, next <-chan struct{}, enough <-chan time.Time) error {
	select {
	case <-next:
	case <-enough:
	case <-g.Locks.Ended():
	case <-ctx.Done():
		return ctx.Err()
	}
	return g.Locks.Why()
}

// Peer returns the state of the mail with another member, and an ErrConfig if it is
// configured differently, or that another group uses the network, or why the link does not reach it.
func (g *Group) Peer(id dmutex.NodeID) (st mail.Status, trouble error) {
	st = g.Mail.Status(id)
	p := g.peer(id)
	switch {
	case st.Other != (stream.GroupError{}):
		trouble = g.differs("it", st.Other.Versions, g.settings, st.Other.Settings)
	case p != nil && p.clash.Load() != nil && g.Mail.Now().Sub(*p.clash.Load()) < g.cfg.Lease: // a member is heard more often
		trouble = stream.ErrOther
	default:
		trouble = g.cfg.Link.Trouble(id)
	}
	return st, trouble
}

const justNow = 50 * time.Millisecond

// Mute reports whether a peer has not acknowledged what was sent to it, and was not heard just now.
func (g *Group) Mute(id dmutex.NodeID) bool {
	st, err := g.Peer(id)
	return err != nil || st.Left || st.Unacked > 0 && (st.Silent == 0 || st.Silent >= justNow)
}

// Describe says in a few words what is known of each of the peers, and wraps the troubles with
// them. It is nil for no peers.
func (g *Group) Describe(ids []dmutex.NodeID) (all error) {
	for _, id := range ids {
		st, known := g.Peer(id)
		switch {
		case known != nil:
		case st.Left:
			known = errors.New("gone")
		case st.Silent >= justNow:
			known = fmt.Errorf("silent for %v", st.Silent.Round(100*time.Millisecond))
		case st.Silent > 0:
			known = errors.New("heard just now")
		default:
			known = errors.New("never heard")
		}
		if name := g.About(id).Name; name != "" {
			known = fmt.Errorf("%s, %w", name, known)
		}
		if known = fmt.Errorf("%v (%w)", id, known); all != nil {
			known = fmt.Errorf("%w, %w", all, known)
		}
		all = known
	}
	return all
}
