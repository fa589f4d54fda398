//go:build unix

package etcd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dmutex/dmutex/integration/servers"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/etcdstore"
	"github.com/dmutex/dmutex/store/storetest"
)

// openEtcd has the client ask every 10 seconds, the least that gRPC allows, whether its connection lives.
func openEtcd(t *testing.T, address, key string) store.Store {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop(), DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	s, err := etcdstore.Open(client, key)
	require.NoError(t, err)
	return s
}

func TestEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	dir := t.TempDir()
	address, stop := servers.StartEtcd(t, dir)
	t.Run("store", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T, group string) store.Store { return openEtcd(t, address, "/dmutex/"+group) })
		open := func(t *testing.T, address, group string) store.Store { return openEtcd(t, address, "/dmutex/"+group) }
		storetest.RunServer(t, address, open, func(t *testing.T, group string) {
			client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()})
			require.NoError(t, err)
			defer client.Close()
			_, err = client.Delete(t.Context(), "/dmutex/"+group)
			require.NoError(t, err)
		})
	})

	// A key that is deleted begins again, but its revisions go on.
	t.Run("deleted", func(t *testing.T) {
		s := openEtcd(t, address, "deleted")
		_, none, err := s.Load(t.Context())
		require.NoError(t, err)
		lost, err := s.Swap(t.Context(), []byte("a"), none)
		require.NoError(t, err)
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()})
		require.NoError(t, err)
		defer client.Close()
		_, err = client.Delete(t.Context(), "deleted")
		require.NoError(t, err)
		_, err = s.Swap(t.Context(), []byte("b"), lost)
		require.ErrorIs(t, err, store.ErrConflict)
		again, err := s.Swap(t.Context(), []byte("a"), none)
		require.NoError(t, err)
		require.NotEqual(t, lost, again)
		_, err = s.Swap(t.Context(), []byte("b"), lost)
		require.ErrorIs(t, err, store.ErrConflict)
	})

	// The tool keeps the records of locks and of groups below a prefix.
	t.Run("tool", func(t *testing.T) {
		tool := servers.BuildTool(t, "etcd")
		at := "etcd://" + address + "/tool"
		out, err := exec.Command(tool, "run", "--store="+at, "--lock=a door", "--", tool, "run", "--store="+at, "--lock=a door", "-n", "--", "true").CombinedOutput()
		require.ErrorContains(t, err, "exit status 123", "%s", out)
		value, _, err := openEtcd(t, address, "tool/a door").Load(t.Context())
		require.NoError(t, err)
		require.Contains(t, string(value), `lock "a door"`)
		servers.ServeAt(t, tool, at)
		value, _, err = openEtcd(t, address, "tool").Load(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, value)
	})

	t.Run("misuse", func(t *testing.T) {
		_, err := etcdstore.Open(nil, "")
		require.EqualError(t, err, "etcdstore: the key is empty")
		_, err = openEtcd(t, address, "misuse").Swap(t.Context(), []byte("a"), "mine")
		require.ErrorContains(t, err, `revision "mine" is not of this store`)
		require.NotErrorIs(t, err, store.ErrConflict)
	})

	// A user without permission gets an error at once, and so do a client without a user, and one with an old password.
	t.Run("permissions", func(t *testing.T) {
		ctx := t.Context()
		dial := func(user string) *clientv3.Client {
			client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Username: user, Password: user, Logger: zap.NewNop()})
			require.NoError(t, err)
			t.Cleanup(func() { client.Close() })
			return client
		}
		nobody := dial("")
		for _, user := range []string{"root", "app"} {
			_, err := nobody.RoleAdd(ctx, user)
			require.NoError(t, err)
			_, err = nobody.UserAdd(ctx, user, user)
			require.NoError(t, err)
			_, err = nobody.UserGrantRole(ctx, user, user)
			require.NoError(t, err)
		}
		_, err := nobody.AuthEnable(ctx)
		require.NoError(t, err)
		root := dial("root")
		defer func() {
			_, err := root.AuthDisable(ctx)
			require.NoError(t, err)
		}()
		for _, client := range []*clientv3.Client{nobody, dial("app")} {
			s, err := etcdstore.Open(client, "permissions")
			require.NoError(t, err)
			storetest.Unusable(t, s, "0")
		}
		_, err = root.RoleGrantPermission(ctx, "app", "permissions", "", clientv3.PermissionType(clientv3.PermReadWrite))
		require.NoError(t, err)
		s, err := etcdstore.Open(dial("app"), "permissions")
		require.NoError(t, err)
		_, none, err := s.Load(ctx)
		require.NoError(t, err)
		rev, err := s.Swap(ctx, []byte("a"), none)
		require.NoError(t, err)
		_, err = root.UserChangePassword(ctx, "app", "another")
		require.NoError(t, err)
		storetest.Unusable(t, s, rev)
	})

	// A process that ends when it has released its permit leaves no other permit taken.
	t.Run("permits", func(t *testing.T) {
		for round := range 3 {
			prefix := fmt.Sprint("permits", round)
			var running sync.WaitGroup
			for range 30 {
				running.Go(func() {
					if out, err := exec.Command(os.Args[0], permitArg, address, prefix).CombinedOutput(); err != nil {
						t.Errorf("%v: %s", err, out)
					}
				})
			}
			running.Wait()
			for i := range permits {
				value, _, err := openEtcd(t, address, fmt.Sprint(prefix, i)).Load(t.Context())
				require.NoError(t, err)
				if len(value) > 0 {
					require.Contains(t, string(value), "\nholder \n", "permit %d of round %d is taken after all processes have ended", i, round)
				}
			}
		}
	})

	// The server restarts. Meanwhile no call is answered.
	t.Run("restart", func(t *testing.T) {
		s := openEtcd(t, address, "restart")
		_, none, err := s.Load(t.Context())
		require.NoError(t, err)
		rev, err := s.Swap(t.Context(), []byte("a"), none)
		require.NoError(t, err)
		stop()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, _, err = s.Load(ctx)
		require.Error(t, err)
		_, err = s.Swap(ctx, []byte("b"), rev)
		require.Error(t, err)
		require.NotErrorIs(t, err, store.ErrConflict)
		address, _ := servers.StartEtcd(t, dir)
		s = openEtcd(t, address, "restart")
		value, last, err := s.Load(t.Context())
		require.NoError(t, err)
		require.Equal(t, "a", string(value))
		require.Equal(t, rev, last)
	})
}
