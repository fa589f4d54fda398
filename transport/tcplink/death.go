package tcplink

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"syscall"
)

// looks is how often a peer without a connection is looked after. Its system may take a while to
// end the process.
const looks = 25

// watch finds out whether the process of a peer has ended, when its connection was lost or its
// address has refused the first: then the address refuses two more in a row, and none comes.
func (p *peer) watch() {
	l := p.link
	p.mu.Lock()
	lost := p.lost
	p.mu.Unlock()
	if l.host.Died == nil || p.addr == "" || !wait(p.ctx, 3*l.pace.minRedial) { // one that lives connects again sooner
		return
	}
	refused := 0
	for range looks {
		p.mu.Lock()
		over := p.conn != nil || p.lost != lost
		p.mu.Unlock()
		if over {
			return
		}
		if refused = refusals(refused, l.knock(p.ctx, p.addr)); refused == 2 {
			l.log.Log(slog.LevelWarn, "tcplink: no process listens at the peer's address anymore", slog.Any("node", p.self), slog.Any("peer", p.id), slog.String("address", p.addr))
			l.host.Died(p.id)
			return
		}
		if !wait(p.ctx, min(l.host.Apart, 8*l.pace.minRedial)) { // a short one costs callers less
			return
		}
	}
}

// knock connects for a moment, to every address if it is a name: it returns a refusal only
// if all of them refuse.
func (l *Link) knock(ctx context.Context, addr string) error {
	host, port, _ := net.SplitHostPort(addr) // SetPeer has checked it
	hosts, err := l.network.LookupHost(ctx, host)
	for _, host := range hosts {
		var nc net.Conn
		if nc, err = l.connect(ctx, net.JoinHostPort(host, port)); err == nil {
			nc.Close()
		}
		if refusals(0, err) == 0 {
			return err
		}
	}
	return err
}

// wsaeconnrefused is what Windows says for ECONNREFUSED, which has another number there.
const wsaeconnrefused = syscall.Errno(10061)

// refusals returns how many connections were refused in a row by the system at the other
// end, as no process listens there: how many were before, and the outcome of one more.
func refusals(before int, err error) int {
	errno, ok := errors.AsType[syscall.Errno](err)
	if ok && (errno == syscall.ECONNREFUSED || errno == wsaeconnrefused) {
		return before + 1
	}
	return 0
}
