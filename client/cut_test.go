package client_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A client whose connections are cut keeps its locks for half a session at least, whenever
// the cut begins between two beats and two renewals of its member's lease.
func TestCut(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.open("a")
		u := w.use("one")
		shortest := session
		for range 50 {
			h := u.acquire("l")
			time.Sleep(session/3 + session/50)
			a.door.shut.Store(true)
			u.hangUp("")
			cut := time.Now()
			<-h.Context().Done()
			shortest = min(shortest, time.Since(cut))
			a.door.shut.Store(false)
		}
		require.GreaterOrEqual(t, shortest, session/2)
	})
}
