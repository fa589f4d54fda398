package membership

// An epoch is a number of milliseconds since 2020-01-01 UTC. The counter of a fence has room
// for four million grants of one lock in one view.
const (
	counterBits = 22
	maxEpoch    = 1<<(64-counterBits) - 1

	// maxClock bounds clocks and floors, so that half of all epochs is left for later.
	// It is in the year 2089.
	maxClock = 1<<(63-counterBits) - 1

	minute = 60 * 1000 // in epochs
	day    = 24 * 60 * minute
)

// FirstFence returns the [dmutex.Start.Fence] of the machines of a view.
func FirstFence(epoch uint64) uint64 { return epoch << counterBits }

// LastFence returns their [dmutex.Start.Limit].
func LastFence(epoch uint64) uint64 { return FirstFence(epoch) + 1<<counterBits - 1 }

// EpochOf returns the epoch of a fence.
func EpochOf(fence uint64) uint64 { return fence >> counterBits }

// epochAbove returns the lowest epoch whose grants are all above a fence.
func epochAbove(fence uint64) uint64 { return EpochOf(fence + 1<<counterBits - 1) }
