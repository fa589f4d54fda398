package tcplink

import (
	"errors"
	"fmt"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// A passing error is a refusal that occurs while members come and go, and ends when all
// members have read the record.
type passing struct{ error }

var (
	errUnmade  = dmutex.Misuse("tcplink: the link was not made by New or NewDynamic")
	errNobody  = errors.New("tcplink: this node has no number yet")
	errNotPeer = errors.New("the peer closed the connection: it may not know this node yet, or have another number by now")
)

// Address implements [transport.DynamicLink]. It returns [Config.Advertise], or else the
// host in Config.Listen with the port that the link listens on.
func (l *Link) Address() string { return l.address }

// Become implements [transport.DynamicLink].
func (l *Link) Become(self dmutex.NodeID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ctx == nil:
		return errUnmade
	case l.ctx.Err() != nil:
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

// SetPeer adds a node to the address book, or gives it a new address, which is dialed at
// once, unless that node dials. A connection with the node at its old address, or one that has
// been begun, is dropped. SetPeer returns [dmutex.ErrMisuse] for an address that New refuses.
func (l *Link) SetPeer(id dmutex.NodeID, addr string) error {
	switch {
	case l.ctx == nil:
		return errUnmade
	case id == dmutex.None:
		return dmutex.Misuse("tcplink: node 0 names nobody: number nodes from 1")
	}
	if addr != "" || l.dynamic {
		if err := l.checkAddress("the address of node "+id.String(), addr, false); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.peers[id]
	switch {
	case id == l.self:
		return dmutex.Misuse("tcplink: SetPeer with the node itself")
	case l.ctx.Err() != nil:
		return transport.ErrClosed
	case l.self == dmutex.None:
		return dmutex.Misuse("tcplink: SetPeer before Become: a node without a number has no peers")
	case p != nil && p.addr == addr:
	default:
		l.peers[id] = newPeer(l, id, addr)
		if p != nil {
			l.peers[id].pending = p.remove()
		}
		l.start(l.peers[id])
	}
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
