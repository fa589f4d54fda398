package group

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/wire"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/transport"
)

// An authority is a machine of package membership with its driver: a consent or a record. It is
// guarded by the mutex of the Group.
type authority interface {
	// The machine's own. A driver adds to some.
	Phase() membership.Phase
	View() membership.View
	Missing(b []dmutex.NodeID) []dmutex.NodeID
	Holders() []membership.Holder
	Deadline() int64
	Clock(clock uint64)
	Tick(now int64) []membership.Message
	Met(now int64, peer dmutex.NodeID, life uint64) []membership.Message
	Lost(now int64, peer dmutex.NodeID) []membership.Message
	Handle(now int64, m membership.Message) ([]membership.Message, error)
	Report(now int64, holds []membership.Hold, word *membership.Word) []membership.Message
	Past() *membership.Past
	Trouble(now int64, epoch uint64) []membership.Message
	Leave(now int64) []membership.Message

	now() int64                                                          // the time of an input; what a lease has not covered until then ends first
	follow(now int64)                                                    // does what its machine wants besides views
	taken(now int64, by dmutex.NodeID, life uint64) []membership.Message // a peer has met that life of this number
	stranger(now int64) []membership.Message                             // a node that is no peer has sent a frame
	obstacle() error                                                     // says for what but members this node waits
	stopped() error                                                      // says why the machine has stopped
	departed(late error) error                                           // returns the error of a Close; late if its context has ended first
	closed(released bool)                                                // ends what outlives the group, if all locks were released
	lease(now int64) *Lease
}

// consent is the authority of the strict mode: the members agree.
type consent struct {
	*membership.Machine
	group    *Group
	renaming bool // the life is being replaced by a higher one
}

// rivalPatience is how long a new process goes on beside another with its number, which may be
// about to end.
const rivalPatience = 2 * time.Second

// newConsent makes the members of Config the group.
func newConsent(g *Group) (err error) {
	cfg := &g.cfg
	if l, ok := cfg.Link.(transport.DynamicLink); ok && l.Become(dmutex.None) == nil {
		return dmutex.Misuse("the link was made without a number, for Open: give it one and the members, as tcplink.Config.Self and Peers do")
	}
	c := &consent{group: g}
	g.who, g.life = c, c.newLife(0)
	g.limit = len(cfg.Members)
	g.state.Store(leaseValid)
	if err := g.describe(cfg.Members); err != nil {
		return err
	}
	c.Machine, err = c.newMachine(g.life)
	return err
}

func (c *consent) newMachine(life uint64) (*membership.Machine, error) {
	cfg := &c.group.cfg
	return membership.New(membership.Config{
		Self: cfg.Self, Members: cfg.Members, Life: life, Fence: cfg.Fence, Clock: clockNow(),
	})
}

// newLife draws a life above the one given. No two members have the same.
func (c *consent) newLife(above uint64) uint64 {
	cfg := &c.group.cfg
	life, step := drawLife(above, 20), uint64(len(cfg.Members)+1)
	return life - life%step + step + uint64(slices.Index(cfg.Members, cfg.Self))
}

func (c *consent) Report(now int64, holds []membership.Hold, _ *membership.Word) []membership.Message {
	return c.Machine.Report(now, holds)
}

func (c *consent) now() int64                          { return c.group.Mail.Now() }
func (c *consent) Past() *membership.Past              { return &membership.Past{} }
func (c *consent) stranger(int64) []membership.Message { return nil }
func (c *consent) lease(int64) *Lease                  { return nil }
func (c *consent) closed(bool)                         {}

// Met tells the peer the name of this process.
func (c *consent) Met(now int64, peer dmutex.NodeID, life uint64) []membership.Message {
	_, _ = c.group.Mail.Send(peer, wire.Write(nil, func(f *wire.Fields) { nameFields(f, &c.group.cfg.Name) }))
	return c.Machine.Met(now, peer, life)
}

// Handle forgives a message that was for the former life.
func (c *consent) Handle(now int64, m membership.Message) ([]membership.Message, error) {
	out, err := c.Machine.Handle(now, m)
	if err != nil && c.renaming {
		return nil, nil
	}
	return out, err
}

// follow lets nothing be granted while this member is in doubt. It goes on under a higher
// life if this one was in no view and a higher one of its number is known.
func (c *consent) follow(now int64) {
	switch doubt := c.obstacle(); {
	case doubt == nil && c.Phase() != membership.Stopped:
		c.group.Locks.Resume()
	case doubt != nil && c.group.Locks.Halt():
		c.group.pause(now)
		c.group.logOften(slog.LevelWarn, "in doubt", slog.Any("err", doubt))
	}
	if c.Phase() != membership.Older {
		return
	}
	switch later := c.Later(); {
	case c.group.Locks.Why() != nil:
		c.group.finish() // it was in no view
	case former(later):
		c.rename(later)
	default:
		c.group.stop(ErrNumberTaken)
	}
}

func (c *consent) stopped() error {
	if c.Later() == 0 {
		return ErrEvicted
	}
	return locks.ErrReplaced
}

func (c *consent) departed(late error) error {
	if late == nil {
		return nil
	}
	return fmt.Errorf("close: members %v did not answer in time, so the others wait for this node to return: %w", c.Missing(nil), late)
}

// obstacle says what this member is told, if it is in doubt.
func (c *consent) obstacle() error {
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

func (c *consent) taken(now int64, by dmutex.NodeID, life uint64) []membership.Message {
	switch g := c.group; {
	case c.Phase() != membership.Outside && c.Phase() != membership.Older:
		return c.Taken(now, by, life)
	case life > g.life && former(life): // unless it answers when we have a higher one
		c.rename(life)
	case now-g.rival > int64(rivalPatience):
		g.stop(ErrNumberTaken)
	}
	return nil
}

// former reports whether a higher life of this number can be that of a former process, whose
// clock was ahead. If not, this process was paused or cut off, and has a successor.
func former(life uint64) bool { return life > sinceEpoch() }

// rename goes on under a higher life than the one given.
func (c *consent) rename(above uint64) {
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
			g.peer(id).pending = nil
		}
		g.mu.Unlock()
		g.Mail.Rename(life)
		g.do(func(now int64) []membership.Message {
			c.renaming = false // if that life is not high enough either, the next input shows it
			return c.Tick(now)
		})
	})
}
