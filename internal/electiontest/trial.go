// Package electiontest explores the machines of package election, in small groups
// and through every order of events.
package electiontest

import (
	"errors"

	"github.com/dmutex/dmutex/election"
)

// A Trial is a small group and what may happen to it. [Trial.Explore] tries every order.
//
// The channels keep the order of messages, and lose those to a node that has crashed or is
// cut off. Some time after the event, detectors tell each node which nodes have crashed or
// are cut off and which are back; a partition heals only after all have noticed it. Time
// passes, for all nodes alike, when no message is in flight and no detector has news; a
// timeout fires before that as often as Early says.
type Trial struct {
	Algorithm election.Algorithm
	Nodes     int   // numbered from 1; at most 9
	Starts    []int // ranks of the nodes that run at first, all at once; nil: all have run, and the election is over
	Majority  bool

	Prompt    bool // the detectors tell at once, and elections die out before their starter recovers
	Forgetful bool // a node that recovers begins with epoch 0
	Odds           // what may happen

	// What must hold, in addition to what Explore says.
	OneSide   bool   // never leaders on both sides of a partition that all have noticed
	OneLeader bool   // never two leaders at an instant
	Most      uint64 // no epoch above it; 0 is no bound
	Falls     bool   // epochs may fall
	Counted   bool   // only a node that a majority has let run leads; for Bully and Ring, without crashes
}

// Odds says how often things may happen in a run, at most 255 times each.
type Odds struct {
	Crashes    int
	Recoveries int
	Cuts       int // the group parts in two; a partition may heal
	Wrong      int // a node suspects one that is alive
	Early      int // a timeout fires although a message is in flight
	Restarts   int // a node begins an election for no reason
}

// What can be wrong; the Kind of a [search.Violation].
var (
	ErrTwoLeaders  = errors.New("two leaders")
	ErrNoAgreement = errors.New("no agreement") // at rest; or the run never rests
	ErrEpoch       = errors.New("epoch")        // it falls at a node, or nodes outbid each other
	ErrNotLet      = errors.New("not let")      // a node leads that no majority has let run
	ErrRefused     = errors.New("refused")      // a machine refused a correct peer's message
)
