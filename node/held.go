package node

import (
	"context"
	"time"

	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node/internal/group"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// A held is the handle that Acquire returns.
type held locks.Held

// handle returns h as one, and no handle for nil.
func handle(h *held, err error) (lock.Held, error) {
	if h == nil {
		return nil, err
	}
	return h, err
}

// core returns the handle as package locks has made it, at the grant.
func (h *held) core() *locks.Held { return (*locks.Held)(h) }

func (h *held) node() *Node { return h.core().Node().(up).Node }

func (h *held) Context() context.Context { return h.core().Context() }
func (h *held) Fence() uint64            { return h.core().Fence() }
func (h *held) Err() error               { return h.core().Err() }
func (h *held) Until() time.Time         { return h.core().Until() }

func (h *held) Suspended() bool {
	return h.Err() == nil && h.node().group.LeaseState() == group.LeaseLate
}

func (h *held) Release() error {
	hold, ended, err := h.core().Release()
	if ended {
		h.node().tell(hold)
	}
	return err
}
