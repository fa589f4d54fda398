package clock

import (
	"math"
	"syscall"
	"time"
	"unsafe"
)

// The clocks of the kernel; see clock_gettime(2).
const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// sleepMeter returns a function that says how long the machine has slept since now. It
// returns nil in a bubble of testing/synctest, whose time has nothing to do with the
// kernel's, and where the kernel does not say.
func sleepMeter() func() int64 {
	var wall syscall.Timeval
	if err := syscall.Gettimeofday(&wall); err != nil || time.Since(time.Unix(wall.Unix())).Abs() > time.Second {
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

// sleptSinceBoot is too much by what passes between two calls, so it takes the better of two
// readings.
func sleptSinceBoot() (slept int64, ok bool) {
	slept = math.MaxInt64
	for range 2 {
		awake, ok := kernelClock(clockMonotonic)
		all, ok2 := kernelClock(clockBoottime)
		if !ok || !ok2 {
			return 0, false
		}
		slept = min(slept, all-awake)
	}
	return slept, true
}

func kernelClock(id uintptr) (ns int64, ok bool) {
	var t syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano(), errno == 0
}
