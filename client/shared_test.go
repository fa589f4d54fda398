package client_test

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/node"
)

// Clients of one member share one hold of it, at no message in the group, and keep it when another
// client dies. Allow sees the mode, so a client may be one that only reads.
func TestShared(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		readOnly := func(c *node.Clients) {
			c.Allow = func(_ net.Conn, client, lock string, shared bool) error {
				if client == "reader" && lock != "" && !shared {
					return errors.New("it only reads")
				}
				return nil
			}
		}
		a, b := w.open("a", readOnly), w.open("b", readOnly)
		reader, other := w.use("reader", "a"), w.use("other", "a")
		_, err := reader.Mutex("l").Acquire(t.Context())
		require.ErrorIs(t, err, client.ErrRefused)
		require.ErrorContains(t, err, "it only reads")
		h, err := reader.Mutex("l").Shared().Acquire(t.Context())
		require.NoError(t, err)
		before := a.Status().Sent
		r, err := other.Mutex("l").Shared().Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, h.Fence(), r.Fence())
		require.Equal(t, before, a.Status().Sent)
		st := a.Mutex("l").Status()
		require.True(t, st.Shared)
		require.Equal(t, 2, st.Sharing)
		require.Contains(t, st.Sharers, a.Self())
		require.Zero(t, st.Holder)

		writer := make(chan error, 1)
		go func() {
			h, err := b.Mutex("l").Acquire(t.Context())
			if err == nil {
				err = h.Release()
			}
			writer <- err
		}()
		other.die()
		time.Sleep(2 * session)
		synctest.Wait()
		require.Empty(t, writer)
		require.NoError(t, h.Err())
		require.NoError(t, h.Release())
		require.NoError(t, <-writer)
	})
}
