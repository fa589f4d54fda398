//go:build unix

package faults

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A cable is all connections to a process, and all that it makes to a server of NATS or of its records, through
// proxies. While it is unplugged there are none.
type cable struct {
	running sync.WaitGroup

	mu        sync.Mutex
	listeners []net.Listener
	conns     map[net.Conn]bool
	unplugged bool
}

func newCable(t *testing.T) *cable {
	c := &cable{conns: make(map[net.Conn]bool)}
	t.Cleanup(func() {
		for _, l := range c.listeners {
			l.Close()
		}
		c.plug(false)
		c.running.Wait()
	})
	return c
}

// to returns an address that leads through the cable to the address that target returns.
func (c *cable) to(t *testing.T, target func() string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c.listeners = append(c.listeners, l)
	c.running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			c.running.Go(func() { c.join(near, target()) })
		}
	})
	return l.Addr().String()
}

// join carries bytes between a connection and a new one until either ends.
func (c *cable) join(near net.Conn, address string) {
	defer near.Close()
	far, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return
	}
	defer far.Close()
	c.mu.Lock()
	if c.unplugged {
		c.mu.Unlock()
		return
	}
	c.conns[near], c.conns[far] = true, true
	c.mu.Unlock()

	var both sync.WaitGroup
	carry := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		to.Close()
		from.Close()
	}
	both.Go(func() { carry(far, near) })
	both.Go(func() { carry(near, far) })
	both.Wait()
	c.mu.Lock()
	delete(c.conns, near)
	delete(c.conns, far)
	c.mu.Unlock()
}

// plug permits connections, or breaks all of them and permits no new ones. What is in flight in them is lost.
func (c *cable) plug(in bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unplugged = !in; in {
		return
	}
	for conn := range c.conns {
		conn.Close()
	}
}

// A cable has the fault that it promises. Without it, the other tests would prove less.
func TestCable(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	c := newCable(t)
	address := c.to(t, echo.Addr().String)
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	works := func(conn net.Conn) bool {
		_, _ = conn.Write([]byte("x")) // it may be broken
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err == nil
	}
	conn := dial()
	require.True(t, works(conn))
	c.plug(false)
	require.False(t, works(conn))
	require.False(t, works(dial()), "an unplugged cable permits a connection")
	c.plug(true)
	require.True(t, works(dial()))
}
