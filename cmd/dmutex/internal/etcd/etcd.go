// Package etcd links etcd into the tool.
package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/etcdstore"
)

// Open opens etcd://HOST:PORT,HOST:PORT/PREFIX, where keys below the prefix are the records of locks, and the key of that
// name, dmutex if there is none, is the record of a group. etcds:// is with TLS, and ?authority=, ?cert= and ?key= name its
// files. It is what a build with etcd has in [tool.Bases].
func Open(text string, _ time.Duration) (*tool.Base, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	rest, files, _ := strings.Cut(rest, "?")
	user := ""
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		user, rest = rest[:i], rest[i+1:]
	}
	hosts, key, _ := strings.Cut(rest, "/")
	config := clientv3.Config{
		Endpoints: strings.Split(hosts, ","), Logger: zap.NewNop(),
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: time.Second, // the least
	}
	var err error
	name, password, _ := strings.Cut(user, ":")
	config.Username, err = url.PathUnescape(name)
	if err == nil {
		config.Password, err = url.PathUnescape(password)
	}
	if err != nil || hosts == "" {
		return nil, fmt.Errorf("it is not %s://HOST:PORT,HOST:PORT/NAME", scheme) // the text may contain a password
	}
	query, err := url.ParseQuery(files)
	if err != nil {
		return nil, err
	}
	if config.TLS, err = security(scheme == "etcds", query); err != nil {
		return nil, err
	}
	config.DialTimeout = 5 * time.Second // of the question for the password
	client := tool.NewLate(outage, func(context.Context) (*clientv3.Client, error) { return clientv3.New(config) })
	at := func(key string) store.Store {
		return tool.LateStore{Late: tool.NewLate(outage, func(ctx context.Context) (store.Store, error) {
			c, err := client.Get(ctx)
			if err != nil {
				return nil, err
			}
			return etcdstore.Open(c, key)
		})}
	}
	group := cmp.Or(strings.TrimSuffix(key, "/"), "dmutex")
	return &tool.Base{
		Lock: func(lock string) store.Store { return at(group + "/" + lock) },
		Name: group, Group: at(group),
		Stop: func() { client.Close(func(c *clientv3.Client) { _ = c.Close() }) },
	}, nil
}

// security reads the files of TLS.
func security(wanted bool, files url.Values) (*tls.Config, error) {
	for name := range files {
		if !wanted || name != "authority" && name != "cert" && name != "key" {
			return nil, fmt.Errorf("it has no %q: only authority, cert and key of etcds:// may follow the question mark", name)
		}
	}
	if !wanted {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if path := files.Get("authority"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM", path)
		}
	}
	if files.Has("cert") || files.Has("key") {
		own, err := tls.LoadX509KeyPair(files.Get("cert"), files.Get("key"))
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{own}
	}
	return c, nil
}

// outage reports whether an error may pass: those of a wrong password do not.
func outage(err error) bool {
	return !errors.Is(err, rpctypes.ErrAuthFailed) && !errors.Is(err, rpctypes.ErrAuthNotEnabled)
}
