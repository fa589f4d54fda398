// Package timers is for what does several things by time alone. With the time of each in one
// table, a new one is part of the deadline as soon as it has an index.
package timers

import (
	"slices"

	"github.com/dmutex/dmutex/internal/due"
)

// A Table has when each of up to six things is to be done: its owner has an enum for the indices, and
// a seventh does not compile.
type Table [6]int64

// New returns a Table of timers that are not set.
func New() (t Table) {
	for i := range t {
		t[i] = due.Never
	}
	return t
}

// Next returns when the first is due.
func (t *Table) Next() int64 { return slices.Min(t[:]) }

// Due reports whether a timer is due, and stops it then.
func (t *Table) Due(timer int, now int64) bool {
	if now < t[timer] {
		return false
	}
	t[timer] = due.Never
	return true
}
