package demo

import (
	"context"
	"slices"
	"time"

	"github.com/dmutex/dmutex"
)

// A crash is what the others noticed of a teller that was killed for good: the longest
// waits for a lock that ended after it.
type crash struct {
	Held   bool          `json:"held"`              // it held the lock of the account; else it held none
	Free   time.Duration `json:"free_ns"`           // for a lock that it neither held nor was the home of
	Holder time.Duration `json:"held_ns,omitempty"` // for the one that it held
	Home   time.Duration `json:"home_ns,omitempty"` // for those at home with it, if there are any
}

// replaceOne kills a teller for good, and starts a new one when all locks go on. Every other time the
// teller holds the lock of the account; otherwise it holds none.
func (k *killRun) replaceOne(ctx context.Context, p *process) error {
	c := crash{Held: k.Killed%2 == 0}
	p.order(order{Word: wordRest, Hold: c.Held})
	var self dmutex.NodeID
	if err := k.await(ctx, wordResting, func(_ *process, r report) { self = r.Self }, p); err != nil {
		return err
	}
	if err := k.strike(ctx, p); err != nil {
		return err
	}
	k.fell = time.Now() // what was granted before may still be reported
	k.Crashes = append(k.Crashes, c)
	k.lost, k.due = make(map[string]bool), make(map[string]bool)
	for lock, home := range k.homes {
		k.lost[lock], k.due[lock] = home == self, true
	}
	k.processes = slices.DeleteFunc(k.processes, func(q *process) bool { return p == q })
	for len(k.due) > 0 {
		if err := k.await(ctx, wordProgress, k.took); err != nil {
			return err
		}
	}
	how := "while it held no lock"
	if c = k.Crashes[len(k.Crashes)-1]; c.Held {
		how = "while it held a lock, which waited for " + brief(c.Holder)
	}
	if c.Home > 0 {
		how += "; those at home with it waited for up to " + brief(c.Home)
	}
	k.stage.progress.Say("%-12s %s was killed %s; all others for up to %s", k.Algorithm, p.name(), how, brief(c.Free))
	k.Joined++
	return k.join(ctx, k.newcomer(dmutex.NodeID(k.task.Nodes+k.Joined)))
}

// took takes the grants that a teller reports.
func (k *killRun) took(_ *process, r report) {
	for lock, t := range r.Turns {
		k.homes[lock] = t.Home
		after := time.Duration(t.Granted - k.fell.UnixNano())
		if len(k.Crashes) == 0 || after <= 0 {
			continue
		}
		delete(k.due, lock)
		c := &k.Crashes[len(k.Crashes)-1]
		longest := &c.Free
		switch {
		case c.Held && lock == accountLock:
			longest = &c.Holder
		case k.lost[lock]:
			longest = &c.Home
		}
		*longest = max(*longest, min(t.Wait, after))
	}
}
