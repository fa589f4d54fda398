package demo

import (
	"context"
	"slices"
	"time"

	"github.com/dmutex/dmutex"
)

// crash lets the tellers work. From time to time it kills one for good, if possible
// the one that holds the lock, and starts a new one at once.
func (k *killRun) crash(ctx context.Context, crashes int) error {
	last := k.processes[len(k.processes)-1].id
	for range crashes {
		if err := k.work(ctx, spell); err != nil {
			return err
		}
		began := time.Now()
		if err := k.killForGood(ctx); err != nil {
			return err
		}
		last++
		if err := k.welcome(ctx, last); err != nil {
			return err
		}
		if err := k.await(ctx, wordProgress, func(p *process, r report) { k.granted(p, r) }); err != nil {
			return err
		}
		k.Back = max(k.Back, time.Since(began))
	}
	return k.finish(ctx)
}

// killForGood kills the teller that is inside. It waits for one, but not for long.
func (k *killRun) killForGood(ctx context.Context) error {
	p := k.insider()
	for looks := 0; p == nil && looks < 1000; looks++ {
		if err := k.work(ctx, time.Millisecond); err != nil {
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

// welcome starts a new teller.
func (k *killRun) welcome(ctx context.Context, id dmutex.NodeID) error {
	p := &process{id: id, trade: k.task.Trade, at: "127.0.0.1:0"}
	k.processes = append(k.processes, p)
	if err := k.join(ctx, p); err != nil {
		return err
	}
	k.Joined++
	k.say("%s has joined", p.name())
	return nil
}

// granted takes a report of progress. The first grant after a holder was killed ends
// the failover: nobody had the lock since.
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
