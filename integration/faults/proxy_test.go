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

// A cable is all connections from one place to another, through proxies. It can
// be unplugged, held and slowed down.
type cable struct {
	running sync.WaitGroup

	mu        sync.Mutex
	listeners []net.Listener
	conns     map[net.Conn]bool
	cut       bool          // new connections are refused
	held      chan struct{} // closed when bytes may pass again; nil while they do
	delay     time.Duration // before each write
	faulty    bool          // has one of these three faults; set by storm
}

func newCable(t *testing.T) *cable {
	c := &cable{conns: make(map[net.Conn]bool)}
	t.Cleanup(func() {
		c.heal()
		c.mu.Lock()
		c.cut = true
		for _, l := range c.listeners {
			l.Close()
		}
		c.mu.Unlock()
		c.drop()
		c.running.Wait()
	})
	return c
}

// to returns an address that leads through the cable to the address that target returns.
func (c *cable) to(t *testing.T, target func() string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c.mu.Lock()
	c.listeners = append(c.listeners, l)
	c.mu.Unlock()
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
	if c.cut {
		c.mu.Unlock()
		return
	}
	c.conns[near], c.conns[far] = true, true
	c.mu.Unlock()

	var both sync.WaitGroup
	both.Go(func() { c.carry(far, near) })
	both.Go(func() { c.carry(near, far) })
	both.Wait()
	c.mu.Lock()
	delete(c.conns, near)
	delete(c.conns, far)
	c.mu.Unlock()
}

func (c *cable) carry(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	for buf := make([]byte, 32<<10); ; {
		n, err := from.Read(buf)
		c.mu.Lock()
		held, delay := c.held, c.delay
		c.mu.Unlock()
		if held != nil {
			<-held
		}
		if delay > 0 {
			<-time.After(delay)
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// drop breaks all connections; what is in flight in them is lost.
func (c *cable) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		conn.Close()
	}
}

// unplug breaks all connections and permits no new ones.
func (c *cable) unplug() {
	c.mu.Lock()
	c.cut = true
	c.mu.Unlock()
	c.drop()
}

// hold keeps all bytes back, and connections alive.
func (c *cable) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = make(chan struct{})
}

func (c *cable) slow(delay time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delay = delay
}

// heal ends all faults.
func (c *cable) heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held != nil {
		close(c.held)
	}
	c.cut, c.held, c.delay = false, nil, 0
}

// A cable has the faults that it promises. Without them, the other tests would prove nothing.
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
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
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
	say := func(conn net.Conn) {
		_, err := conn.Write([]byte("x"))
		require.NoError(t, err)
	}
	hear := func(conn net.Conn) error {
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	}

	conn := dial()
	say(conn)
	require.NoError(t, hear(conn))

	c.hold()
	say(conn)
	heard := make(chan error)
	go func() { heard <- hear(conn) }()
	select {
	case <-heard:
		require.Fail(t, "the cable does not hold")
	case <-time.After(20 * time.Millisecond):
	}
	c.heal()
	require.NoError(t, <-heard)

	const delay = 20 * time.Millisecond
	c.slow(delay)
	before := time.Now()
	say(conn)
	require.NoError(t, hear(conn))
	require.GreaterOrEqual(t, time.Since(before), 2*delay)
	c.heal()

	c.drop()
	require.Error(t, hear(conn))
	conn = dial()
	say(conn)
	require.NoError(t, hear(conn))

	c.unplug()
	require.Error(t, hear(conn))
	require.Error(t, hear(dial()), "an unplugged cable permits a connection")
	c.heal()
	conn = dial()
	say(conn)
	require.NoError(t, hear(conn))
}
