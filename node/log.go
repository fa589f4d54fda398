package node

import (
	"context"
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
	peerMet
	groupReady
	groupBroken

	// From here on, what a peer can bring about as often as it likes, and so is
	// told only so often.
	peerDiffers
	peerRestarted
	peerLeft
	lockStopped
	refusedInput
	longWait
)

// tell is how each is told. The texts and keys are documented at Config.Logger.
var tell = [...]struct {
	level slog.Level
	text  string
}{
	nodeOpened:    {slog.LevelInfo, "node opened"},
	peerMet:       {slog.LevelInfo, "peer met"},
	groupReady:    {slog.LevelInfo, "group ready"},
	groupBroken:   {slog.LevelError, "group broken: nothing more is granted"},
	peerDiffers:   {slog.LevelWarn, "peer is configured differently"},
	peerRestarted: {slog.LevelWarn, "peer restarted"},
	peerLeft:      {slog.LevelInfo, "peer left"},
	lockStopped:   {slog.LevelWarn, "lock stopped"},
	refusedInput:  {slog.LevelWarn, "refused what no correct peer sends"},
	longWait:      {slog.LevelWarn, "lock is waited for"},
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

// note has something told if there is a Logger. It never waits.
func (n *Node) note(what what, lock string, err error) {
	if n.log == nil {
		return
	}
	v := notice{what: what, lock: lock, err: err}
	if p, ok := err.(*PeerError); ok {
		if p.Peer == n.cfg.Self && p.Err == ErrLeft && n.downReason() == ErrClosed {
			return // it is our own Close
		}
		v.peer = p.Peer
	}
	n.log.add(v)
}

// notePeer is note for what is about a peer and no mistake.
func (n *Node) notePeer(what what, peer dmutex.NodeID) {
	if n.log != nil {
		n.log.add(notice{what: what, peer: peer})
	}
}

// refuse counts what no correct peer sends.
func (n *Node) refuse(from dmutex.NodeID, err error) {
	n.refused.Add(1)
	if n.log != nil {
		n.log.add(notice{what: refusedInput, peer: from, err: err})
	}
}

// noteWait has it told that h has waited for long, if it is the first waiter of this
// node, and for whom. It returns after what time to do so again.
func (n *Node) noteWait(h *Held) time.Duration {
	s := h.lock.shard
	s.mu.Lock()
	waiters := h.lock.waiters()
	first := len(waiters) > 0 && waiters[0].held == h
	st := h.lock.status()
	waited := time.Duration(n.now() - h.since)
	s.mu.Unlock()
	if !first || strings.HasPrefix(h.lock.name, electionPrefix) { // who campaigns may wait for ever
		return max(waited, longAfter)
	}
	more := []slog.Attr{slog.Duration("waited", waited)}
	if st.Holder != dmutex.None {
		more = append(more, slog.Uint64("holder", uint64(st.Holder)))
	}
	if len(st.WaitsFor) > 0 {
		more = append(more, slog.String("for", n.silence(st.WaitsFor)))
	}
	n.log.add(notice{what: longWait, lock: h.lock.name, more: more})
	return max(waited, longAfter)
}

// silence lists nodes with since when nothing was heard of them.
func (n *Node) silence(ids []dmutex.NodeID) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%v", id)
		if p := n.peer(id); p != nil {
			fmt.Fprintf(&b, " (silent for %v)", p.status().Silent.Round(100*time.Millisecond))
		}
	}
	return b.String()
}

func (l *logger) add(v notice) {
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
		if v.what >= peerDiffers {
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
