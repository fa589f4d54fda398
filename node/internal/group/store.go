package group

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
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
func (l *record) operate(op membership.Operation, value []byte, rev store.Revision) {
	got, err := l.ask(func(ctx context.Context) (got result, err error) {
		switch op {
		case membership.Load:
			got.value, got.rev, err = l.group.cfg.Store.Load(ctx)
		case membership.Swap:
			got.rev, err = l.group.cfg.Store.Swap(ctx, value, rev)
		case membership.Look:
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
		case op == membership.Live && errors.Is(err, store.ErrNoProof):
			g.Log(slog.LevelInfo, "the store cannot prove that a process is dead", slog.Any("err", err))
			err = nil
		case op == membership.Look && errors.Is(err, store.ErrNoProof): // all may live
			for _, e := range l.Record().Members {
				got.value = append(append(got.value, e.Proof...), ' ')
			}
			err = nil
		case op == membership.Swap && errors.Is(err, store.ErrConflict):
			err = membership.ErrConflict
		case err != nil:
			if l.err = err; errors.Is(err, store.ErrUnusable) && g.shown.Changes == 0 {
				g.stop(err)
			}
		case op == membership.Live:
			l.life, got.value = got.life, []byte(got.life.Name())
		case op == membership.Look:
		default:
			l.rev = got.rev
		}
		return l.Done(now, got.value, err)
	})
	g.Mail.Flush()
}

// ask calls the store, and returns when the time of the operation is over even if the
// store does not. At most one call is left behind: the next operation waits for it.
func (l *record) ask(call func(context.Context) (result, error)) (result, error) {
	ctx, cancel := context.WithTimeout(l.group.done, time.Duration(l.length/leases.Operation))
	defer cancel()
	select {
	case l.busy <- struct{}{}:
	case <-ctx.Done():
		return result{}, errStuck
	}
	return within(ctx, func(ctx context.Context) (result, error) {
		defer func() { <-l.busy }()
		return call(ctx)
	})
}

// within returns what the store does, or errStuck if it has not returned a moment after ctx has
// ended. What it returns later is dropped.
func within[T any](ctx context.Context, call func(context.Context) (T, error)) (got T, err error) {
	type outcome struct {
		got T
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		got, err := call(ctx)
		done <- outcome{got, err}
	}()
	select {
	case o := <-done:
		return o.got, o.err
	case <-ctx.Done():
	}
	select {
	case o := <-done:
		return o.got, o.err
	case <-time.After(storePatience):
		return got, errStuck
	}
}

// errStuck is the outcome of an operation from which the store has not returned.
var errStuck = errors.New("the store does not return, although the context of the operation has ended: it breaks the contract of package store")

// A proof is how a store that can prove that a process is dead spares a record its waits.
type proof struct {
	prover store.Prover // nil if the store is none, and if the members serve clients, which may live on and hold their locks

	patience time.Duration // see proofPatience; 0 without a prover

	life  store.Life // nil before this life joins, and if the store proves nothing
	lasts int64      // the lease of this life, or of the one before it, until then

	watches map[string]context.CancelFunc // by the name of a life
	unclean uint64                        // the last exclusion whose leases are waited for; 0 if none are
	looking bool
	again   bool     // another look is due
	living  []string // by the last look, if leases are waited for
}

// prove looks who lives while this node waits for leases: when the record has changed, and when
// a life is over.
func (l *record) prove(waiting *membership.Event) {
	if l.unclean = waiting.Unclean; waiting.Until == 0 {
		l.unclean = 0
	}
	l.seek()
}

// seek looks who lives, if that may spare a wait.
func (l *record) seek() {
	if l.again = l.looking; l.prover != nil && l.unclean != 0 && !l.looking {
		l.looking = true
		unclean := l.unclean
		l.group.running.Go(func() { l.look(unclean) })
	}
}

// look asks the store who lives.
func (l *record) look(unclean uint64) {
	g := l.group
	names, err := within(g.done, l.prover.Living)
	g.do(func(now int64) (out membership.Output) {
		if l.looking, l.living = false, nil; l.again {
			l.seek()
		}
		if err != nil {
			return out // the leases are waited for
		}
		out = l.Living(now, unclean, names)
		if until, _, _ := l.Waits(); until == 0 {
			g.trace(trace.Event{What: trace.Dead, N: 1})
			if g.timers[say] != never {
				g.Log(slog.LevelInfo, "no lease is waited for: only members live", slog.Bool("proved", true))
			}
			return out
		}
		l.living = names
		l.watch()
		return out
	})
	g.Mail.Flush()
}

// watch waits for the ends of the lives that matter, and of no other: those of the other members,
// and those that keep this node waiting.
func (l *record) watch() {
	if l.prover == nil {
		return
	}
	names := slices.Clone(l.living)
	if l.Self() != dmutex.None {
		for _, e := range l.Record().Members {
			names = append(names, e.Proof)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" || l.life != nil && name == l.life.Name() })
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
			l.group.running.Go(func() { l.awaitDeath(ctx, name) })
		}
	}
}

// awaitDeath waits for the end of a life.
func (l *record) awaitDeath(ctx context.Context, name string) {
	_, err := within(ctx, func(ctx context.Context) (none struct{}, err error) { return none, l.prover.Over(ctx, name) })
	if ctx.Err() != nil {
		return
	}
	g := l.group
	g.do(func(now int64) membership.Output {
		l.seek()
		for _, e := range l.Record().Members {
			if e.Proof == name && err == nil {
				return l.died(now, e.Node, true)
			}
		}
		return membership.Output{}
	})
	g.Mail.Flush()
}

// retire ends the life of the store when the lease of this life has ended: until then, code
// that has lost a lock has time to stop.
func (l *record) retire(now int64) {
	life := l.life
	if l.life = nil; life != nil {
		time.AfterFunc(time.Duration(max(l.lasts, now)-now), func() { _ = life.Close() })
	}
}

// closed ends the life of the store with the node. The store may take its time, so not under the mutex.
func (l *record) closed(released bool) {
	l.group.mu.Lock()
	life := l.life
	if released {
		l.life = nil
	}
	l.retire(l.time.Now())
	l.group.mu.Unlock()
	if released && life != nil {
		_ = life.Close()
	}
}
