//go:build !linux

package clock

// sleepMeter returns nil: only the wall clock tells how long the machine has slept.
func sleepMeter() func() int64 { return nil }
