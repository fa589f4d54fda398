package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/lock"
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

// A client that wants the lock alone and gives up keeps no reader out: clients of every member share it at once,
// and meet.
func TestWriterGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		members := []*member{w.open("a"), w.open("b"), w.open("c")}
		one, two, three := w.use("one", "a"), w.use("two", "b"), w.use("three", "c")
		for k := range 6 { // homes
			name := fmt.Sprint("l", k)
			held := []lock.Held{}
			share := func(m lock.Mutex) {
				h, err := m.Acquire(nodetest.ContextFor(t, time.Second))
				require.NoError(t, err, name)
				held = append(held, h)
			}
			share(one.Mutex(name).Shared())
			if k%2 == 0 {
				_, err := two.Mutex(name).TryAcquire(t.Context())
				require.ErrorIs(t, err, lock.ErrBusy)
			} else {
				deadline, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				writer := make(chan error, 1)
				go func() {
					_, err := two.Mutex(name).Acquire(deadline)
					writer <- err
				}()
				time.Sleep(time.Second)
				_, err := three.Mutex(name).Shared().Acquire(nodetest.ContextFor(t, 100*time.Millisecond))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, <-writer, context.DeadlineExceeded)
				cancel()
			}
			for _, c := range []*user{one, two, three} {
				share(c.Mutex(name).Shared())
			}
			for _, n := range members {
				share(n.Mutex(name).Shared())
			}
			for _, h := range held {
				require.NoError(t, h.Err())
				require.NoError(t, h.Release())
			}
			h, err := two.Mutex(name).Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, h.Release())
		}
	})
}

// The error of a client that would share names the writer that keeps it out: a client of its own member, or of
// another one; or that its member cannot know.
func TestErrorNamesTheWriter(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.open("a")
		w.open("b")
		one, two, near, far := w.use("one", "a"), w.use("two", "b"), w.use("near", "b"), w.use("far", "a")
		for k := range 4 { // homes
			name := fmt.Sprint("l", k)
			h, err := one.Mutex(name).Shared().Acquire(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			writer := make(chan error, 1)
			go func() {
				_, err := two.Mutex(name).Acquire(ctx)
				writer <- err
			}()
			time.Sleep(2 * time.Second)
			for c, want := range map[*user]string{
				near: `shared by .* \(node 1\), and a call of .* \(node 2\) has waited [34]s to hold it alone: |its member does not know the holder: `,
				far:  `shared by .* \(node 1\), and a call of another process waits to hold it alone: `,
			} {
				_, err := c.Mutex(name).Shared().Acquire(nodetest.ContextFor(t, time.Second))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Regexp(t, want, err)
			}
			cancel()
			require.Error(t, <-writer)
			require.NoError(t, h.Release())
		}
	})
}
