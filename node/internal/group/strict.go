package group

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/consent"
	"github.com/dmutex/dmutex/internal/wire"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/transport"
)

// strict is the authority of the strict mode: the members agree.
type strict struct {
	*consent.Machine
	group    *Group
	renaming bool // the life is being replaced by a higher one
}

// rivalPatience is how long a new process goes on beside another with its number, which may be
// about to end.
const rivalPatience = 2 * time.Second

// newStrict makes the members of Config the group.
func newStrict(g *Group) (err error) {
	cfg := &g.cfg
	if l, ok := cfg.Link.(transport.DynamicLink); ok && l.Become(dmutex.None) == nil {
		return dmutex.Misuse("the link was made without a number, for Open: give it one and the members, as tcplink.Config.Self and Peers do")
	}
	c := &strict{group: g}
	g.who, g.life = c, c.newLife(0)
	g.limit = len(cfg.Members)
	g.lease = leases.Valid
	if err := g.describe(cfg.Members); err != nil {
		return err
	}
	c.Machine, err = c.newMachine(g.life)
	return err
}

func (c *strict) newMachine(life uint64) (*consent.Machine, error) {
	cfg := &c.group.cfg
	return consent.New(consent.Config{
		Self: cfg.Self, Members: cfg.Members, Life: life, Fence: cfg.Fence, Clock: c.group.clockNow(), Speaks: c.group.speak,
	})
}

// newLife draws a life above the one given. No two members have the same.
func (c *strict) newLife(above uint64) uint64 {
	cfg := &c.group.cfg
	life, step := c.group.drawLife(above, 20), uint64(len(cfg.Members)+1)
	return life - life%step + step + uint64(slices.Index(cfg.Members, cfg.Self))
}

func (c *strict) Report(now int64, holds []membership.Hold, _ *membership.Word) membership.Output {
	return c.Machine.Report(now, holds)
}

func (c *strict) now() int64 {
	c.Clock(c.group.clockNow())
	return int64(c.group.Mail.Now().Age())
}

func (c *strict) stands(int64) standing {
	return standing{view: c.View(), missing: c.Missing(nil), why: c.told()}
}

// Met tells the peer the name of this process. It forgets the peer's: another process may have the number
// now, and the peer tells its name, too.
func (c *strict) Met(now int64, peer dmutex.NodeID, life uint64) membership.Output {
	c.group.remember(map[dmutex.NodeID]About{peer: {}})
	_, _ = c.group.Mail.Send(peer, wire.Write(nil, func(f *wire.Fields) { nameFields(f, &c.group.cfg.Name) }))
	return c.Machine.Met(now, peer, life)
}

// Handle forgives a message that was for the former life.
func (c *strict) Handle(now int64, m membership.Message) (membership.Output, error) {
	out, err := c.Machine.Handle(now, m)
	if err != nil && c.renaming {
		err = nil
	}
	return out, err
}

// leave is over at once for a life that was in no view, and has learnt of a higher one.
func (c *strict) leave(now int64) membership.Output {
	if c.Phase() == consent.Older {
		c.group.finish()
	}
	return c.Machine.Leave(now)
}

// event lets nothing be granted while this member is in doubt.
func (c *strict) event(now int64, e membership.Event) {
	g := c.group
	switch e := e.(type) {
	case consent.Doubted:
		g.doubted = true
		g.Locks.Halt()
		g.pause(now)
		g.LogOften(slog.LevelWarn, "in doubt", slog.Any("err", c.told()))
	case consent.Trusted:
		g.doubted = false
		g.settle(g.Locks.Resume())
		g.mayAct(now)
	case consent.Ended:
		c.ended(e)
	case taken:
		g.apply(now, c.taken(now, e))
	}
}

func (c *strict) ended(e consent.Ended) {
	g := c.group
	switch {
	case e.Phase == consent.Older:
		c.older(e.Later)
		return
	case e.Phase == consent.Left:
	case e.Later == 0:
		g.stop(ErrEvicted)
	default:
		g.stop(locks.ErrReplaced)
	}
	g.finish() // also if it was leaving
}

