// Package redis links Redis into the tool.
package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/redisstore"
)

// silence keeps the library from writing lines of its own to the standard error.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// Open opens redis://HOST:PORT/NAME, where keys that begin with NAME: are the records of locks, and the key NAME, dmutex if there
// is none, is the record of a group. ?servers= is how many servers have the data, 1 if it is not given, and with ?sentinel= the
// hosts are Sentinels, which commas separate, of the master of that name. rediss:// is with TLS. It is what a build with Redis has
// in [tool.Bases].
func Open(text string, lease time.Duration) (*tool.Base, error) {
	u, err := tool.ParseURL(text, "servers", "sentinel")
	if err != nil {
		return nil, err
	}
	cfg := redisstore.Config{Servers: 1, Lease: lease}
	if n := u.Options.Get("servers"); n != "" {
		if cfg.Servers, err = strconv.Atoi(n); err != nil || cfg.Servers < 1 || cfg.Servers%2 == 0 {
			return nil, fmt.Errorf("?servers=%s: give 1 or an odd number, the master and all its replicas", n)
		}
	}
	var security *tls.Config
	if u.Scheme == "rediss" {
		security = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	redis.SetLogger(silence{}) // the errors say the same
	master := u.Options.Get("sentinel")
	var client *redis.Client
	switch {
	case master != "":
		client = redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: master, SentinelAddrs: u.Hosts, Username: u.User, Password: u.Password, TLSConfig: security,
			MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		})
	case len(u.Hosts) == 1:
		client = redis.NewClient(&redis.Options{
			Addr: u.Hosts[0], Username: u.User, Password: u.Password, TLSConfig: security, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		})
	default:
		return nil, errors.New("give one server, or Sentinels and ?sentinel=, the name of their master")
	}
	at := func(key string) store.Store {
		return tool.LateStore{Late: tool.NewLate(func(error) bool { return true }, func(ctx context.Context) (store.Store, error) {
			return redisstore.Open(ctx, client, cfg, key)
		})}
	}
	group := cmp.Or(u.Name, "dmutex")
	return &tool.Base{
		Lock: func(lock string) store.Store { return at(group + ":" + lock) },
		Name: group, Group: at(group), Stop: func() { _ = client.Close() },
	}, nil
}
