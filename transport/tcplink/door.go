package tcplink

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// A door holds the accepted connections that have not yet said whose they are. It has
// few places, because any host can take one. When all are taken, a connection from the most
// frequent source is closed, so a flood from one host keeps out no other. Within a source,
// the choice is random: if the oldest were closed, a flood that arrives faster than a
// handshake ends would keep out all peers forever.
type door struct {
	places int
	pick   func(n int) int // a number from 0, less than n

	mu     sync.Mutex
	inside []net.Conn
}

var errCrowd = errors.New("closed in favor of another: too many connections have not said which node they are from")

// enter lets a connection in and returns the one that gives way to it, if any.
func (d *door) enter(nc net.Conn) (out net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inside = append(d.inside, nc); len(d.inside) <= d.places {
		return nil
	}
	crowds := make(map[netip.Prefix][]net.Conn)
	var most []net.Conn
	for _, nc := range d.inside[:d.places] {
		from := source(nc.RemoteAddr())
		if crowds[from] = append(crowds[from], nc); len(crowds[from]) > len(most) {
			most = crowds[from]
		}
	}
	out = most[d.pick(len(most))]
	d.inside = slices.DeleteFunc(d.inside, func(nc net.Conn) bool { return nc == out })
	return out
}

// leave reports whether the connection was still there.
func (d *door) leave(nc net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.inside, nc)
	if i >= 0 {
		d.inside = slices.Delete(d.inside, i, i+1)
	}
	return i >= 0
}

// source is the host that a connection comes from. With IPv6 it is the network, because one host
// may have many addresses in it.
func source(addr net.Addr) netip.Prefix {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	from, _ := ip.Prefix(bits) // the bits are right
	return from
}
