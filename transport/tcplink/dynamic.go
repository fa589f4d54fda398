package tcplink

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// What a link does in addition if its number and peers come from a record:
// see transport.DynamicLink.

// A passing error is a refusal that occurs while members come and go, and ends when all
// members have read the record.
type passing struct{ error }

var (
	errNobody  = errors.New("tcplink: this node has no number yet")
	errNotPeer = errors.New("the peer closed the connection: it may not know this node yet, or have another number by now")
)

// maxAddress is what transport.DynamicLink allows, in bytes.
const maxAddress = 256

// advertised returns the address at which the others reach this node. Without
// Config.Advertise it is the address that the link listens on, perhaps still with port 0.
func (l *Link) advertised(c Config, listen string) (string, error) {
	addr := cmp.Or(c.Advertise, listen)
	switch {
	case !l.dynamic && c.Advertise != "":
		return "", dmutex.Misuse("tcplink: Config.Advertise is for a link with Config.Self 0: the others have the address in their Config.Peers")
	case !l.dynamic:
		return listen, nil
	case len(c.Peers) > 0:
		return "", dmutex.Misuse("tcplink: Config.Peers with Config.Self 0: give this node's number, or no peers if a store gives the numbers")
	case c.NodeOf != nil:
		return "", dmutex.Misuse("tcplink: Config.NodeOf with Config.Self 0: a certificate is bound to the address in the record, not to a number")
	case wildcard(addr):
		return "", dmutex.Misuse(fmt.Sprintf("tcplink: Config.Listen or Config.Advertise is %q, which names no host:"+
			" set Config.Advertise to the host:port that the others dial, such as the pod's IP and the port", addr))
	case len(addr) > maxAddress-len("65535"):
		return "", dmutex.Misuse(fmt.Sprintf("tcplink: the address of this node has %d bytes: Config.Advertise must be shorter", len(addr)))
	case c.Advertise != "":
		return addr, l.checkAddress("Config.Advertise", addr, false)
	}
	return addr, nil
}

// wildcard reports whether the address names no host.
func wildcard(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false // refused elsewhere
	}
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.Unmap().IsUnspecified()
}

// Address implements [transport.DynamicLink]. It returns [Config.Advertise], or else the
// host in Config.Listen with the port that the link listens on.
func (l *Link) Address() string { return l.address }

// Become implements [transport.DynamicLink]. It returns [dmutex.ErrMisuse] if the link was
// made with a number.
func (l *Link) Become(self dmutex.NodeID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return transport.ErrClosed
	case !l.dynamic:
		return dmutex.Misuse(fmt.Sprintf("tcplink: the link was made for node %d: leave Config.Self 0", l.self))
	}
	for id, p := range l.peers {
		delete(l.peers, id)
		p.remove()
	}
	l.self = self
	return nil
}

// RemovePeer implements [transport.DynamicLink]. A link that was made with a number
// removes peers, too.
func (l *Link) RemovePeer(id dmutex.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.peers[id]; p != nil {
		delete(l.peers, id)
		p.remove()
	}
}
