package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/latelog"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// A logger writes what happens to a node, in a goroutine of its own: records are made
// under mutexes, and neither a handler that blocks nor one that asks the node
// for its Status may hold up the node. A nil logger writes nothing.
type logger struct {
	late  *latelog.Log
	out   *slog.Logger   // to late
	often *slog.Logger   // to late, for records that a peer can trigger at will
	self  *atomic.Uint64 // the node's number
	group string
}

// longAfter is the wait for a lock after which it is logged, and again after twice
// that, and so on.
const longAfter = 10 * time.Second

func newLogger(cfg *Config, self *atomic.Uint64) *logger {
	late := latelog.New(cfg.Logger.Handler())
	return &logger{late, slog.New(late), slog.New(late.Often()), self, cfg.Group}
}

func (l *logger) tell(level slog.Level, text string, attrs ...slog.Attr) {
	if l != nil {
		l.write(l.out, level, text, attrs)
	}
}

// tellOften is tell for records that a peer can trigger at will.
func (l *logger) tellOften(level slog.Level, text string, attrs ...slog.Attr) {
	if l != nil {
		l.write(l.often, level, text, attrs)
	}
}

func (l *logger) write(to *slog.Logger, level slog.Level, text string, attrs []slog.Attr) {
	var all []slog.Attr
	if self := l.self.Load(); self != 0 {
		all = append(all, slog.Uint64("node", self))
	}
	if l.group != "" {
		all = append(all, slog.String("group", l.group))
	}
	to.LogAttrs(context.Background(), level, text, append(all, attrs...)...)
}

// close writes the last records, and waits for the handler.
func (l *logger) close(err error) {
	if l == nil {
		return
	}
	if err != nil {
		l.tell(slog.LevelWarn, "node closed", slog.Any("err", err))
	} else {
		l.tell(slog.LevelInfo, "node closed")
	}
	l.late.Stop()
}

func peerAttr(id dmutex.NodeID) slog.Attr { return slog.Uint64("peer", uint64(id)) }

// trouble logs why a view is to be replaced.
func (l *logger) trouble(why error) {
	var attrs []slog.Attr
	if e, ok := errors.AsType[*PeerError](why); ok {
		attrs = append(attrs, peerAttr(e.Peer))
	}
	if e, ok := errors.AsType[*LockError](why); ok {
		attrs = append(attrs, slog.String("lock", e.Lock))
	}
	l.tellOften(slog.LevelWarn, "view is to be replaced", append(attrs, slog.Any("err", why))...)
}

// longWait logs that w has waited for a long time, if it is the first waiter of this
// node and not the whole node waits, which is logged too. It returns after what time to call it again.
func (n *Node) longWait(w *locks.Waiter) time.Duration {
	st, waited := n.locks.Status(w.Lock()), time.Duration(n.mail.Now()-w.Since())
	if w.First() && n.views.acting.Load() {
		attrs := []slog.Attr{slog.String("lock", w.Lock()), slog.Duration("waited", waited)}
		if st.Holder != dmutex.None {
			attrs = append(attrs, slog.Uint64("holder", uint64(st.Holder)))
		}
		if silent := n.silent(st); silent != "" {
			attrs = append(attrs, slog.String("for", silent))
		}
		n.log.tell(slog.LevelWarn, "lock is waited for", attrs...)
	}
	return max(waited, longAfter)
}

// waitError is the error of an Acquire whose context has ended: it says what the
// call was waiting for, and wraps why.
func (n *Node) waitError(lock string, why error) error {
	if !n.views.acting.Load() {
		return &LockError{lock, n.notReady(why)}
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
	return &LockError{lock, why}
}

// silent describes the peers that a lock waits for: the holder if it is known and
// another node, else the peers whose answers are missing.
func (n *Node) silent(st locks.Status) string {
	ids := st.WaitsFor
	if st.Holder != dmutex.None && st.Holder != n.Self() {
		ids = []dmutex.NodeID{st.Holder}
	}
	return n.describePeers(ids)
}

func (n *Node) describePeers(ids []dmutex.NodeID) string {
	var words []string
	for _, id := range ids {
		words = append(words, n.peerStatus(id).describe())
	}
	return strings.Join(words, ", ")
}
