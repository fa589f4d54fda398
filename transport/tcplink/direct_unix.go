//go:build unix

package tcplink

import (
	"net"
	"syscall"
)

// A direct writes to a socket as much as it takes at once. The net package
// alone would wait for the rest.
type direct struct {
	raw  syscall.RawConn
	data []byte
	once func(fd uintptr) (done bool)
}

// newDirect returns nil if the connection is not a plain socket.
func newDirect(c net.Conn) *direct {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	d := &direct{raw: raw}
	d.once = d.writeOnce // kept, for a method value allocates
	return d
}

// write returns what was not written, moved to the front of data. If the
// connection is broken, that is all of it, and the next write finds out why.
func (d *direct) write(data []byte) (rest []byte) {
	if d == nil {
		return data
	}
	d.data = data
	if d.raw.Write(d.once) != nil {
		return data
	}
	return data[:copy(data, d.data)]
}

func (d *direct) writeOnce(fd uintptr) bool {
	for {
		n, err := syscall.Write(int(fd), d.data)
		if err == syscall.EINTR {
			continue
		}
		if err == nil {
			d.data = d.data[n:]
		}
		return true
	}
}
