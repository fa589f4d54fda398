package main

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/lock/fence"
)

// LESSONS L2, L12, L46: the whole story, as main tells it.
func Example_pausedHolderIsRefused() {
	main()
	// Output:
	// node 2 holds the lock and writes maintenance
	// node 2 of the new group has a higher fence: true
	// it writes repair
	// the former node 2 wakes up and writes
	// but the bucket refuses: true
	// the mode is repair
}

// late pauses its user once, between the read and the write.
type late struct {
	jetstream.KeyValue
	pause func()
}

func (l *late) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if l.pause != nil {
		l.pause()
		l.pause = nil
	}
	return l.KeyValue.Update(ctx, key, value, revision)
}

// LESSONS L46: a former holder is refused, even if it was paused between its
// look at the fence and its write.
func TestPausedHolderIsRefused(t *testing.T) {
	ctx := t.Context()
	s, err := startServer(t.TempDir())
	require.NoError(t, err)
	defer s.WaitForShutdown()
	defer s.Shutdown()
	kv, err := bucket(ctx, s.ClientURL())
	require.NoError(t, err)

	require.NoError(t, put(ctx, kv, "mode", entry{6, "first"}))
	require.NoError(t, put(ctx, kv, "mode", entry{6, "again"}))
	paused := &late{kv, func() { require.NoError(t, put(ctx, kv, "mode", entry{7, "later"})) }}
	require.ErrorIs(t, put(ctx, paused, "mode", entry{6, "former"}), fence.ErrStale)
	stored, _, err := get(ctx, kv, "mode")
	require.NoError(t, err)
	require.Equal(t, entry{7, "later"}, stored)

	require.NoError(t, kv.Delete(ctx, "mode"))
	require.ErrorIs(t, put(ctx, kv, "mode", entry{6, "former"}), errDeleted)
}
