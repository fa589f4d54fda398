package group

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/trace"
)

// A proof is how a store that can prove that a process is dead spares a record its waits.
type proof struct {
	prover store.Prover // nil if the store is none, and if the members serve clients, which may live on and hold their locks

	patience time.Duration // see proofPatience; 0 without a prover

	life  store.Life // nil before this life joins, and if the store proves nothing
	lasts int64      // the lease of this life, or of the one before it, until then

	watches   map[string]context.CancelFunc // by the name of a life
	looked    uint64                        // the epoch of the record at the last look who lives; 0 if another is due
	looking   bool
	strangers []string // that live and are no members
}

// forGood is until when a proof counts.
const forGood = math.MaxInt64

// prove looks who lives while this node waits for leases: when the record has changed, and when
// a life is over.
func (l *record) prove() {
	r := l.Record()
	if until, _, _ := l.Waits(); l.prover != nil && until != 0 && !l.looking && r.Epoch != l.looked {
		l.looking, l.looked = true, r.Epoch
		l.group.running.Go(func() { l.look(r.Unclean) })
	}
}

// look asks the store who lives.
func (l *record) look(unclean uint64) {
	g := l.group
	var names []string
	err := within(g.done, func(ctx context.Context) (err error) {
		names, err = l.prover.Living(ctx)
		return err
	})
	g.do(func(now int64) []membership.Message {
		l.looking, l.strangers = false, nil
		if err != nil {
			return nil // the leases are waited for
		}
		out := l.Living(now, unclean, names)
		if until, _, _ := l.Waits(); until == 0 {
			g.trace(trace.Event{What: trace.Dead, N: 1})
			if l.sayAt != math.MaxInt64 {
				g.Log(slog.LevelInfo, "no lease is waited for: only members live", slog.Bool("proved", true))
			}
			return out
		}
		members := l.Record().Members
		l.strangers = slices.DeleteFunc(names, func(name string) bool {
			return l.own(name) || slices.ContainsFunc(members, func(e membership.Entry) bool { return e.Proof == name })
		})
		l.watch()
		return out
	})
	g.Mail.Flush()
}

// own reports whether a life is that of this node.
func (l *record) own(name string) bool { return l.life != nil && l.life.Name() == name }

// watch waits for the ends of the lives that matter, and of no other.
func (l *record) watch() {
	if l.prover == nil {
		return
	}
	names := l.strangers
	if l.Self() != dmutex.None {
		for _, e := range l.Record().Members {
			if e.Proof != "" && !l.own(e.Proof) {
				names = append(slices.Clip(names), e.Proof)
			}
		}
	}
	for name, end := range l.watches {
		if !slices.Contains(names, name) {
			end()
			delete(l.watches, name)
		}
	}
	for _, name := range names {
		if l.watches[name] == nil {
			ctx, end := context.WithCancel(l.group.done)
			l.watches[name] = end
			l.group.running.Go(func() { l.await(ctx, name) })
		}
	}
}

// await waits for the end of a life.
func (l *record) await(ctx context.Context, name string) {
	err := within(ctx, func(ctx context.Context) error { return l.prover.Over(ctx, name) })
	if ctx.Err() != nil {
		return
	}
	g := l.group
	g.do(func(now int64) []membership.Message {
		l.looked = 0
		for _, e := range l.Record().Members {
			if e.Proof == name && err == nil {
				return l.died(now, e.Node, forGood)
			}
		}
		return nil
	})
	g.Mail.Flush()
}

// retire ends the life of the store when the lease of this life has ended: until then, code
// that has lost a lock has time to stop.
func (l *record) retire(now int64) {
	life := l.life
	if l.life = nil; life != nil {
		time.AfterFunc(time.Duration(l.lasts-now), func() { _ = life.Close() })
	}
}

// closed ends the life of the store with the node.
func (l *record) closed(released bool) {
	l.group.mu.Lock()
	defer l.group.mu.Unlock()
	if released && l.life != nil {
		_ = l.life.Close()
		l.life = nil
	}
	l.retire(l.time.Now())
}
