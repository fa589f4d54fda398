// Package three opens a group of three members, for tests.
package three

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/filenode"
)

// Open opens three members of a group whose record is a file. They close with the test.
func Open(t *testing.T) (members []*node.Node) {
	record := filepath.Join(t.TempDir(), "group.record")
	for range 3 {
		n, err := filenode.Open(t.Context(), record, node.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { Close(n) })
		members = append(members, n)
	}
	for _, n := range members {
		require.NoError(t, n.Ready(t.Context()))
	}
	return members
}

// Close closes a member at once: what it holds is lost.
func Close(n *node.Node) {
	hurry, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_ = n.Close(hurry)
}
