//go:build !race

// Package racetest tells a test whether the race detector watches it.
package racetest

// On reports whether the race detector watches.
const On = false
