package group

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport"
)

// An authority says who is a member: the members by consent, or the record in a store. It
// is a machine of package membership with its driver, and is guarded by the mutex of the
// Group.
type authority interface {
	machine
	now() int64                                               // the time of an input; what a lease has not covered until then ends first
	follow(now int64)                                         // does what its machine wants besides views
	alive(now int64, from dmutex.NodeID) []membership.Message // takes a sign of life of a peer
	taken(now int64, life uint64) []membership.Message        // a peer has met that life of this number
	stranger()                                                // takes a frame of a node that is no peer; called without the mutex
	obstacle() error                                          // says for what but members this node waits
	stopped() error                                           // says why the machine has stopped
	departed(late error) error                                // returns the error of a Close; late if its context has ended first
	lease(now int64) *Lease
}

// consent is the authority of the strict mode: the members agree.
type consent struct {
	*membership.Machine
	group    *Group
	renaming bool  // the life is being replaced by a higher one
	doubt    int64 // when a peer first told that this member was replaced; 0 if it is not in doubt
	doubtAt  int64 // when to ask again, or give the doubt up
}

const (
	// rivalPatience is how long a new process goes on when it is told that another
	// process with its number is alive: the other one may be about to end.
	rivalPatience = 2 * time.Second

	// A member that is told that it was replaced asks its peers each doubtPause, and believes it
	// when it is told again. After doubtPatience it goes on.
	doubtPause    = 100 * time.Millisecond
	doubtPatience = 5 * doubtPause
)

// newConsent makes the members of Config the group.
func newConsent(g *Group) (err error) {
	cfg := &g.cfg
	if cfg.Lease != 0 {
		return dmutex.Misuse("Config.Lease needs Config.Store: without one, members that are gone are waited for")
	}
	if l, ok := cfg.Link.(transport.DynamicLink); ok && l.Become(dmutex.None) == nil {
		return dmutex.Misuse("Config.Link was made without a number, for a node with Config.Store: give it a number and the members, as tcplink.Config.Self and Peers do, or set Config.Store")
	}
	c := &consent{group: g, doubtAt: math.MaxInt64}
	g.who, g.life = c, c.newLife(0)
	g.limit, g.needsMail, g.farewell = len(cfg.Members), true, time.Second
	g.state.Store(uint32(LeaseValid))
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

func (c *consent) now() int64                                            { return c.group.Mail.Now() }
func (c *consent) alive(int64, dmutex.NodeID) (out []membership.Message) { return nil }
func (c *consent) stranger()                                             {}
func (c *consent) obstacle() error                                       { return nil }
func (c *consent) lease(int64) *Lease                                    { return nil }

// Deadline also says when to look at the doubt.
func (c *consent) Deadline() int64 { return min(c.Machine.Deadline(), c.doubtAt) }

func (c *consent) Tick(now int64) []membership.Message {
	switch {
	case now < c.doubtAt:
	case now-c.doubt < int64(doubtPatience):
		c.askInDoubt(now)
	default:
		c.doubt, c.doubtAt = 0, math.MaxInt64
		c.group.Locks.Resume()
	}
	return c.Machine.Tick(now)
}

// Handle forgives a message that was for the former life.
func (c *consent) Handle(now int64, m membership.Message) ([]membership.Message, error) {
	out, err := c.Machine.Handle(now, m)
	if err != nil && c.renaming {
		return nil, nil
	}
	return out, err
}

// follow goes on under a higher life if a higher one of this number is known.
func (c *consent) follow(int64) {
	if c.Phase() != membership.Older {
		return
	}
	switch later := c.Later(); {
	case c.group.Locks.Why() != nil:
		c.group.leave() // it was in no view
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
	return fmt.Errorf("node: close: members %v did not answer in time, so the others wait for this node to return: %w", c.Missing(nil), late)
}

func (c *consent) taken(now int64, life uint64) []membership.Message {
	switch g := c.group; {
	case c.Phase() != membership.Outside && c.Phase() != membership.Older:
		c.accused(now)
	case life > g.life && former(life): // unless it answers when we have a higher one
		c.rename(life)
	case now-g.rival > int64(rivalPatience):
		g.stop(ErrNumberTaken)
	}
	return nil
}

// accused takes the word that this member was replaced. One word ends no process for
// good: it is granted nothing while it asks, and ends when it is told again.
func (c *consent) accused(now int64) {
	switch {
	case c.doubt == 0:
		c.doubt = max(now, 1)
		c.group.Locks.Halt()
		c.askInDoubt(now)
	case now-c.doubt >= int64(doubtPause):
		c.group.stop(locks.ErrReplaced)
	}
}

// askInDoubt asks the peers with which process of this number they live. Those that live with this
// one say nothing about another.
func (c *consent) askInDoubt(now int64) {
	c.doubtAt = now + int64(doubtPause)
	for _, id := range c.group.Others() {
		c.group.Mail.Challenge(id)
	}
}

// former reports whether a higher life of this number can be that of a former process,
// whose clock was ahead. If not, it began after this one: this process was paused or cut
// off, and has a successor.
func former(life uint64) bool { return life > uint64(max(sinceEpoch(), 0)) }

// rename goes on under a higher life than the one given.
func (c *consent) rename(above uint64) {
	if !c.renaming {
		c.renaming = true
		c.group.running.Go(func() { c.renameAbove(above) })
	}
}

func (c *consent) renameAbove(life uint64) {
	g := c.group
	g.mu.Lock()
	life = c.newLife(life)
	m, err := c.newMachine(life)
	if err != nil {
		panic("node: " + err.Error()) // it took the first
	}
	g.life, c.Machine, g.pending = life, m, nil
	g.trace(trace.Event{What: trace.Renamed, Life: life})
	g.mu.Unlock()
	_ = g.Mail.Rename(life)
	g.mu.Lock()
	c.renaming = false // if that life is not high enough either, the next input shows it
	g.mu.Unlock()
	g.do(machine.Tick)
}
