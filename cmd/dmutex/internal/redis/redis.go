// Package redis links Redis into the tool.
package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/redisstore"
)

// Open opens redis://HOST:PORT/NAME, where keys that begin with NAME: are the records of locks, and the key NAME, dmutex if there
// is none, is the record of a group. ?servers= is how many servers have the data, 1 if it is not given, and with ?sentinel= the
// hosts are Sentinels, which commas separate, of the master of that name. rediss:// is with TLS. It is what a build with Redis has
// in [tool.Bases].
func Open(text string, lease time.Duration) (*tool.Base, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	rest, options, _ := strings.Cut(rest, "?")
	user := ""
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		user, rest = rest[:i], rest[i+1:]
	}
	hosts, group, _ := strings.Cut(rest, "/")
	name, password, _ := strings.Cut(user, ":")
	name, err := url.PathUnescape(name)
	if err == nil {
		password, err = url.PathUnescape(password)
	}
	if err != nil || hosts == "" {
		return nil, fmt.Errorf("it is not %s://HOST:PORT/NAME", scheme) // the text may contain a password
	}
	query, err := url.ParseQuery(options)
	if err != nil {
		return nil, err
	}
	for key := range query {
		if key != "servers" && key != "sentinel" {
			return nil, fmt.Errorf("%s:// has no %q: only servers and sentinel may follow the question mark", scheme, key)
		}
	}
	cfg := redisstore.Config{Servers: 1, Lease: lease}
	if n := query.Get("servers"); n != "" {
		if cfg.Servers, err = strconv.Atoi(n); err != nil || cfg.Servers < 1 || cfg.Servers%2 == 0 {
			return nil, fmt.Errorf("?servers=%s: give 1 or an odd number, the master and all its replicas", n)
		}
	}
	var security *tls.Config
	if scheme == "rediss" {
		security = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	addresses, master := strings.Split(hosts, ","), query.Get("sentinel")
	var client *redis.Client
	switch {
	case master != "":
		client = redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: master, SentinelAddrs: addresses, Username: name, Password: password, TLSConfig: security,
			MaxRetries: -1, ContextTimeoutEnabled: true,
		})
	case len(addresses) == 1:
		client = redis.NewClient(&redis.Options{
			Addr: hosts, Username: name, Password: password, TLSConfig: security, MaxRetries: -1, ContextTimeoutEnabled: true,
		})
	default:
		return nil, errors.New("give one server, or Sentinels and ?sentinel=, the name of their master")
	}
	at := func(key string) store.Store {
		return tool.LateStore{Late: tool.NewLate(func(error) bool { return true }, func(ctx context.Context) (store.Store, error) {
			return redisstore.Open(ctx, client, cfg, key)
		})}
	}
	group = cmp.Or(group, "dmutex")
	return &tool.Base{
		Lock: func(lock string) store.Store { return at(group + ":" + lock) },
		Name: group, Group: at(group), Stop: func() { _ = client.Close() },
	}, nil
}
