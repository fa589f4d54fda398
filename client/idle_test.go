package client_test

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/client"
)

// A client of a group that has just begun says for what the group waits, once it has a session and a call waits.
func TestNewGroup(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var opening sync.WaitGroup
		opening.Go(func() { w.open("a") })
		defer opening.Wait()
		synctest.Wait()
		u := w.use("u", "a")
		for _, wait := range []time.Duration{100 * time.Millisecond, 4 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			_, err := u.Mutex("l").Acquire(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, `client: lock "l": waiting until the leases of former members, if there were any, have ended: at most `)
		}
		h, err := u.Mutex("l").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Release())
	})
}

// A client that speaks TLS to a member that does not is told what may be wrong, also if the member resets the
// connection.
func TestTLSAtPlainMember(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	met := make(chan struct{}, 100)
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			met <- struct{}{}
			_, _ = nc.Read(make([]byte, 3))
			_ = nc.Close() // the rest is unread, so the kernel resets the connection
		}
	}()
	c, err := client.New(client.Config{Members: []string{l.Addr().String()}, TLS: &tls.Config{InsecureSkipVerify: true}})
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-met
		<-met // the client has noted why it does not reach the member
		cancel()
	}()
	_, err = c.Mutex("l").Acquire(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "no member answers there: give an address where a member serves clients, and use TLS if and only if the member does: ")
}
