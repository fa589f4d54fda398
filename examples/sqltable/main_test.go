package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/fence"
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

// LESSONS L46: a holder may write twice, a later one may write, and a former one
// may not any more.
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
	require.ErrorIs(t, write(ctx, db, "alice", 4, 7), fence.ErrStale, "between the read of 8 and its write")
	_, err = read(ctx, db, "alice", 7)
	require.ErrorIs(t, err, fence.ErrStale)
	require.NoError(t, write(ctx, db, "alice", balance+1, 8))
}

// A holder of a former group that was granted fence 8 and has not written is
// refused before anybody of the new group has written, and two restarts in a row
// do not meet.
func TestBeginEpoch(t *testing.T) {
	ctx := t.Context()
	db, err := create(ctx, filepath.Join(t.TempDir(), "bank.db"))
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, write(ctx, db, "alice", 1, 7))
	first, err := beginEpoch(ctx, db)
	require.NoError(t, err)
	require.ErrorIs(t, write(ctx, db, "alice", 2, 8), fence.ErrStale)
	second, err := beginEpoch(ctx, db)
	require.NoError(t, err)
	require.Greater(t, second, first)
	require.ErrorIs(t, write(ctx, db, "alice", 2, first+1), fence.ErrStale)
	require.NoError(t, write(ctx, db, "alice", 2, second+1))
}
