// Package mistake has the two errors that tell whose mistake it was, for packages that know no
// machine. Package dmutex shows them to users.
package mistake

import "errors"

var (
	// ErrMisuse is the caller's mistake.
	ErrMisuse = errors.New("dmutex: misuse")

	// ErrPeer is a message that no correct peer sends.
	ErrPeer = errors.New("dmutex: peer's mistake")
)

// Misuse returns an [ErrMisuse] that says why.
func Misuse(why string) error { return New(ErrMisuse, why) }

// Peer returns an [ErrPeer] that says why.
func Peer(why string) error { return New(ErrPeer, why) }

// New returns an error that is the sentinel, and says why.
func New(sentinel error, why string) error { return &refusal{sentinel, why} }

// refusal is a sentinel with a reason. (Package fmt would import os and sync,
// and the machines import neither.)
type refusal struct {
	sentinel error
	why      string
}

func (r *refusal) Error() string { return r.sentinel.Error() + ": " + r.why }
func (r *refusal) Unwrap() error { return r.sentinel }
