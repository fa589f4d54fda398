package node

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// longAfter is the wait for a lock after which it is logged, and again after twice
// that, and so on.
const longAfter = 10 * time.Second

// longWait logs that w has waited for a long time, if it is the first waiter of this
// node and not the whole node waits, which is logged too. It returns after what time to call it again.
func (n *Node) longWait(w *locks.Waiter) time.Duration {
	st, waited := n.locks.Status(w.Lock()), time.Duration(n.mail.Now()-w.Since())
	if w.First() && n.group.Acting() {
		attrs := []slog.Attr{slog.String("lock", w.Lock()), slog.Duration("waited", waited)}
		if st.Holder != dmutex.None {
			attrs = append(attrs, slog.Uint64("holder", uint64(st.Holder)))
		}
		if silent := n.silent(st); silent != "" {
			attrs = append(attrs, slog.String("for", silent))
		}
		n.group.Log(slog.LevelWarn, "lock is waited for", attrs...)
	}
	return max(waited, longAfter)
}

// waitError is the error of an Acquire whose context has ended: it says what the
// call was waiting for, and wraps why.
func (n *Node) waitError(lock string, why error) error {
	if !n.group.Acting() {
		return n.notReady(why)
	}
	st := n.locks.Status(lock)
	switch {
	case st.Phase == dmutex.Held:
		why = fmt.Errorf("held by this process: %w", why)
	case st.Holder != dmutex.None:
		why = fmt.Errorf("held by node %v: %w", st.Holder, why)
	}
	if silent := n.silent(st); silent != "" {
		why = fmt.Errorf("waiting for %s: %w", silent, why)
	}
	return why
}

// silent describes the peers that a lock waits for: the holder if it is known and
// another node, else the peers whose answers are missing.
func (n *Node) silent(st locks.Status) string {
	ids := st.WaitsFor
	if st.Holder != dmutex.None && st.Holder != n.Self() {
		ids = []dmutex.NodeID{st.Holder}
	}
	return n.group.Describe(ids)
}
