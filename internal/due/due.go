// Package due says when something is due: in nanoseconds of a steady clock, or never.
package due

// Never is later than all other times.
const Never = 1<<63 - 1
