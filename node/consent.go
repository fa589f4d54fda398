package node

import (
	"fmt"
	"math"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/trace"
)

// An authority says who is a member: the members by consent, or the record in a store. It
// drives its machine of package membership beside views, whose mutex guards it.
type authority interface {
	now() int64              // the time of an input; what a lease has not covered until now ends first
	clock() func() int64     // by which the locks are held for a time; nil if they are not
	mailTime(at int64) int64 // at by the clock of the mail
	covers() bool            // locks may be held now
	follow(now int64)        // does what the machine wants beside views
	deadline() int64         // when watch has something to do
	watch(now int64) (out []membership.Message)
	near(peer dmutex.NodeID, here bool)
	heard(now int64, from dmutex.NodeID) (out []membership.Message) // a sign of life
	takenBy(now int64, life uint64) (out []membership.Message)      // see views.takenBy
	stranger()                                                      // a frame came from a node that is no peer; without the mutex
	older()                                                         // a higher life of this number is known
	waits() error                                                   // for what but members this node waits
	needsStore() error                                              // why the store keeps this node from acting
	stopped() error                                                 // why the machine has stopped
	left() error                                                    // why it has stopped instead of leaving
	late(why error) error                                           // the error of a Close that has ended too early
	farewell() time.Duration                                        // how long a Close waits for the peers to learn of it
	status(now int64) *LeaseStatus
	close()
}

// consent is the authority of the strict mode: the members agree.
type consent struct {
	views   *views
	machine *membership.Machine
	doubt   int64 // when a peer first told that this member was replaced; 0 if it is not in doubt
	doubtAt int64 // when to ask again, or give the doubt up
}

const (
	// takenPatience is how long a new process goes on when it is told that another
	// process with its number is alive: the other one may be about to end.
	takenPatience = 2 * time.Second

	// A member that is told that it was replaced asks its peers each doubtPause, and believes it
	// when it is told again. After doubtPatience it goes on.
	doubtPause    = 100 * time.Millisecond
	doubtPatience = 5 * doubtPause
)

func newConsent(v *views) (*consent, error) {
	m, err := v.node.newMachine(v.life)
	v.machine = m
	return &consent{views: v, machine: m, doubtAt: math.MaxInt64}, err
}

func (c *consent) now() int64                                            { return c.views.node.mail.Now() }
func (c *consent) clock() func() int64                                   { return nil }
func (c *consent) mailTime(at int64) int64                               { return at }
func (c *consent) covers() bool                                          { return true }
func (c *consent) follow(int64)                                          {}
func (c *consent) deadline() int64                                       { return c.doubtAt }
func (c *consent) near(dmutex.NodeID, bool)                              {}
func (c *consent) heard(int64, dmutex.NodeID) (out []membership.Message) { return nil }
func (c *consent) stranger()                                             {}
func (c *consent) waits() error                                          { return nil }
func (c *consent) needsStore() error                                     { return nil }
func (c *consent) left() error                                           { return nil }
func (c *consent) farewell() time.Duration                               { return time.Second }
func (c *consent) status(int64) *LeaseStatus                             { return nil }
func (c *consent) close()                                                {}

func (c *consent) watch(now int64) (out []membership.Message) {
	c.doubts(now)
	return nil
}

func (c *consent) older() {
	if later := c.machine.Later(); former(later) {
		c.rename(later)
	} else {
		c.views.node.stop(ErrNumberTaken)
	}
}

func (c *consent) stopped() error {
	if c.machine.Later() == 0 {
		return ErrEvicted
	}
	return ErrReplaced
}

func (c *consent) late(why error) error {
	missing, _ := c.views.missing()
	return fmt.Errorf("node: close: members %v did not answer in time, so the others wait for this node to return: %w", missing, why)
}

func (c *consent) takenBy(now int64, life uint64) (out []membership.Message) {
	switch v := c.views; {
	case c.machine.Phase() != membership.Outside && c.machine.Phase() != membership.Older:
		c.accused(now)
	case life > v.life && former(life): // unless it answers when we have a higher one
		c.rename(life)
	case now-v.taken > int64(takenPatience):
		v.node.stop(ErrNumberTaken)
	}
	return nil
}

// accused takes the word that this member of the strict mode was replaced. One word ends
// no process for good: it is granted nothing while it asks, and ends when it is told again.
func (c *consent) accused(now int64) {
	switch {
	case c.doubt == 0:
		c.doubt = max(now, 1)
		c.views.node.locks.Halt()
		c.askInDoubt(now)
	case now-c.doubt >= int64(doubtPause):
		c.views.node.stop(ErrReplaced)
	}
}

// askInDoubt asks the peers with which process of this number they live. Those that live with this
// one say nothing about another.
func (c *consent) askInDoubt(now int64) {
	c.doubtAt = now + int64(doubtPause)
	for _, id := range c.views.node.others() {
		c.views.node.mail.Challenge(id)
	}
	c.views.node.mail.Wake(c.doubtAt)
}

// doubts does what is due while this member is in doubt.
func (c *consent) doubts(now int64) {
	switch {
	case now < c.doubtAt:
	case now-c.doubt < int64(doubtPatience):
		c.askInDoubt(now)
	default:
		c.doubt, c.doubtAt = 0, math.MaxInt64
		c.views.node.locks.Resume()
	}
}

// former reports whether a higher life of this number can be that of a former process,
// whose clock was ahead. If not, it began after this one: this process was paused or cut
// off, and has a successor.
func former(life uint64) bool { return life > uint64(max(sinceEpoch(), 0)) }

// rename goes on under a higher life than the one given.
func (c *consent) rename(above uint64) {
	if !c.views.renaming {
		c.views.renaming = true
		c.views.node.running.Go(func() { c.renameAbove(above) })
	}
}

func (c *consent) renameAbove(life uint64) {
	v := c.views
	v.mu.Lock()
	life = v.node.cfg.newLife(life)
	strict, err := v.node.newMachine(life)
	if err != nil {
		panic("node: " + err.Error()) // it took the first
	}
	v.life, c.machine, v.machine, v.pending = life, strict, strict, nil
	v.node.trace(trace.Event{What: trace.Renamed, Life: life})
	v.mu.Unlock()
	_ = v.node.mail.Rename(life)
	v.mu.Lock()
	v.renaming = false // if that life is not high enough either, the next input shows it
	v.mu.Unlock()
	v.do(machine.Tick)
}
