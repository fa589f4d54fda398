package tcplink

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/dmutex/dmutex"
)

// accept accepts connections and finds out which nodes they are from.
func (l *Link) accept() {
	for {
		nc, err := l.listener.Accept()
		switch {
		case err == nil:
			l.admit(nc)
		case errors.Is(err, net.ErrClosed):
			return
		default: // such as too many open files
			l.log.Often(slog.LevelWarn, "tcplink: cannot accept", slog.Any("err", err))
			if !wait(l.ctx, l.pace.minRedial) {
				return
			}
		}
	}
}

// admit lets in a connection that was accepted, for which another may have to go.
func (l *Link) admit(nc net.Conn) {
	nc = l.guard.Load().over(nc, false)
	if out := l.door.enter(nc); out != nil {
		out.Close()
	}
	l.running.Go(func() { l.welcome(nc) })
}

// welcome serves an accepted connection from greeting to end.
func (l *Link) welcome(nc net.Conn) {
	defer hold(l.ctx, nc)()
	p, c, err := l.answer(nc)
	switch stayed := l.door.leave(nc); {
	case err == nil:
		p.serve(c)
	case stayed:
		l.refuse(nc.RemoteAddr(), p, err)
	default:
		l.refuse(nc.RemoteAddr(), p, errCrowd)
	}
}

// answer is the accepting side of the greeting. With an error it returns the peer that the
// other side claims to be, if it has named one.
func (l *Link) answer(nc net.Conn) (*peer, *conn, error) {
	_ = nc.SetDeadline(time.Now().Add(l.pace.greeting)) // what fails to set it fails to read
	var g greeting
	if err := g.read(nc); err != nil {
		return nil, nil, err
	}
	from := g.From
	l.mu.RLock()
	self, p := l.self, l.peers[from]
	l.mu.RUnlock()
	switch {
	case self == dmutex.None:
		return nil, nil, passing{errNobody}
	case g.To != self:
		return nil, nil, passing{misled(g.To)}
	case p == nil && l.dynamic && from != dmutex.None && from != self:
		nc.Close()
		l.host.Deliver(from, nil)
		return nil, nil, passing{fmt.Errorf("node %d is not a peer", from)}
	case p == nil:
		return nil, nil, fmt.Errorf("node %d is not in the address book", from)
	case p.id < self:
		return nil, nil, fmt.Errorf("node %d has dialed, but is the one to be dialed", from)
	}
	if err := l.guard.Load().authenticate(nc, from, p.addr); err != nil {
		return p, nil, err
	}
	if _, highest := l.host.Life(); g.Life > highest {
		return p, nil, fmt.Errorf("node %d claims a life far ahead of the clock: a clock is wrong", from)
	}
	p.mu.Lock()
	present := p.conn
	p.mu.Unlock()
	answer := greeting{From: self, To: from}
	if present != nil && (g.Life < present.life || p.answers(present)) {
		answer.Taken = 1
		if g.Life <= present.life {
			answer.Taken = max(present.life, 1)
		}
		_, _ = nc.Write(answer.bytes())
		return p, nil, fmt.Errorf("another process of node %d is connected", from)
	}
	_ = nc.SetDeadline(time.Time{})
	c := p.take(nc, g.Life, answer.bytes())
	if c == nil {
		return p, nil, passing{fmt.Errorf("node %d is no longer a peer with this address", from)}
	}
	return p, c, nil
}
