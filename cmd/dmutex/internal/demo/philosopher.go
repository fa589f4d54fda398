package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/node"
)

// philosopherCmd is one philosopher of the demo, in a process of its own.
type philosopherCmd struct{}

// Run works until it is told to leave, or until the demo is gone.
func (philosopherCmd) Run(con *tool.Console) error {
	return employ(con, func(ctx context.Context, w *worker) error {
		p := &philosopher{worker: w, badge: filepath.Join(w.task.Dir, fmt.Sprint("philosopher-", w.task.Self))}
		if err := os.WriteFile(p.badge, nil, 0o600); err != nil {
			return err
		}
		for range w.task.Meals {
			if err := p.dine(ctx); err != nil {
				return fmt.Errorf("meal %d: %w", p.meals+1, err)
			}
		}
		if _, err := p.expect(ctx, wordSit); err != nil { // else some are eating
			return err
		}
		return w.report(report{Word: wordDone, Overlaps: p.overlaps})
	})
}

// A philosopher eats with two forks. Each fork is a lock.
type philosopher struct {
	*worker
	badge    string // see occupy
	meals    int    // eaten
	overlaps int    // forks that it took while they were in another hand
}

// A cycle of philosophers: each waits for a fork that the next one holds. The
// first is the victim.
type cycle []edge

type edge struct {
	Waiter dmutex.NodeID `json:"waiter"`
	Lock   string        `json:"fork"`
	Holder dmutex.NodeID `json:"holder"`
}

// around reports whether the cycle goes around a table: everybody waits for the
// right fork.
func (c cycle) around(philosophers int) bool {
	n := dmutex.NodeID(philosophers)
	for i, e := range c {
		right := e.Waiter%n + 1
		if e.Lock != fork(right) || e.Holder != right || c[(i+1)%len(c)].Waiter != right {
			return false
		}
	}
	return len(c) == philosophers
}

// fork is the name of the i-th philosopher's left fork, which is the right fork
// of the philosopher before.
func fork(i dmutex.NodeID) string { return fmt.Sprint("fork/", i) }

// dine sits down when told to, and tries until it has eaten.
func (p *philosopher) dine(ctx context.Context) error {
	if _, err := p.expect(ctx, wordSit); err != nil {
		return err
	}
	t, pause := p.node.Txn(), p.reach
	for meal := p.meals; p.meals == meal; pause = p.think { // later, others are eating already
		if err := p.try(ctx, t, pause); err != nil {
			return err
		}
	}
	return p.report(report{Word: wordProgress, Made: p.meals})
}

// try takes the left fork, then, after a pause, the right one, and eats. A victim puts its fork
// back and has not eaten.
func (p *philosopher) try(ctx context.Context, t *node.Txn, pause func(context.Context) error) (err error) {
	var hand []func() error // removes the markers of the forks in it
	defer func() {
		for _, leave := range hand {
			err = errors.Join(err, leave())
		}
		err = errors.Join(err, t.Release())
	}()
	take := func(fork string) error {
		if _, err := t.Acquire(ctx, fork); err != nil {
			return err
		}
		leave, overlap, err := occupy(filepath.Join(p.task.Dir, filepath.Base(fork)), p.badge)
		if overlap {
			p.overlaps++
		}
		if err == nil {
			hand = append(hand, leave)
		}
		return err
	}
	if err := take(fork(p.task.Self)); err != nil {
		return err
	}
	if err := pause(ctx); err != nil {
		return err
	}
	if err := take(fork(p.task.Self%dmutex.NodeID(p.task.Nodes) + 1)); err != nil {
		return p.cycle(err)
	}
	if err := p.think(ctx); err != nil {
		return err
	}
	p.meals++
	return nil
}

func (p *philosopher) think(ctx context.Context) error { return sleep(ctx, p.task.Think) }

// reach waits until all have their left fork.
func (p *philosopher) reach(ctx context.Context) error {
	if err := p.report(report{Word: wordSeated}); err != nil {
		return err
	}
	_, err := p.expect(ctx, wordReach)
	return err
}

// cycle reports the cycle whose victim this philosopher is, if err says
// that, and passes on any other error.
func (p *philosopher) cycle(err error) error {
	found, ok := errors.AsType[*node.Error](err)
	if !ok || !errors.Is(err, node.ErrDeadlock) {
		return err
	}
	var c cycle
	for _, e := range found.Cycle {
		c = append(c, edge(e))
	}
	return p.report(report{Word: wordCycle, Cycle: c})
}
