package storelock

import (
	"os"

	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/lock"
)

// A held is the handle that Acquire returns.
type held struct {
	*hold.Hold
	a *attempt
}

// File returns a file for a child process to inherit. Then, if this process dies, the lock is
// not free before the child has died, too. It is nil if the store cannot do that, or if the handle is
// not one of this package; filestore can, but not on Windows.
func File(h lock.Held) *os.File {
	if h, ok := h.(*held); ok && h.a.life != nil {
		return h.a.life.File()
	}
	return nil
}

// Release waits until the store has confirmed it, and at most for a lease: then others replace
// this process as if it had crashed.
func (h *held) Release() error {
	lost := h.Released(h.a.l.fail(lock.ErrReleased))
	h.a.release()
	<-h.a.over
	return lost
}
