package demo

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newAccount(t *testing.T) *account {
	t.Helper()
	dir := t.TempDir()
	a, err := openAccount(dir, 1)
	require.NoError(t, err)
	t.Cleanup(func() { a.file.Close() })
	return a
}

func (a *account) require(t *testing.T, balance int64, fence uint64) {
	t.Helper()
	l, err := a.read()
	require.NoError(t, err)
	require.Equal(t, balance, l.balance)
	require.Equal(t, fence, l.fence)
}

func TestPay(t *testing.T) {
	a := newAccount(t)
	a.require(t, 0, 0)
	for i, c := range []struct{ fence, highest uint64 }{
		{1, 1},
		{2, 2},
		{7, 7},
		{7, 7}, // not above
		{3, 7}, // a late fence does not lower the highest
		{8, 8},
		{1<<64 - 1, 1<<64 - 1},
	} {
		require.NoError(t, a.pay(t.Context(), 1, c.fence, time.Microsecond))
		a.require(t, int64(i+1)*deposit, c.highest)
	}
	e, err := readPassbook(filepath.Dir(a.marker))
	require.NoError(t, err)
	require.Equal(t, evidence{Entries: 7, Expected: 700, Actual: 700, FenceErrors: 2}, e)
}

// A teller that finds another one inside records an overlap, and leaves the other's marker alone.
func TestPayOverlap(t *testing.T) {
	a := newAccount(t)
	require.NoError(t, os.WriteFile(a.marker, nil, 0o600))
	require.NoError(t, a.pay(t.Context(), 1, 1, time.Microsecond))
	l, err := a.read()
	require.NoError(t, err)
	require.True(t, l.met)
	require.FileExists(t, a.marker)

	require.NoError(t, os.Remove(a.marker))
	require.NoError(t, a.pay(t.Context(), 1, 2, time.Microsecond))
	l, err = a.read()
	require.NoError(t, err)
	require.False(t, l.met)
	require.NoFileExists(t, a.marker)
}

// A teller that is stopped while it thinks writes nothing, and leaves no marker behind.
func TestPayStopped(t *testing.T) {
	a := newAccount(t)
	why := errors.New("the demo is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	err := a.pay(ctx, 1, 1, time.Hour)
	require.ErrorIs(t, err, why)
	a.require(t, 0, 0)
	require.NoFileExists(t, a.marker)
}

func TestAccountGarbled(t *testing.T) {
	a := newAccount(t)
	_, err := a.file.Write([]byte("overdraft"))
	require.NoError(t, err)
	err = a.pay(t.Context(), 1, 1, time.Microsecond)
	require.ErrorContains(t, err, "overdraft")
	require.NoFileExists(t, a.marker)
}

// Every line has the same width, so that no line crosses the end of a page.
func TestLine(t *testing.T) {
	require.Zero(t, os.Getpagesize()%entryWidth)
	for _, l := range []line{{}, {64, true, math.MaxUint64, 1e16 - 1}} {
		a := newAccount(t)
		require.NoError(t, a.write(l))
		info, err := a.file.Stat()
		require.NoError(t, err)
		require.EqualValues(t, entryWidth, info.Size())
		got, err := a.read()
		require.NoError(t, err)
		require.Equal(t, l, got)
	}
}

// The passbook shows what was deposited, and what went wrong.
func TestPassbook(t *testing.T) {
	dir := t.TempDir()
	a, err := openAccount(dir, 2)
	require.NoError(t, err)
	defer a.file.Close()
	s, err := readPassbook(dir)
	require.NoError(t, err)
	require.Zero(t, s)
	for _, l := range []line{{2, false, 5, 100}, {1, true, 5, 200}, {3, false, 7, 200}, {1, false, 9, 300}} {
		require.NoError(t, a.write(l))
	}
	s, err = readPassbook(dir)
	require.NoError(t, err)
	require.Equal(t, evidence{Entries: 4, Expected: 400, Actual: 300, Overlaps: 1, FenceErrors: 1}, s)

	_, err = a.file.Write([]byte("by 04"))
	require.NoError(t, err)
	_, err = readPassbook(dir)
	require.ErrorContains(t, err, `account file: "by 04" is not a line of it`)
}

// Only the marker of a teller that was killed inside is removed.
func TestVacate(t *testing.T) {
	dir := t.TempDir()
	one, err := openAccount(dir, 1)
	require.NoError(t, err)
	defer one.file.Close()
	two, err := openAccount(dir, 2)
	require.NoError(t, err)
	defer two.file.Close()
	_, overlap, err := occupy(one.marker, one.badge)
	require.NoError(t, err)
	require.False(t, overlap)

	inside, err := vacate(two.marker, two.badge)
	require.NoError(t, err)
	require.False(t, inside)
	require.FileExists(t, one.marker)
	inside, err = vacate(one.marker, one.badge)
	require.NoError(t, err)
	require.True(t, inside)
	require.NoFileExists(t, one.marker)
	inside, err = vacate(one.marker, one.badge)
	require.NoError(t, err)
	require.False(t, inside)
}
