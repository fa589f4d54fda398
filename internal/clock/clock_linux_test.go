package clock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The kernel tells how long the machine has slept. In a synctest bubble it is not asked.
func TestSleepMeter(t *testing.T) {
	meter := sleepMeter()
	require.NotNil(t, meter)
	require.Less(t, time.Duration(meter()).Abs(), time.Hour)
	require.NotNil(t, New().asleep)
	synctest.Test(t, func(t *testing.T) { require.Nil(t, New().asleep) })
}
