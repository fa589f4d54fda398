// Package fence is the resource's side of a lock: it refuses what a former
// holder still sends.
//
// A lock cannot stop a process that has lost it and does not know: one that was
// paused in the middle of its work and goes on, or whose write was under way
// when it was killed. The resource can, if every write carries the fence of the
// grant that it was made under (Held.Fence in package node): fences rise with
// every grant, so a fence lower than one already seen is a former holder's.
//
//	gate.Do(fence, func() error { return write(data) }) // or ErrStale
//
// A [Gate] is for a resource that is a process: a server, a file's or a device's
// only writer. It needs nothing else of this library. A database refuses by
// itself, in the condition of the write, and needs no Gate; see the examples.
//
// # What it needs
//
// One Gate per lock: the fences of different locks do not compare.
//
// The highest fence must live as long as the data. A Gate forgets with its
// process, and would then let in a former holder, so store the fence with the
// data, in one step, and start from it again with [NewGate].
//
// A former holder is refused from the moment that a later one has shown its
// fence. So a holder shows it with the first read already, not only when it
// writes: otherwise a late write may come between the two, and what the holder
// then writes is built on what it read before.
package fence

import (
	"errors"
	"fmt"
	"sync"
)

// ErrStale is what [errors.Is] finds in every refusal; see [StaleError].
var ErrStale = errors.New("fence is stale")

// A StaleError is an [ErrStale] that says what was refused and why.
type StaleError struct {
	Fence   uint64 // what was presented
	Highest uint64 // what the gate had seen before
}

func (e *StaleError) Error() string {
	if e.Fence == 0 {
		return "fence is stale: 0 is no grant's"
	}
	return fmt.Sprintf("fence is stale: %d comes after %d", e.Fence, e.Highest)
}

// Is makes a StaleError an [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// A Gate lets in the fences that are not lower than any that it has let in
// before. An equal one passes: a holder may write as often as it likes. 0 never
// passes, for it is the fence of no grant.
//
// The zero Gate has seen nothing. A Gate is safe for concurrent use and must not
// be copied.
type Gate struct {
	mu      sync.Mutex
	highest uint64
}

// NewGate returns a Gate that has already seen the fence that was stored with
// the data; 0 if there is none yet.
func NewGate(highest uint64) *Gate { return &Gate{highest: highest} }

// Do runs f if the fence passes, and returns f's error; otherwise it returns a
// [StaleError]. The gate is shut while f runs: whoever comes then, also with a
// higher fence, waits until f has returned or panicked, so that no write begins
// before an earlier one is complete. f must not call the Gate.
//
// A fence was seen also if f failed.
func (g *Gate) Do(fence uint64, f func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if fence == 0 || fence < g.highest {
		return &StaleError{fence, g.highest}
	}
	g.highest = fence
	return f()
}

// Admit returns nil if the fence passes and a [StaleError] otherwise. It closes
// the gate to all former holders; but what follows an Admit is not guarded, for
// by then a higher fence may have passed. To read or write use [Gate.Do].
func (g *Gate) Admit(fence uint64) error { return g.Do(fence, func() error { return nil }) }

// Highest returns the highest fence that has passed.
func (g *Gate) Highest() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.highest
}
