// Package deadlocktest explores the machines of package deadlock, in small groups
// and through every order of events.
package deadlocktest

import (
	"encoding"
	"errors"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/deadlock"
	"github.com/dmutex/dmutex/internal/search"
)

// A Machine is what can be explored: the machines of package deadlock, and their mutants.
type Machine interface {
	Wait(on []dmutex.NodeID) error
	Granted(by dmutex.NodeID) error
	Asked(by dmutex.NodeID) error
	Settled(with dmutex.NodeID) error
	Withdraw() error
	Detect() ([]deadlock.Message, error)
	Handle(deadlock.Message) ([]deadlock.Message, error)
	Deadlocked() bool
	encoding.TextAppender
}

// A Model makes the machines of a group, and copies them.
type Model struct {
	Or   bool // one grant ends a wait
	New  func(self dmutex.NodeID, members []dmutex.NodeID) (Machine, error)
	Copy func(Machine) Machine
}

// Of returns the model whose machines are of type M.
func Of[M interface {
	Machine
	Clone() M
}](or bool, born func(self dmutex.NodeID, members []dmutex.NodeID) (M, error)) Model {
	return Model{
		Or:   or,
		New:  func(self dmutex.NodeID, members []dmutex.NodeID) (Machine, error) { return born(self, members) },
		Copy: func(m Machine) Machine { return m.(M).Clone() },
	}
}

// The models of package deadlock.
var (
	And = Of(false, deadlock.NewAnd)
	Or  = Of(true, deadlock.NewOr)
)

// A Trial is a small group of nodes that wait for each other, with a machine at each.
// [Trial.Explore] tries every order of everything: which nodes a node asks, when it
// grants, when it calls Detect (once in each wait), what arrives.
type Trial struct {
	Model
	Waits     []int // how often each node may wait
	Widest    []int // the most others that each waits for at a time; nil is 1
	AtOnce    bool  // Detect is called together with Wait
	Unordered bool  // the channels may reorder
	Withdraws int   // how many waits may be withdrawn
}

// Explore visits every state of a trial, shortest runs first. Once all nodes have called
// Detect and no message is in flight, a node in each deadlock must have declared it, and
// no node may have declared one that does not exist. It returns a [*search.Violation]
// with a shortest run to the first state that is wrong, and in any case how far it came.
// Report.Some counts the states with a declared deadlock.
func (t *Trial) Explore(limits search.Limits) (search.Report, error) {
	return search.Search[*world, event]{
		Limits: limits,
		First:  t.begin(),
		State:  (*world).declared,
		Some:   func(w *world) bool { return slices.ContainsFunc(w.nodes, func(n node) bool { return n.Deadlocked() }) },
		Step:   func(before, after *world) error { return after.declares(before) },
	}.Run()
}

// What can be wrong; the Kind of a [search.Violation].
var (
	ErrPhantom = errors.New("phantom") // a node declares a deadlock and is in none
	ErrMissed  = errors.New("missed")  // no node declares a deadlock
)
