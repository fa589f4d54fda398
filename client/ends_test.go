package client_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/clientlink"
	"github.com/dmutex/dmutex/internal/clientsession"
)

// A member that confirms each session, and ends the connection at once, is asked more and more rarely.
func TestConfirmedAndEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		c, err := client.New(client.Config{Members: []string{"m"}, Dial: func(context.Context, string) (net.Conn, error) {
			dials++
			here, there := net.Pipe()
			go func() {
				member := clientlink.New(there, 1<<16)
				if _, err := member.Read(); err == nil {
					member.Send(clientsession.Message{Kind: clientsession.Confirm, For: int64(10 * time.Second), Length: int64(10 * time.Second)})
				}
				_ = member.Close()
			}()
			return here, nil
		}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err = c.Mutex("x").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, c.Close())
		require.Less(t, dials, 80)
	})
}
