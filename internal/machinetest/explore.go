// Package machinetest is what the tests of several machines share beside
// package dmutextest. A [Probe] looks into a machine or breaks one of its rules
// from outside, [Kill] breaks its rules in the source: something must notice.
package machinetest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/dmutextest"
)

// Long skips a test that takes long, unless DMUTEX_LONG is set, such as to 1.
func Long(t *testing.T) {
	if os.Getenv("DMUTEX_LONG") == "" {
		t.Skip("takes long; set DMUTEX_LONG=1")
	}
}

// Explore explores a group to the end and finds nothing wrong, nor any fence
// left out.
func Explore(t *testing.T, c dmutextest.Config) dmutextest.Report {
	t.Helper()
	r, err := dmutextest.Explore(c)
	require.NoError(t, err)
	t.Log(r)
	require.True(t, r.Complete, r)
	require.True(t, r.Dense, r)
	return r
}
