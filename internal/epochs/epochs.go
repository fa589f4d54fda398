// Package epochs has the arithmetic of epochs and fences. A view has an epoch, a number of
// milliseconds since 2020-01-01 UTC, and its fences begin with that: epoch<<22 | counter. So there is
// room for four million grants of one lock in one view. The fences of a lock in a record begin at the
// clock, too.
package epochs

const (
	counterBits = 22

	// Max is the highest epoch.
	Max = 1<<(64-counterBits) - 1

	// MaxClock bounds clocks and floors, so that half of all epochs is left for later. It is in the
	// year 2089.
	MaxClock = Max / 2

	// Minute has the epochs of a minute.
	Minute = 60 * 1000

	// Day has the epochs of a day.
	Day = 24 * 60 * Minute

	zero = 1_577_836_800_000_000_000 // 2020-01-01 UTC, in nanoseconds since 1970
)

// First returns the [dmutex.Start.Fence] of the machines of a view.
func First(epoch uint64) uint64 { return epoch << counterBits }

// Last returns their [dmutex.Start.Limit].
func Last(epoch uint64) uint64 { return First(epoch) + 1<<counterBits - 1 }

// Of returns the epoch of a fence.
func Of(fence uint64) uint64 { return fence >> counterBits }

// Above returns the lowest epoch whose fences are all above a fence. It is above Max for one of the last epoch.
func Above(fence uint64) uint64 { return Of(fence) + Of(fence&(1<<counterBits-1)+1<<counterBits-1) }

// Since returns the nanoseconds from 2020 to a time of the wall clock.
func Since(unixNano int64) uint64 { return uint64(max(unixNano-zero, 0)) }

// Fence returns the fence that stands at a time of the wall clock.
func Fence(unixNano int64) uint64 {
	since := Since(unixNano)
	return First(since/1e6) | First(since%1e6)/1e6
}
