// Package nodetest has what tests of nodes share that are in several packages. The harness of the tests of package
// node is there.
package nodetest

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"
)

// Today sets the clock of a bubble, which begins in the year 2000, to a time after 2020, when
// epochs begin.
func Today() { time.Sleep(30 * 365 * 24 * time.Hour) }

// ContextFor returns a context that ends after the time, and with the test.
func ContextFor(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Nothing is a function for Do.
func Nothing(context.Context, uint64) error { return nil }

// UpTo returns a random duration below the given one.
func UpTo(luck *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(luck.Int64N(int64(most)))
}
