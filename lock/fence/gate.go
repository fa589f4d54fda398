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
// The highest fences must last as long as the data. A Gate is lost with its process,
// and a new one would admit a former holder. So store what the Gate has [Seen] with the data, in
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
// If the lock is shared, holders that share call [Gate.Share], and those that hold it alone call
// [Gate.Do]. Then the fences of two holds that share are not compared: they say nothing about each
// other.
//
// The zero Gate has seen nothing. A Gate is safe for concurrent use, and must not be
// copied.
type Gate struct {
	running sync.RWMutex // the functions of Share run at the same time, those of Do alone
	mu      sync.Mutex   // guards seen.Shared while the functions of Share run
	seen    Seen         // Alone is written only while Do runs
}

// Seen is what a [Gate] has admitted, to be stored and to make the next Gate from. It has two numbers,
// because the fence of a hold alone shuts out holders that share, and the fence of a hold that shares must
// not.
//
// A function that stores the fence with its data knows its own: after [Gate.Do] with fence f, Seen is
// {Alone: f} with the former Shared, which has no effect any more. After [Gate.Share], Shared is
// at least f. If Shared is not stored, a new Gate may admit, until the next call of Do, the late write of a
// former holder alone while others share.
type Seen struct {
	Alone  uint64 // the highest fence that Do has admitted, 0 if none
	Shared uint64 // the highest that Share has admitted
}

// NewGate returns a Gate that goes on where another has ended.
func NewGate(seen Seen) *Gate { return &Gate{seen: seen} }

// Do runs f if the fence passes, and returns f's error; otherwise it returns an [ErrStale].
// While f runs, other calls wait, even with a higher fence, so no write begins before an
// earlier one is complete. f must not call the Gate. Even if f fails, the fence counts as
// seen.
func (g *Gate) Do(fence uint64, f func() error) error {
	if err := check(g, f); err != nil {
		return err
	}
	g.running.Lock()
	defer g.running.Unlock()
	if err := passes(fence, max(g.seen.Alone, g.seen.Shared)); err != nil {
		return err
	}
	g.seen.Alone = fence
	return f()
}

// Share is Do for a hold that shares the lock: f may run at the same time as those of other calls of
// Share, and the fence is compared only with those of holds alone.
func (g *Gate) Share(fence uint64, f func() error) error {
	if err := check(g, f); err != nil {
		return err
	}
	g.running.RLock()
	defer g.running.RUnlock()
	if err := passes(fence, g.seen.Alone); err != nil {
		return err
	}
	g.mu.Lock()
	g.seen.Shared = max(g.seen.Shared, fence)
	g.mu.Unlock()
	return f()
}

// check refuses what is nil.
func check(g *Gate, f func() error) error {
	switch {
	case g == nil:
		return errors.New("fence: the gate is nil: make one with NewGate, or use new(fence.Gate)")
	case f == nil:
		return errors.New("fence: the function is nil: use Admit to ask whether a fence passes")
	}
	return nil
}

func passes(fence, highest uint64) error {
	switch {
	case fence == 0:
		return fmt.Errorf("%w: 0 is the fence of no grant", ErrStale)
	case fence < highest:
		return fmt.Errorf("%w: %d is lower than %d, which a later holder has used", ErrStale, fence, highest)
	}
	return nil
}

// Admit returns nil if the fence passes and an [ErrStale] otherwise. A higher fence may
// pass before the caller's next step: to read or write, use [Gate.Do].
func (g *Gate) Admit(fence uint64) error { return g.Do(fence, func() error { return nil }) }

// Seen returns what has passed. It waits for the calls of Do.
func (g *Gate) Seen() Seen {
	if g == nil {
		return Seen{}
	}
	g.running.RLock()
	defer g.running.RUnlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen
}
