package tcplink

import (
	"errors"
	"net"
	"net/netip"
	"slices"
)

// A door holds the accepted connections that have not yet said whose they are. It has
// few places, because each costs a file descriptor and perhaps a handshake, and any
// host can take one. When all are taken, a connection from the most frequent source is
// closed, so a flood from one host keeps out no other host. Within a source, the choice
// is random: if the oldest were closed, a flood that arrives faster than a handshake
// ends would keep out all peers forever.
type door struct {
	places int
	pick   func(n int) int // a number from 0, less than n
	inside int
	crowds map[netip.Prefix][]net.Conn // by source, none of them empty
}

var errCrowd = errors.New("closed in favor of another: too many connections have not said which node they are from")

// enter lets a connection in and returns the one that gives way to it, if any.
func (d *door) enter(nc net.Conn) (out net.Conn) {
	if d.inside >= d.places {
		var most []net.Conn
		for _, crowd := range d.crowds {
			if len(crowd) > len(most) {
				most = crowd
			}
		}
		out = most[d.pick(len(most))]
		d.leave(out)
	}
	from := source(nc.RemoteAddr())
	d.crowds[from] = append(d.crowds[from], nc)
	d.inside++
	return out
}

// leave reports whether the connection was still there.
func (d *door) leave(nc net.Conn) bool {
	from := source(nc.RemoteAddr())
	crowd := d.crowds[from]
	i := slices.Index(crowd, nc)
	if i < 0 {
		return false
	}
	d.inside--
	if d.crowds[from] = slices.Delete(crowd, i, i+1); len(crowd) == 1 {
		delete(d.crowds, from)
	}
	return true
}

// source is the host that a connection comes from, or, with IPv6, its network, of which
// one host may have many addresses.
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
