//go:build unix

package tcplink

import (
	"net"
	"syscall"
)

// newDirect returns a function that writes to a socket as much as it takes at once, and
// returns the rest, moved to the front of data; package net alone would wait for it. If the
// connection is broken, or is no plain socket, all of it is the rest.
func newDirect(nc net.Conn) (write func(data []byte) (rest []byte)) {
	socket, ok := nc.(syscall.Conn)
	if !ok {
		return writeLater
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return writeLater
	}
	var left []byte
	once := func(fd uintptr) (done bool) {
		if n, err := syscall.Write(int(fd), left); err == nil {
			left = left[n:]
		}
		return true
	}
	return func(data []byte) []byte {
		left = data
		_ = raw.Write(once) // the next write finds out why it fails
		return data[:copy(data, left)]
	}
}

func writeLater(data []byte) (rest []byte) { return data }
