package servers

import (
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// StartEtcd starts a server of etcd in this process, with its data in the directory. It runs
// until stop is called or the test ends.
func StartEtcd(t *testing.T, dir string) (address string, stop func()) {
	config := embed.NewConfig()
	config.Dir, config.Logger, config.ZapLoggerBuilder = dir, "zap", embed.NewZapLoggerBuilder(zap.NewNop())
	config.UnsafeNoFsync = true // the machine does not crash
	local := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenClientUrls, config.ListenPeerUrls = local, local
	server, err := embed.StartEtcd(config)
	require.NoError(t, err)
	stop = sync.OnceFunc(server.Close) // it panics when called twice
	t.Cleanup(stop)
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		require.NoError(t, err)
	}
	return server.Clients[0].Addr().String(), stop
}
