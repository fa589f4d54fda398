// Package leases has the numbers of a lease: of a member, of a client's session, and of one lock
// in a record. The pace of a session's beats is in package clientsession. docs/modes.md has the
// numbers for users, under "The times of a lease".
package leases

// How long a lease is if nobody says so, and may be, in nanoseconds.
const (
	Default = 10_000_000_000    // 10 s
	Min     = 100_000_000       // 100 ms
	Max     = 3_600_000_000_000 // 1 h
)

// Shares of a lease: Margin is a 16th of it.
const (
	Renew        = 3  // the holder renews the lease after this share, and is late after as much again
	RenewServing = 6  // the same for a member that serves clients
	Margin       = 16 // what is held is lost when this share is left: time for code that learns of it to stop

	Operation = 4  // how long an operation of the store may take
	Retry     = 6  // the longest pause before the store is asked again
	Look      = 50 // and before it is asked again who lives

	Ask     = 20 // a member that was silent for so long is asked for a sign of life
	Away    = 8  // after so long it counts as away
	Exclude = 3  // when it was away for so long it is excluded
	Refuse  = 50 // its process has ended if its address refuses two connections this far apart
)

// Drain returns D = L(1+rho)/(1-rho): how long to wait by one clock until a lease of length L
// that began earlier has ended by another. rho, the most that the rate of a clock may be wrong
// by, is 1 %.
func Drain(length int64) int64 { return (length*101 + 98) / 99 }
