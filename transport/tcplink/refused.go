package tcplink

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
)

const maxReason = 512 // bytes

// refuse reports a connection that was not accepted. p is the peer that it claimed to
// come from, or nil.
func (l *Link) refuse(from net.Addr, p *peer, err error) {
	if l.ctx.Err() != nil {
		return // it was our own Close
	}
	host, _, _ := net.SplitHostPort(from.String())
	err = reason(err)
	if p != nil {
		p.setTrouble(fmt.Errorf("tcplink: node %d, from %s, was refused: %w", p.id, host, err))
	} else if err != errCrowd {
		refusal := fmt.Errorf("a connection from %s was refused: %w", host, err)
		l.refused.Store(&refusal)
	}
	l.mu.RLock()
	self := l.self
	l.mu.RUnlock()
	l.log.Often(l.level(err), "tcplink: connection refused", slog.Any("node", self), slog.String("from", host), slog.Any("err", err))
}

// level returns at what level an error is logged.
func (l *Link) level(err error) slog.Level {
	if _, ok := errors.AsType[passing](err); ok && l.dynamic {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// reason removes the addresses from an error, because their ports differ each time, and
// cuts it to maxReason, because its text may contain a stranger's certificate.
func reason(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		why := e.Err
		if dns, ok := why.(*net.DNSError); ok { // its text may be that of another OpError
			short := *dns
			if i := strings.LastIndex(dns.Err, ": "); i >= 0 {
				short.Err = dns.Err[i+len(": "):]
			}
			why = &short
		}
		err = &net.OpError{Op: e.Op, Net: e.Net, Err: why}
	}
	if text := err.Error(); len(text) > maxReason {
		return errors.New(text[:maxReason] + "...")
	}
	return err
}
