package tcplink

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// refusals keep the log readable although a refused process tries again at once. A
// reason is logged when it first occurs for a host, and later with the number of times
// that it occurred again.
type refusals struct {
	mu     sync.Mutex
	again  map[refusal]int
	others int // for which there was no room
	last   rejection
}

// A rejection is what was refused last of a connection that named no peer.
type rejection struct {
	at   time.Time
	host string
	err  error
}

type refusal struct{ host, reason string }

// maxRefusals bounds what refusals remember, and how many records are written in
// a period.
const maxRefusals = 64

// maxReason bounds the text of a reason in bytes.
const maxReason = 512

// refuse reports a connection that was not accepted. p is the peer that it said it was
// from, nil if it named none.
func (l *Link) refuse(from net.Addr, p *peer, err error) {
	if l.ctx.Err() != nil {
		return // it was our own Close
	}
	host, _, _ := net.SplitHostPort(from.String())
	err = reason(err)
	if p != nil {
		p.setTrouble(fmt.Errorf("tcplink: node %d, from %s, was refused: %w", p.id, host, err))
	}
	r, key := &l.refusals, refusal{host, err.Error()}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p == nil && err != errCrowd {
		r.last = rejection{time.Now(), host, err}
	}
	_, known := r.again[key]
	switch {
	case known:
		r.again[key]++
	case len(r.again) == maxRefusals:
		r.others++
	default:
		r.again[key] = 0
		level := slog.LevelWarn
		if _, ok := err.(passing); ok {
			level = slog.LevelDebug
		}
		l.log.Load().Log(l.ctx, level, "tcplink: connection refused", "from", host, "error", err)
	}
}

// reason returns an error without the addresses, whose ports differ each time, and
// cut to a bounded length, because a stranger's certificate may be in its text.
func reason(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		err = &net.OpError{Op: e.Op, Net: e.Net, Err: e.Err}
	}
	if text := err.Error(); len(text) > maxReason {
		return errors.New(text[:maxReason] + "...")
	}
	return err
}

// sumUp logs the reasons that occurred again since it was last called, and forgets
// those that did not.
func (l *Link) sumUp() {
	r := &l.refusals
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, count := range r.again {
		if count == 0 {
			delete(r.again, key)
			continue
		}
		r.again[key] = 0
		l.log.Load().Warn("tcplink: connections refused again", "from", key.host, "error", key.reason, "count", count)
	}
	if r.others > 0 {
		l.log.Load().Warn("tcplink: more connections refused", "count", r.others)
		r.others = 0
	}
}
