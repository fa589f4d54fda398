package lease

import (
	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
)

// The events of a [Machine], beside those of package membership.
type (
	// Joined tells that the record has given this life the number Self.
	Joined struct{ Self dmutex.NodeID }

	// Excluded tells that this life is no member any more: what it held is lost. The others have excluded it, or
	// the store has Forgotten all members. The driver calls Rejoin with another life.
	Excluded struct{ Forgotten bool }

	// Members tells that the Record has changed while this life is a member: its members are the
	// peers from now on. Excludes says whether a member was excluded, and has not left.
	Members struct {
		Record   Record
		Excludes bool
	}

	// Renewed tells the Term of this life: after it, it holds nothing.
	Renewed struct{ Term leases.Term }

	// Waiting tells that the leases of lives that were excluded until Epoch have ended. If Until is
	// not 0, those of later ones may run until then, unless the machine learns earlier that they do
	// not.
	Waiting struct {
		Epoch uint64
		Until int64
	}

	// Freed tells that a former member does not hold what it has lent by this Loan.
	Freed struct {
		Former dmutex.NodeID
		Loan   membership.Loan
	}

	// Ask tells that the operation Op on the store is to be started, with a Value to swap. There is
	// one at a time; its outcome is given to Done.
	Ask struct {
		Op    Operation
		Value []byte
	}

	// Ended tells that the part of this life is over. It has left, or with an Err it has stopped.
	Ended struct{ Err error }
)
