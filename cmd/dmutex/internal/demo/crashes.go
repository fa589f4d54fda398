package demo

import (
	"context"
	"slices"
	"time"

	"github.com/dmutex/dmutex"
)

// replaceOne kills a teller for good, if possible the one that holds the lock, and starts
// a new one at once.
func (k *killRun) replaceOne(ctx context.Context, _ *process) error {
	if err := k.killForGood(ctx); err != nil {
		return err
	}
	p := k.newcomer(dmutex.NodeID(k.task.Nodes + k.Joined + 1))
	if err := k.join(ctx, p); err != nil {
		return err
	}
	k.Joined++
	k.say("%s has joined", p.name())
	return nil
}

// killForGood kills the teller that is inside. It waits for one, but not for long.
func (k *killRun) killForGood(ctx context.Context) error {
	p := k.insider()
	for looks := 0; p == nil && looks < 1000; looks++ {
		if err := k.watch(ctx, time.Millisecond); err != nil {
			return err
		}
		p = k.insider()
	}
	if p == nil {
		p = k.processes[0]
	}
	before := k.Inside
	if err := k.strike(ctx, p); err != nil {
		return err
	}
	k.processes = slices.DeleteFunc(k.processes, func(q *process) bool { return p == q })
	if k.Inside == before {
		k.say("%s was killed, but did not hold the lock any more", p.name())
		return nil
	}
	k.fell = time.Now()
	k.say("%s was killed while it held the lock", p.name())
	return nil
}

// granted takes a report of progress. The first grant after a holder was killed ends
// the failover.
func (k *killRun) granted(p *process, r report) {
	if k.fell.IsZero() || r.Granted <= k.fell.UnixNano() {
		return
	}
	took := time.Duration(r.Granted - k.fell.UnixNano())
	k.fell = time.Time{}
	k.Failovers = append(k.Failovers, took)
	k.say("%s has the lock, %s after that", p.name(), brief(took))
}

func (k *killRun) say(format string, args ...any) {
	k.stage.progress.Say("%-12s "+format, append([]any{k.Algorithm}, args...)...)
}
