package demo

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newAccount(t *testing.T) *account {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, createAccount(dir))
	a, err := openAccount(dir)
	require.NoError(t, err)
	t.Cleanup(func() { a.file.Close() })
	return a
}

func (a *account) require(t *testing.T, balance int64, fence uint64) {
	t.Helper()
	b, f, err := a.read()
	require.NoError(t, err)
	require.Equal(t, balance, b)
	require.Equal(t, fence, f)
}

func TestPay(t *testing.T) {
	a := newAccount(t)
	a.require(t, 0, 0)
	for i, c := range []struct {
		fence   uint64
		stale   bool
		highest uint64
	}{
		{1, false, 1},
		{2, false, 2},
		{7, false, 7},
		{7, true, 7}, // not above
		{3, true, 7}, // a late one does not lower the mark
		{8, false, 8},
		{1<<64 - 1, false, 1<<64 - 1},
	} {
		overlap, stale, err := a.pay(t.Context(), c.fence, time.Microsecond)
		require.NoError(t, err)
		require.False(t, overlap)
		require.Equal(t, c.stale, stale, "fence %d", c.fence)
		a.require(t, int64(i+1)*deposit, c.highest)
	}
}

// Two inside: the second sees the first, and leaves its marker alone.
func TestPayOverlap(t *testing.T) {
	a := newAccount(t)
	require.NoError(t, os.WriteFile(a.marker, nil, 0o600))
	overlap, _, err := a.pay(t.Context(), 1, time.Microsecond)
	require.NoError(t, err)
	require.True(t, overlap)
	require.FileExists(t, a.marker)

	require.NoError(t, os.Remove(a.marker))
	overlap, _, err = a.pay(t.Context(), 2, time.Microsecond)
	require.NoError(t, err)
	require.False(t, overlap)
	require.NoFileExists(t, a.marker)
}

// A teller that is stopped while it thinks writes nothing, and leaves.
func TestPayStopped(t *testing.T) {
	a := newAccount(t)
	why := errors.New("the demo is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, _, err := a.pay(ctx, 1, time.Hour)
	require.ErrorIs(t, err, why)
	a.require(t, 0, 0)
	require.NoFileExists(t, a.marker)
}

func TestAccountGarbled(t *testing.T) {
	a := newAccount(t)
	_, err := a.file.WriteAt([]byte("overdraft"), 0)
	require.NoError(t, err)
	_, _, err = a.pay(t.Context(), 1, time.Microsecond)
	require.ErrorContains(t, err, "overdraft")
	require.NoFileExists(t, a.marker)
}
