package node

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dmutex/dmutex"
)

// trials is the TryAcquires that wait for acknowledgements of their requests.
type trials struct {
	count atomic.Int32
	mu    sync.Mutex // after a shard's
	list  []try
}

// A try waits until the peer has acknowledged its first seq messages.
type try struct {
	trial *trial
	peer  dmutex.NodeID
	seq   uint64
}

// A trial is a TryAcquire that waits until all peers that it asked know of it. It is
// one attempt: if the view ends, the next attempt is another trial.
type trial struct {
	waiter  *waiter
	unheard int // peers that have not confirmed the request
}

// errViewChanged ends a trial whose view has ended.
var errViewChanged = errors.New("node: the view has changed")

func (ts *trials) add(t *trial, peer dmutex.NodeID, seq uint64) {
	t.unheard++
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.list = append(ts.list, try{t, peer, seq})
	ts.count.Store(int32(len(ts.list)))
}

// handled counts what a peer has acknowledged, after its answers.
func (ts *trials) handled(peer dmutex.NodeID, acked uint64) {
	if ts.count.Load() == 0 {
		return
	}
	var heard []*trial
	ts.mu.Lock()
	ts.list = slices.DeleteFunc(ts.list, func(t try) bool {
		done := t.peer == peer && t.seq <= acked || t.trial.waiter.over.Load()
		if done && t.peer == peer {
			heard = append(heard, t.trial)
		}
		return done
	})
	ts.count.Store(int32(len(ts.list)))
	ts.mu.Unlock()
	for _, t := range heard {
		t.unanswered()
	}
}

// unanswered counts a confirmation that came without a grant. When all have
// come, the lock is busy.
func (t *trial) unanswered() {
	l := t.waiter.lock
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	t.unheard--
	if t.unheard == 0 && !t.waiter.over.Load() {
		l.quit(t.waiter, l.busy())
	}
}
