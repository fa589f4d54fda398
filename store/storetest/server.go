package storetest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/store"
)

// RunServer tests a kind of store that keeps its records on a server, in addition to [Run]: no client library
// sends a Swap again by itself, a connection that dies without a word does not stop the store, and a record
// that an operator has deleted is none. server is the host and port of the server, or the path of its socket. open
// opens the record of a group as for Run, but at that host and port, where a proxy leads to the server. remove
// deletes the record as an operator does.
func RunServer(t *testing.T, server string, open func(t *testing.T, address, group string) store.Store, remove func(t *testing.T, group string)) {
	for i, test := range []struct {
		name string
		run  func(*wire)
	}{
		{"the answer to a Swap is lost", (*wire).lose},
		{"a connection dies silently", (*wire).silent},
		{"an operator deletes the record", (*wire).deleted},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			group := "server" + string(rune('a'+i))
			p, direct := newProxy(t, server), newProxy(t, server) // only p does harm
			b := &bench{t, ctx, nil, group}
			test.run(&wire{b, p, client{open(t, p.address(), group), b}, client{open(t, direct.address(), group), b}, func() { remove(t, group) }})
		})
	}
}

// A wire is one test of a group, one of whose clients has a wire that does harm.
type wire struct {
	*bench
	proxy    *proxy
	c, other client
	remove   func()
}

// lose cuts the connection in place of the first, second, or later answer to a Swap. When the value is written by then,
// another client swaps before the connection is cut, so nothing may be written again.
func (w *wire) lose() {
	value := []byte("old")
	_, rev := w.other.load()
	rev = w.other.swap(value, rev)
	lost := 0
	for i := range 12 {
		next := fmt.Appendf(nil, "value %d", i)
		_, _ = w.c.load() // dials, if need be
		written := false
		w.proxy.lose(i%6, func() {
			ctx, cancel := context.WithTimeout(w.ctx, patience/6)
			defer cancel()
			loaded, rev, err := w.other.Load(ctx)
			if err == nil && bytes.Equal(loaded, next) {
				_, err = w.other.Swap(ctx, []byte("other"), rev)
				written = err == nil
			}
		})
		ctx, cancel := context.WithTimeout(w.ctx, 2*time.Second)
		swapped, err := w.c.Swap(ctx, next, rev)
		cancel()
		w.proxy.spare()
		require.NotErrorIs(w, err, store.ErrConflict, "nobody else has changed the record: does the client library send a Swap again by itself?")
		switch {
		case written:
			if err != nil {
				lost++
			}
			if i%6 == 0 { // what is lost later may follow the answer, as a frame of HTTP/2
				require.Error(w, err, "a Swap whose answer was lost was sent again, although the record had changed")
			}
			value, rev = w.other.load()
			require.Equal(w, "other", string(value), "a Swap was written twice")
		case err == nil:
			value, rev = next, swapped
			w.other.holds(value, rev)
		default:
			value, rev = w.settle(w.other, value, next, rev)
		}
	}
	require.NotZero(w, lost, "no answer was lost after the Swap was written: does the store connect to the address that it was given?")
}

// silent lets the connections die without a word, while new ones work.
func (w *wire) silent() {
	_, rev := w.c.load()
	rev = w.c.swap([]byte("old"), rev)
	w.proxy.silence()
	ctx, cancel := context.WithTimeout(w.ctx, 250*time.Millisecond)
	defer cancel()
	swapped := make(chan error, 1)
	go func() {
		_, err := w.c.Swap(ctx, []byte("new"), rev)
		swapped <- err
	}()
	select {
	case err := <-swapped:
		require.NotErrorIs(w, err, store.ErrConflict)
		require.NotErrorIs(w, err, store.ErrUnusable)
	case <-w.ctx.Done():
		w.proxy.close()
		require.Fail(w, "a Swap on a silent connection has not returned, although its context has ended")
	}
	for answered := false; !answered; {
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		_, _, err := w.c.Load(ctx)
		cancel()
		answered = err == nil
		require.NoError(w, w.ctx.Err(), "no Load was answered, although new connections work: %v", err)
	}
	if value, _ := w.c.load(); string(value) == "old" {
		w.settle(w.c, []byte("old"), []byte("new"), rev)
	}
}

// deleted lets an operator delete the record. A late Swap neither brings it back, nor overwrites the one that was made
// anew.
func (w *wire) deleted() {
	_, rev := w.c.load()
	old := w.c.swap([]byte("old"), rev)
	w.remove()
	late := func() {
		w.Helper()
		_, err := w.other.Swap(w.ctx, []byte("late"), old)
		require.ErrorIs(w, err, store.ErrConflict, "the record that was loaded is gone")
	}
	late()
	value, none := w.c.load()
	require.Empty(w, value, "a late Swap has brought back a record that was deleted")
	last := w.c.swap([]byte("old"), none)
	require.NotEqual(w, old, last)
	late()
	w.c.holds([]byte("old"), last)
}

// A proxy leads to a server, and does harm.
type proxy struct {
	net.Listener
	server  string
	running sync.WaitGroup

	mu     sync.Mutex
	epoch  int // of the connections that work
	left   int // answers that are passed on before one is lost; negative if none is lost
	lost   func()
	conns  []net.Conn
	closed bool
}

func newProxy(t *testing.T, server string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{Listener: l, server: server, left: -1}
	p.running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			p.join(near)
		}
	})
	t.Cleanup(p.close)
	return p
}

func (p *proxy) address() string { return p.Addr().String() }

func (p *proxy) close() {
	p.Close()
	p.mu.Lock()
	p.closed = true
	for _, c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// lose cuts a connection in place of an answer, after n others, and calls lost before.
func (p *proxy) lose(n int, lost func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.lost = n, lost
}

// spare loses no answer from now on. When it returns, lost is not being called.
func (p *proxy) spare() { p.lose(-1, nil) }

// silence passes nothing on any more on the present connections.
func (p *proxy) silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epoch++
}

func (p *proxy) join(near net.Conn) {
	network := "tcp"
	if strings.HasPrefix(p.server, "/") {
		network = "unix"
	}
	far, err := net.Dial(network, p.server)
	if err != nil {
		near.Close()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns = append(p.conns, near, far); p.closed {
		near.Close()
		far.Close()
	}
	epoch := p.epoch
	p.running.Go(func() { p.carry(far, near, epoch, false) })
	p.running.Go(func() { p.carry(near, far, epoch, true) })
}

func (p *proxy) carry(to, from net.Conn, epoch int, answers bool) {
	for buf := make([]byte, 32<<10); ; {
		n, err := from.Read(buf)
		silent, cut := p.harm(epoch, answers && n > 0)
		if !silent && !cut && n > 0 {
			_, failed := to.Write(buf[:n])
			cut = failed != nil
		}
		if cut || err != nil && !silent {
			to.Close()
			from.Close()
		}
		if cut || err != nil {
			return
		}
	}
}

func (p *proxy) harm(epoch int, answer bool) (silent, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if silent = p.epoch != epoch; silent || !answer || p.left < 0 {
		return silent, false
	}
	if p.left--; p.left < 0 {
		p.lost()
		return false, true
	}
	return false, false
}
