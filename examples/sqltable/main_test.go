package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/lock/fence"
)

// LESSONS L2, L12, L46: the whole story, as main tells it.
func Example_pausedHolderIsRefused() {
	main()
	// Output:
	// node 1 holds the lock and reads 100
	// node 2 of the new group has a higher fence: true
	// it writes 110
	// node 1 wakes up; its handle has no error: true
	// but the table refuses the write: true
	// the balance is 110
}

// LESSONS L46: a holder may write twice. When a later holder has read or written, the
// former holder may do neither.
func TestPausedHolderIsRefused(t *testing.T) {
	ctx := t.Context()
	db, err := create(ctx, filepath.Join(t.TempDir(), "bank.db"))
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, write(ctx, db, "alice", 1, 6))
	require.NoError(t, write(ctx, db, "alice", 2, 6))
	require.NoError(t, write(ctx, db, "alice", 3, 7))
	require.ErrorIs(t, write(ctx, db, "alice", 4, 6), fence.ErrStale)
	balance, err := look(ctx, db, "alice")
	require.NoError(t, err)
	require.EqualValues(t, 3, balance)

	balance, err = read(ctx, db, "alice", 8)
	require.NoError(t, err)
	require.EqualValues(t, 3, balance)
	require.ErrorIs(t, write(ctx, db, "alice", 4, 7), fence.ErrStale, "8 has read, and not yet written")
	_, err = read(ctx, db, "alice", 7)
	require.ErrorIs(t, err, fence.ErrStale)
	require.NoError(t, write(ctx, db, "alice", balance+1, 8))
}

// A new group begins above the highest fence that was written.
func TestHighest(t *testing.T) {
	ctx := t.Context()
	db, err := create(ctx, filepath.Join(t.TempDir(), "bank.db"))
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, write(ctx, db, "alice", 1, 1<<62))
	last, err := highest(ctx, db)
	require.NoError(t, err)
	require.EqualValues(t, uint64(1<<62), last)
	one, two := openGroup(ctx, last)
	defer kill(one)
	defer kill(two)
	held, err := one.Mutex("alice").Acquire(ctx)
	require.NoError(t, err)
	require.Greater(t, held.Fence(), last)
}
