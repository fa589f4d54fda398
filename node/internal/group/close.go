package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport"
)

// Why a node grants nothing, for a while or for good. Package node documents them.
var (
	ErrStopped     = errors.New("the node has stopped: let the process exit")
	ErrClosed      = errors.New("the node is closed")
	ErrConfig      = errors.New("configured differently: Members, Algorithm, Group, Deadlock and Lease must be the same in all members, and either all have Clients or none")
	ErrNumberTaken = errors.New("another process uses this node's number: give each process its own, or stop the other one first")
	ErrEvicted     = errors.New("evicted: the group goes on without this process; restart it to join again")
	ErrFull        = fmt.Errorf("the group has %d members, which is the most: this process joins when one leaves; processes that only need locks can be clients of the members", membership.MaxMembers)
	ErrStore       = errors.New("the store does not answer: nothing is granted until it does")
	ErrLease       = errors.New("the lease was not renewed in time")
	ErrExcluded    = errors.New("the other members did not hear from this process, and excluded it")
)

// A stopError is an ErrStopped that says why.
type stopError struct{ error }

func (e *stopError) Unwrap() error        { return e.error }
func (e *stopError) Is(target error) bool { return target == ErrStopped }

// endGrants ends all granting. The caller has the mutex.
func (g *Group) endGrants(why error) {
	now := g.who.now() // before: the lease may have ended first
	g.Locks.End(why)
	g.pause(now)
}

// stop ends all granting and waits, and all holds are lost, with an ErrStopped for the reason
// given. The caller has the mutex.
func (g *Group) stop(why error) {
	if g.Locks.Why() != nil {
		return
	}
	why = &stopError{why}
	g.endGrants(why)
	g.Locks.Lose(why)
	g.who.event(g.who.now(), halted{})
	g.finish()
	if !errors.Is(why, transport.ErrClosed) {
		g.running.Go(func() { _ = g.Mail.Close(g.done) }) // at once: the group goes on without this process
	}
	g.Log(slog.LevelError, "node stopped: nothing more is granted", slog.Any("err", why))
	g.trace(trace.Event{What: trace.Down, Err: why.Error()})
}

// Close leaves the group, and returns the holds that were lost with it. It is called once.
func (g *Group) Close(ctx context.Context) (lost []lock.Event, err error) {
	g.mu.Lock() // so that Held.Err finds the hold ended, or the lease still looked after
	first := g.Locks.Why() == nil
	if first {
		g.endGrants(ErrClosed)
		g.trace(trace.Event{What: trace.Down})
		g.Locks.Abandon(ErrClosed)
	}
	g.mu.Unlock()
	if first {
		lost = g.Locks.Vacate() // there may be many, so not under the mutex
	}
	g.Mail.Flush()
	err = g.awaitWork(ctx)
	released := err == nil
	if released && g.Locks.Why() == ErrClosed {
		err = g.who.depart(ctx)
	}
	g.finish() // ends what is asked of a store
	err = errors.Join(err, g.closeMail(ctx, err == nil))
	g.running.Wait()
	if r := g.cfg.Trace; r != nil { // when nothing runs any more that records
		g.trace(trace.Event{What: trace.Close})
		if late := r.Flush(ctx); late != nil {
			err = errors.Join(err, fmt.Errorf("trace: %w", late))
		}
	}
	level, attrs := slog.LevelInfo, []slog.Attr(nil)
	if err != nil {
		level, attrs = slog.LevelWarn, []slog.Attr{slog.Any("err", err)}
	}
	g.Log(level, "node closed", attrs...)
	g.late.Close()
	g.mu.Lock()
	g.who.event(g.time(), closed{released})
	g.mu.Unlock()
	g.running.Wait()
	return lost, err
}

// awaitWork waits until no function of Do runs here any more and, at the last member, until no lock is
// lent: no other member could take it over.
func (g *Group) awaitWork(ctx context.Context) error {
	for {
		what, name := "the function that runs under lock %q has not returned", g.Locks.Used(false)
		if name == "" && g.stands().alone {
			what, name = "the client that holds lock %q has not released it", g.Locks.Used(true)
		}
		if name == "" {
			return nil
		}
		select {
		case <-g.Locks.Rested():
		case <-ctx.Done():
			return fmt.Errorf("close: "+what+": %w", name, hold.ContextError(ctx))
		}
	}
}

// leave waits until no member needs this node, after an input by which it leaves. It returns an error if ctx ends
// first.
func (g *Group) leave(ctx context.Context, leave func(now int64) membership.Output) (late error) {
	g.do(leave)
	g.Mail.Flush()
	select {
	case <-g.done.Done():
	case <-ctx.Done():
		if g.done.Err() == nil { // a node that is alone asks nobody
			late = hold.ContextError(ctx)
		}
	}
	return late
}

// closeMail closes the mail. Nothing depends on whether the peers learn of it, so it
// waits for a moment at most, and not at all if this node has not departed.
func (g *Group) closeMail(ctx context.Context, departed bool) error {
	farewell := time.Second
	if g.cfg.Store != nil {
		farewell = 20 * time.Millisecond // the peers see in the record that this node has left
	}
	ctx, cancel := context.WithTimeout(ctx, g.clocks.Span(farewell))
	defer cancel()
	if !departed {
		cancel()
	}
	err := g.Mail.Close(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
