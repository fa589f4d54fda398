//go:build !unix

package tcplink

import "net"

// A direct would write to a socket without waiting; here it writes nothing.
type direct struct{}

func newDirect(net.Conn) *direct { return nil }

func (*direct) write(data []byte) (rest []byte) { return data }
