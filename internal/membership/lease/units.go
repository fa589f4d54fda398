package lease

// Times, in nanoseconds.
const (
	millisecond = 1_000_000
	second      = 1000 * millisecond
)
