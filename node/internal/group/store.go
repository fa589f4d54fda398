package group

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/lease"
	"github.com/dmutex/dmutex/internal/storecall"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/trace"
)

// A result is what an operation of the store has returned.
type result struct {
	value []byte
	rev   store.Revision
	life  store.Life
}

// operate asks the store, and gives the machine the outcome.
func (l *record) operate(op lease.Operation, value []byte, rev store.Revision) {
	ctx, cancel := context.WithTimeout(l.group.done, l.group.clocks.Span(time.Duration(l.length/leases.Operation)))
	defer cancel()
	got, err := storecall.Ask(ctx, l.line, func(ctx context.Context) (got result, err error) { // nothing begins after Close has waited
		switch op {
		case lease.Load:
			got.value, got.rev, err = l.group.cfg.Store.Load(ctx)
		case lease.Swap:
			got.rev, err = l.group.cfg.Store.Swap(ctx, value, rev)
		case lease.Look:
			var living []string
			living, err = l.prover.Living(ctx)
			got.value = []byte(strings.Join(living, " "))
		default:
			if got.life, err = l.prover.Live(ctx); err == nil && ctx.Err() != nil { // it may be too late
				_ = got.life.Close()
				err = ctx.Err()
			}
		}
		return got, err
	})
	g := l.group
	g.do(func(now int64) membership.Output {
		switch l.err = nil; {
		case op == lease.Live && errors.Is(err, store.ErrNoProof):
			g.Log(slog.LevelInfo, "the store cannot prove that a process is dead", slog.Any("err", err))
			err = nil
		case op == lease.Look && errors.Is(err, store.ErrNoProof): // all may live
			for _, e := range l.Record().Members {
				got.value = append(append(got.value, e.Proof...), ' ')
			}
			err = nil
		case op == lease.Swap && errors.Is(err, store.ErrConflict):
			err = lease.ErrConflict
		case op == lease.Load && errors.Is(err, store.ErrForgotten):
			l.rev, err = got.rev, lease.ErrForgotten
		case err != nil:
			if l.err = err; errors.Is(err, store.ErrUnusable) && g.shown.Changes == 0 {
				g.stop(err)
			}
		case op == lease.Live:
			l.life, got.value = got.life, []byte(got.life.Name())
		case op == lease.Look:
		default:
			l.rev = got.rev
		}
		return l.Done(now, got.value, err)
	})
	g.Mail.Flush()
}

// A proof is how a store that can prove that a process is dead spares a record its waits.
type proof struct {
	prover store.Prover // nil if the store is none, and if the members serve clients, which may live on and hold their locks

	patience time.Duration // see proofPatience; 0 without a prover

	life  store.Life // nil before this life joins, and if the store proves nothing
	lasts int64      // the lease of this life, or of the one before it, until then

	watches map[dmutex.NodeID]context.CancelFunc // each ends the watch over a member's life
	looking bool                                 // the store is being asked who lives
	pause   int64                                // from then to the next look; 0 if a reason has come since
}

// seek makes the store be asked who lives, if that may spare the wait for leases: when the record has
// changed, and when a member's life is over.
func (l *record) seek(now int64) {
	if l.prover != nil && l.Provable() {
		l.group.timers[look], l.pause = now, 0
	}
}

// look asks the store who lives, and again after a pause, since lives that are about to join or to end
// count; but not if the store can never tell, until there is another reason.
func (l *record) look() {
	if l.looking {
		return
	}
	l.looking, l.pause = true, max(lookAgain, min(2*l.pause, l.length/leases.Look))
	g, unclean := l.group, l.Record().Unclean
	g.running.Go(func() {
		names, err := storecall.Within(g.done, l.prover.Living)
		g.do(func(now int64) (out membership.Output) {
			l.looking = false
			waited := l.Provable()
			if err == nil {
				out = l.Living(now, unclean, names)
			}
			switch {
			case l.idle():
			case l.Provable():
				if l.pause == 0 || !errors.Is(err, store.ErrNoProof) {
					g.timers[look] = now + l.pause
				}
			case waited: // until now
				g.trace(trace.Event{What: trace.Dead, N: 1})
				if g.timers[say] != due.Never {
					g.Log(slog.LevelInfo, "no lease is waited for: only members live", slog.Bool("proved", true))
				}
			}
			return out
		})
		g.Mail.Flush()
	})
}

// watch waits for the end of another member's life.
func (l *record) watch(member lease.Entry) {
	if l.prover == nil || member.Proof == "" {
		return
	}
	g := l.group
	ctx, cancel := context.WithCancel(g.done)
	l.watches[member.Node] = cancel
	g.running.Go(func() {
		over := func(ctx context.Context) (none struct{}, err error) { return none, l.prover.Over(ctx, member.Proof) }
		_, err := storecall.Within(ctx, over)
		for err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrNoProof) {
			select {
			case <-time.After(l.group.clocks.Span(time.Duration(l.watchPause()))):
				_, err = storecall.Within(ctx, over)
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return
		}
		g.do(func(now int64) (out membership.Output) {
			if l.seek(now); err == nil {
				out = l.died(now, member.Node, true)
			}
			return out
		})
		g.Mail.Flush()
	})
}

// unwatch ends a watch.
func (l *record) unwatch(id dmutex.NodeID) {
	if cancel := l.watches[id]; cancel != nil {
		cancel()
		delete(l.watches, id)
	}
}

// retire ends the life of the store when the lease of this life has ended: until then, code that has lost a
// lock has time to stop. If the clock has leapt beyond that, it has as much time from the loss.
func (l *record) retire(now int64) {
	life := l.life
	if l.life = nil; life != nil {
		wait := l.group.clocks.Span(max(time.Duration(max(l.lasts, now)-now), l.rests.Sub(l.group.Mail.Now())))
		time.AfterFunc(wait, func() { _ = life.Close() })
	}
}

// close ends the life of the store with the node. The store may take its time, so not under the mutex.
func (l *record) close(now int64, released bool) {
	life := l.life
	if released {
		l.life = nil
	}
	l.retire(now)
	if released && life != nil {
		l.group.running.Go(func() { _ = life.Close() })
	}
}
