// Package fence is the resource's side of a lock: it refuses late writes of former holders.
//
// A lock cannot stop the late write of a process that was paused in the middle of its work,
// or was killed while the write was in flight. The resource can refuse the write if every
// write carries the fence of its grant (Held.Fence in package node). Fences rise with every
// grant, so a fence lower than one already seen belongs to a former holder.
//
//	gate.Do(fence, func() error { return write(data) }) // or ErrStale
//
// A [Gate] is for a resource that is a process, such as a server, or the only
// writer of a file or a device. It needs nothing else of this library. A database
// needs no Gate: make the fence a condition of the write; see the examples.
//
// # What a Gate needs
//
// Use one Gate per lock: fences of different locks cannot be compared.
//
// The highest fence must last as long as the data. A Gate is lost with its process,
// and a new one would admit a former holder. So store the fence with the data, in
// one step, and pass it to [NewGate] when the process starts again.
//
// Send the fence with the first read too: otherwise a late write of a former holder may
// come between that read and the write that is based on it.
package fence

import (
	"errors"
	"fmt"
	"sync"
)

// ErrStale marks a refusal. The error says which fence was refused, and why.
var ErrStale = errors.New("fence: stale")

// A Gate admits a fence that is not lower than any that it has admitted before. An equal
// fence passes, so a holder can write many times. 0, which no grant has, never passes.
//
// The zero Gate has seen nothing. A Gate is safe for concurrent use, and must not be
// copied.
type Gate struct {
	mu      sync.Mutex
	highest uint64
}

// NewGate returns a Gate that has already seen highest: the fence stored with the
// data, or 0 if there is none yet.
func NewGate(highest uint64) *Gate { return &Gate{highest: highest} }

// Do runs f if the fence passes, and returns f's error; otherwise it returns an [ErrStale].
// While f runs, other calls wait, even with a higher fence, so no write begins before an
// earlier one is complete. f must not call the Gate. Even if f fails, the fence counts as
// seen.
func (g *Gate) Do(fence uint64, f func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case fence == 0:
		return fmt.Errorf("%w: 0 is the fence of no grant", ErrStale)
	case fence < g.highest:
		return fmt.Errorf("%w: %d is lower than %d, which a later holder has used", ErrStale, fence, g.highest)
	}
	g.highest = fence
	return f()
}

// Admit returns nil if the fence passes and an [ErrStale] otherwise. A higher fence may
// pass before the caller's next step: to read or write, use [Gate.Do].
func (g *Gate) Admit(fence uint64) error { return g.Do(fence, func() error { return nil }) }

// Highest returns the highest fence that has passed.
func (g *Gate) Highest() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.highest
}
