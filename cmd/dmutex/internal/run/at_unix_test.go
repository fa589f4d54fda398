//go:build unix

package run

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/filenode"
)

// inGroup returns the flags of a lock of a group, and the only member of that group. Sessions are
// as long as the lease. A test that does not look at the end of one takes a longer lease: on a busy
// machine a process can be late by more than a second, and loses its lock then.
func inGroup(t *testing.T, lease time.Duration) (flags []string, n *node.Node) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n, err = filenode.Open(t.Context(), filepath.Join(t.TempDir(), "members"), node.Config{
		Lease: lease, Clients: &node.Clients{Listeners: []net.Listener{l}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close(context.WithoutCancel(t.Context()))) })
	return []string{"--at=" + l.Addr().String(), "--lock=my/door"}, n
}

// With --at, run uses a lock of a group, which the members can use, too.
func TestAt(t *testing.T) {
	flags, n := inGroup(t, 4*time.Second)
	held, err := n.Mutex("my/door").Acquire(t.Context())
	require.NoError(t, err)
	status, _, _ := invoke(append([]string{"run", "-n", "-E", "9"}, append(flags, "--", "true")...)...)
	require.Equal(t, 9, status)
	status, _, said := invoke(append([]string{"run", "-w", "0.05"}, append(flags, "--", "true")...)...)
	require.Equal(t, statusBusy, status)
	require.Contains(t, said, "nothing was run: client: lock \"my/door\": ")
	runs := []*started{start(t, flags, "say:in", "wait", "say:out"), start(t, flags, "say:in", "wait", "say:out")}
	require.NoError(t, held.Release())
	takeTurns(t, runs)
}

// With --shared, runs hold the lock together with others that share it, and not with one that does not.
func TestAtShared(t *testing.T) {
	flags, n := inGroup(t, 4*time.Second)
	held, err := n.Mutex("my/door").Shared().Acquire(t.Context())
	require.NoError(t, err)
	shared := append([]string{"--shared"}, flags...)
	runs := []*started{start(t, shared, "say:in", "wait"), start(t, shared, "say:in", "wait")}
	for _, s := range runs {
		require.Equal(t, "in", s.line())
	}
	status, _, _ := invoke(append([]string{"run", "-n"}, append(flags, "--", "true")...)...)
	require.Equal(t, statusBusy, status)
	for _, s := range runs {
		s.goOn()
		s.exits(0)
	}
	require.NoError(t, held.Release())
}

// The lock of a run that is killed is free when its session has expired.
func TestAtKilled(t *testing.T) {
	flags, n := inGroup(t, time.Second)
	s := start(t, flags, "say:$DMUTEX_FENCE", "wait")
	s.line()
	require.NoError(t, s.cmd.Process.Kill())
	held, err := n.Mutex("my/door").Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, held.Release())
}

// A command ends when the member no longer confirms its session.
func TestAtLost(t *testing.T) {
	flags, n := inGroup(t, time.Second)
	s := start(t, flags, "say:in", "hang")
	require.Equal(t, "in", s.line())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, n.Close(ctx))
	require.Contains(t, s.exits(statusLost), "the command was ended: ")
}
