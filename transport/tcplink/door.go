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
	inside []greeter
	count  map[netip.Prefix]int
}

type greeter struct {
	nc   net.Conn
	from netip.Prefix
}

var errCrowd = errors.New("closed in favor of another: too many connections have not said which node they are from")

// enter lets a connection in and returns the one that gives way to it, if any.
func (d *door) enter(nc net.Conn) (out net.Conn) {
	if len(d.inside) >= d.places {
		most := 0
		for _, n := range d.count {
			most = max(most, n)
		}
		var crowd []greeter
		for _, g := range d.inside {
			if d.count[g.from] == most {
				crowd = append(crowd, g)
			}
		}
		out = crowd[d.pick(len(crowd))].nc
		d.leave(out)
	}
	from := source(nc.RemoteAddr())
	d.inside = append(d.inside, greeter{nc, from})
	d.count[from]++
	return out
}

// leave reports whether the connection was still there.
func (d *door) leave(nc net.Conn) bool {
	i := slices.IndexFunc(d.inside, func(g greeter) bool { return g.nc == nc })
	if i < 0 {
		return false
	}
	from := d.inside[i].from
	d.inside = slices.Delete(d.inside, i, i+1)
	if d.count[from]--; d.count[from] == 0 {
		delete(d.count, from)
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
