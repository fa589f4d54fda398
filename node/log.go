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
)

// A logger writes what happens to a node. It does so in a goroutine of its own:
// what is to be told happens under locks, and neither a handler that blocks nor
// one that asks the node for its Status may hold up the node.
type logger struct {
	out     *slog.Logger
	notices chan notice
	lost    atomic.Uint64 // notices for which there was no room
}

// A notice is one thing to tell.
type notice struct {
	what what
	peer dmutex.NodeID // None if it is about no peer
	lock string        // empty if it is about no lock
	err  error
	more []slog.Attr
}

type what uint8

const (
	nodeOpened what = iota
	viewWaits
	longWait
	nodeStopped

	// From here on, what a peer can bring about as often as it likes, and so is
	// told only so often.
	peerMet
	peerGone
	viewActs
	peerDiffers
	viewTroubled
	refusedInput
)

// tell is how each is told. The texts and keys are documented at Config.Logger.
var tell = [...]struct {
	level slog.Level
	text  string
}{
	nodeOpened:   {slog.LevelInfo, "node opened"},
	viewWaits:    {slog.LevelWarn, "waiting for members"},
	longWait:     {slog.LevelWarn, "lock is waited for"},
	nodeStopped:  {slog.LevelError, "node stopped: nothing more is granted"},
	peerMet:      {slog.LevelInfo, "peer met"},
	peerGone:     {slog.LevelInfo, "peer gone"},
	viewActs:     {slog.LevelInfo, "view acts"},
	peerDiffers:  {slog.LevelWarn, "peer is configured differently"},
	viewTroubled: {slog.LevelWarn, "view is to be replaced"},
	refusedInput: {slog.LevelWarn, "refused what no correct peer sends"},
}

const (
	// logRoom is how many notices may wait for a slow handler.
	logRoom = 256

	// Of what a peer can bring about at will, logAtMost records are written in
	// logPeriod.
	logAtMost = 20
	logPeriod = time.Minute

	// longAfter is how long a lock is waited for until that is told, and then
	// twice as long, and so on.
	longAfter = 10 * time.Second
)

func newLogger(cfg *Config) *logger {
	out := cfg.Logger.With(slog.Uint64("node", uint64(cfg.Self)))
	if cfg.Group != "" {
		out = out.With(slog.String("group", cfg.Group))
	}
	return &logger{out: out, notices: make(chan notice, logRoom)}
}

// trouble has it told why a view is to be replaced.
func (l *logger) trouble(why error) {
	v := notice{what: viewTroubled, err: why}
	if e, ok := errors.AsType[*LockError](why); ok {
		v.lock = e.Lock
	}
	if e, ok := errors.AsType[*PeerError](why); ok {
		v.peer = e.Peer
	}
	l.add(v)
}

// noteWait has it told that h has waited for long, if it is the first waiter of this
// node. It returns after what time to do so again.
func (n *Node) noteWait(h *Held) time.Duration {
	l := h.lock
	l.shard.mu.Lock()
	first := len(l.waiters) > 0 && l.waiters[0].held == h
	st := l.status()
	waited := time.Duration(n.mail.Now() - h.since)
	l.shard.mu.Unlock()
	if !first || strings.HasPrefix(l.name, electionPrefix) { // campaigns may wait indefinitely
		return max(waited, longAfter)
	}
	more := []slog.Attr{slog.Duration("waited", waited)}
	if st.Holder != dmutex.None {
		more = append(more, slog.Uint64("holder", uint64(st.Holder)))
	}
	if silent := n.silent(st); silent != "" {
		more = append(more, slog.String("for", silent))
	}
	n.log.add(notice{what: longWait, lock: l.name, more: more})
	return max(waited, longAfter)
}

// silent lists the peers for which a lock waits, with since when nothing was heard
// of them: the holder if it is known and another node, and those whose
// answers are missing.
func (n *Node) silent(st MutexStatus) string {
	ids := st.WaitsFor
	if st.Holder != dmutex.None && st.Holder != n.cfg.Self {
		ids = []dmutex.NodeID{st.Holder}
	}
	if !n.views.acting.Load() {
		ids = n.views.missing()
	}
	return n.describePeers(ids)
}

func (n *Node) describePeers(ids []dmutex.NodeID) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(n.peerStatus(id).describe())
	}
	return b.String()
}

// waitAttrs says for which members this node waits.
func (n *Node) waitAttrs(missing []dmutex.NodeID, waited time.Duration) []slog.Attr {
	return []slog.Attr{slog.Duration("waited", waited), slog.String("for", n.describePeers(missing))}
}

// waitError is the error of an Acquire whose context has ended: it says what was
// waited for, and answers to why.
func (n *Node) waitError(l *lock, why error) error {
	if !n.views.acting.Load() {
		return fmt.Errorf("lock %q: %w", l.name, n.notReady(why))
	}
	l.shard.mu.Lock()
	st := l.status()
	l.shard.mu.Unlock()
	var holder string
	if st.Holder != dmutex.None {
		holder = fmt.Sprintf(": held by node %v", st.Holder)
	}
	if silent := n.silent(st); silent != "" {
		holder += ": waiting for " + silent
	}
	return fmt.Errorf("node: lock %q%s: %w", l.name, holder, why)
}

// add never waits. Without a logger it does nothing.
func (l *logger) add(v notice) {
	if l == nil {
		return
	}
	select {
	case l.notices <- v:
	default:
		l.lost.Add(1)
	}
}

// run writes until stop is closed, and then what is still there.
func (l *logger) run(stop <-chan struct{}) {
	var (
		period  <-chan time.Time // runs while records are counted
		written int
		left    uint64 // records left out in this period
	)
	write := func(v notice) {
		if v.what >= peerMet {
			if period == nil {
				period = time.After(logPeriod)
			}
			if written++; written > logAtMost {
				left++
				return
			}
		}
		l.write(v)
	}
	sumUp := func() {
		if left += l.lost.Swap(0); left > 0 {
			l.out.Warn("records left out", slog.Uint64("count", left))
		}
		period, written, left = nil, 0, 0
	}
	for {
		select {
		case v := <-l.notices:
			write(v)
		case <-period:
			sumUp()
		case <-stop:
			for len(l.notices) > 0 {
				write(<-l.notices)
			}
			sumUp()
			return
		}
	}
}

func (l *logger) write(v notice) {
	attrs := make([]slog.Attr, 0, 6)
	if v.peer != dmutex.None {
		attrs = append(attrs, slog.Uint64("peer", uint64(v.peer)))
	}
	if v.lock != "" {
		attrs = append(attrs, slog.String("lock", v.lock))
	}
	if v.err != nil {
		attrs = append(attrs, slog.Any("err", v.err))
	}
	attrs = append(attrs, v.more...)
	l.out.LogAttrs(context.Background(), tell[v.what].level, tell[v.what].text, attrs...)
}

// closed writes the last record, when run has ended.
func (l *logger) closed(err error) {
	if err != nil {
		l.out.Warn("node closed", slog.Any("err", err))
		return
	}
	l.out.Info("node closed")
}
