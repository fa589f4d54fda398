package tcplink

import (
	"context"
	"net"
	"syscall"
)

// A tcp is the network of the machine.
type tcp struct {
	control func(network, address string, c syscall.RawConn) error
}

func (t tcp) Listen(ctx context.Context, address string) (net.Listener, error) {
	config := net.ListenConfig{Control: t.control}
	return config.Listen(ctx, "tcp", address)
}

func (t tcp) Dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{Control: t.control}
	return dialer.DialContext(ctx, "tcp", address)
}

func (t tcp) LookupHost(ctx context.Context, host string) ([]string, error) {
	return net.DefaultResolver.LookupHost(ctx, host)
}

// connect dials, for as long as a greeting may take.
func (l *Link) connect(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, l.pace.greeting)
	defer cancel()
	return l.network.Dial(ctx, address)
}
