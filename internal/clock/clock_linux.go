package clock

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// sleepMeter returns a function that says how long the machine has slept since now. It returns nil in a bubble of
// testing/synctest, whose time has nothing to do with the kernel's, and where the kernel does not say.
func sleepMeter() func() int64 {
	var wall unix.Timeval
	if err := unix.Gettimeofday(&wall); err != nil || time.Since(time.Unix(wall.Unix())).Abs() > time.Second {
		return nil
	}
	before, ok := sleptSinceBoot()
	if !ok {
		return nil
	}
	return func() int64 {
		now, _ := sleptSinceBoot()
		return now - before
	}
}

// sleptSinceBoot is too much by the time between two calls, so it takes the better of two.
func sleptSinceBoot() (slept int64, ok bool) {
	slept = math.MaxInt64
	for range 2 {
		var awake, all unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &all) != nil {
			return 0, false
		}
		slept = min(slept, all.Nano()-awake.Nano())
	}
	return slept, true
}
