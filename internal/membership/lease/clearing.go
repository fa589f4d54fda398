package lease

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
)

// A clearing is the wait of rule 5.4, until no lease of an excluded life can run: D after a life first
// knew a record that is not older than the last exclusion. One witness suffices, since the end of those
// leases is a fact of real time. A store that can prove that a process is dead spares the wait.
type clearing struct {
	drain    int64  // D
	wait     int64  // for the leases that may run now: D, or longer where the last members had a longer lease
	since    int64  // when the last exclusion was known first
	due      uint64 // the exclusion that is cleared next: the last one, or one before it
	dueSince int64  // when that was known first
	cleared  uint64 // the last exclusion whose leases have ended; others may have told of it before its record was read
	gone     []gone // that were members, the last at the end
}

// A gone is a life of the store whose member was excluded in this epoch or before, or has left.
type gone struct {
	proof   string
	unclean uint64
}

func newClearing(lease int64) clearing {
	return clearing{drain: leases.Drain(lease), wait: leases.Drain(lease)}
}

// waits reports whether leases of lives that were excluded until this epoch may run.
func (c *clearing) waits(unclean uint64) bool { return c.cleared < unclean }

// isDue reports whether the wait for an exclusion, due, has ended by time. Later exclusions do not delay
// what is due.
func (c *clearing) isDue(now int64, unclean uint64) bool {
	if c.due <= c.cleared {
		c.due, c.dueSince = unclean, c.since
	}
	return now >= c.dueAt(unclean)
}

// dueAt returns when the wait for that exclusion ends by time, never if nothing is waited for.
func (c *clearing) dueAt(unclean uint64) int64 {
	if !c.waits(unclean) {
		return due.Never
	}
	return c.dueSince + c.wait
}

// settle forgets longer leases that have ended.
func (c *clearing) settle(unclean uint64) {
	if !c.waits(unclean) {
		c.wait = c.drain
	}
}

// knows takes in the next record: a new exclusion, which members are gone, what is cleared, and the
// length of the leases that may run, if the group is one that this life, with its own, cannot join.
func (c *clearing) knows(now, own int64, was, r *Record) {
	if r.Unclean > was.Unclean {
		c.since = now
	}
	for _, e := range was.Members {
		if e.Proof != "" && r.number(e.Life) == dmutex.None {
			c.gone = append(slices.Clone(c.gone[max(len(c.gone)-membership.MaxMembers+1, 0):]), gone{e.Proof, r.Unclean})
		}
	}
	c.cleared = max(c.cleared, r.Cleared)
	if r.Lease > own {
		c.wait = max(c.wait, leases.Drain(r.Lease))
	}
}

// provable reports whether the store may prove that an exclusion is over: where each life that is waited
// for is one of the store.
func (c *clearing) provable(unclean uint64, r *Record) bool {
	return c.waits(unclean) && r.Unproved <= c.cleared
}

// proves reports whether the lives that the store shows clear an exclusion: members of the record are
// all that live, or others that can hold nothing. See [Machine.Living].
func (c *clearing) proves(unclean uint64, r *Record, names []string) bool {
	harmless := func(name string) bool {
		return slices.ContainsFunc(r.Members, func(e Entry) bool { return e.Proof == name }) ||
			slices.ContainsFunc(c.gone, func(g gone) bool { return g.proof == name && g.unclean <= c.cleared })
	}
	return c.provable(unclean, r) && !slices.ContainsFunc(names, func(name string) bool { return !harmless(name) })
}

// Leapt tells the machine, before an input, by how much its clock has run ahead of a steady one
// since the last input: it counts what the wall clock was set forward by, as that may have been
// a sleep. A lease may end too soon, but not a wait for the leases of others.
func (c *clearing) Leapt(by int64) { c.since, c.dueSince = c.since+by, c.dueSince+by }