// older goes on under a higher life: this one was in no view.
func (c *strict) older(later uint64) {
	switch g := c.group; {
	case g.Locks.Why() != nil:
		g.finish()
	case c.former(later):
		c.rename(later)
	default:
		g.stop(ErrNumberTaken)
	}
}

func (c *strict) depart(ctx context.Context) error {
	g := c.group
	late := g.leave(ctx, c.leave)
	g.mu.Lock()
	defer g.mu.Unlock()
	if late == nil {
		return nil
	}
	return fmt.Errorf("close: members %v did not answer in time, so the others wait for this node to return: %w", c.Missing(nil), late)
}

// told says what this member is told, if it is in doubt.
func (c *strict) told() error {
	const until = ": nothing is granted until another member denies it; if none does within a second, this node stops"
	switch by, later := c.Doubt(); {
	case by == dmutex.None:
		return nil
	case later == 0:
		return fmt.Errorf("member %v says that the group goes on without this process%s", by, until)
	default:
		return fmt.Errorf("member %v says that another process took this node's number%s", by, until)
	}
}

func (c *strict) taken(now int64, e taken) membership.Output {
	switch g := c.group; {
	case c.Phase() != consent.Outside && c.Phase() != consent.Older:
		return c.Taken(now, e.by, e.life)
	case e.life > g.life && c.former(e.life): // unless it answers when we have a higher one
		c.rename(e.life)
	case now-g.rival > int64(rivalPatience):
		g.stop(ErrNumberTaken)
	}
	return membership.Output{}
}

// former reports whether a higher life of this number can be that of a former process, whose
// clock was ahead. If not, this process was paused or cut off, and has a successor.
func (c *strict) former(life uint64) bool { return life > c.group.sinceEpoch() }

// rename goes on under a higher life than the one given.
func (c *strict) rename(above uint64) {
	if c.renaming {
		return
	}
	c.renaming = true
	g := c.group
	g.running.Go(func() {
		g.mu.Lock()
		life := c.newLife(above)
		m, err := c.newMachine(life)
		if err != nil {
			panic("node: " + err.Error()) // it took the first
		}
		g.life, c.Machine = life, m
		for _, id := range g.Others() {
			g.peer(id).pending, g.peer(id).parts = nil, nil
		}
		g.mu.Unlock()
		g.Mail.Rename(life)
		g.do(func(now int64) membership.Output {
			if c.renaming = false; c.Phase() == consent.Older { // that life is not high enough either
				c.older(c.Later())
			}
			return c.Tick(now)
		})
	})
}

// Evict is node.Node.Evict. If ctx ends first, it returns ctx's error.
func (g *Group) Evict(ctx context.Context, members ...dmutex.NodeID) error {
	c, ok := g.who.(*strict)
	if !ok {
		return dmutex.Misuse("evict: the group has a store, and excludes members that are gone by itself")
	}
	spoken := make(map[dmutex.NodeID][2]uint64) // the lives that the operator spoke of, and when they refuted it last
	gone, err := false, g.Locks.Why()
	for err == nil {
		var next <-chan struct{}
		g.do(func(now int64) (say membership.Output) {
			next = g.next
			view := c.View().Nodes()
			if len(view) > 0 && !slices.ContainsFunc(members, func(id dmutex.NodeID) bool {
				return slices.Contains(view, id) || !slices.Contains(g.cfg.Members, id)
			}) {
				gone = c.Phase() == consent.Acting
				return say // such a view acts when it is due, and another would be due later
			}
			for _, id := range members {
				life, refuted := c.Newest(id)
				switch was, again := spoken[id]; {
				case again && life != was[0]:
					err = dmutex.Misuse(fmt.Sprintf("evict: member %v has restarted meanwhile, and joins again", id))
				case again && refuted != was[1]: // the others would take it in again each time
					err = dmutex.Misuse(fmt.Sprintf("evict: member %v has answered, so its process is not dead: end it first", id))
				}
				spoken[id] = [...]uint64{life, refuted}
			}
			if err == nil && !c.Evicting(members...) {
				say, err = c.Evict(now, members...)
			}
			return say
		})
		g.Mail.Flush()
		if gone {
			return nil
		}
		if err == nil {
			err = g.awaitView(ctx, next, time.After(g.clocks.Span(time.Second))) // another's round may have come between
		}
	}
	return err
}
