package filenode_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/filenode"
	"github.com/dmutex/dmutex/store"
)

// Nodes that open one file share its locks.
func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "members")
	var fences []uint64
	for range 3 {
		n, err := filenode.Open(t.Context(), path, node.Config{Lease: time.Second})
		require.NoError(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			require.NoError(t, n.Close(ctx))
		})
		require.NoError(t, n.Mutex("x").Do(t.Context(), func(_ context.Context, fence uint64) error {
			fences = append(fences, fence)
			return nil
		}))
	}
	require.IsIncreasing(t, fences)
}

// Open refuses an empty path, a directory, a lease that is too short, and a canceled context.
func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	_, err := filenode.Open(t.Context(), "", node.Config{})
	require.EqualError(t, err, "filestore: the path of the record is empty: give one, such as /var/lib/app/members")
	_, err = filenode.Open(t.Context(), dir, node.Config{})
	require.ErrorIs(t, err, store.ErrUnusable)
	_, err = filenode.Open(t.Context(), filepath.Join(dir, "members"), node.Config{Lease: 1})
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("not today"))
	_, err = filenode.Open(ctx, filepath.Join(dir, "members"), node.Config{})
	require.ErrorContains(t, err, "not today")
}

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	n, err := filenode.Open(ctx, filepath.Join(dir, "members"), node.Config{Lease: time.Second})
	if err != nil {
		panic(err)
	}
	defer n.Close(ctx)
	err = n.Mutex("invoices/42").Do(ctx, func(ctx context.Context, fence uint64) error {
		fmt.Println("alone")
		return nil
	})
	fmt.Println(err)
	// Output:
	// alone
	// <nil>
}
