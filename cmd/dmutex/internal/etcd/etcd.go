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
	u, err := tool.ParseURL(text, "authority", "cert", "key")
	if err != nil {
		return nil, err
	}
	config := clientv3.Config{
		Endpoints: u.Hosts, Username: u.User, Password: u.Password, Logger: zap.NewNop(),
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: time.Second, // the least
	}
	if config.TLS, err = security(u.Scheme == "etcds", u.Options); err != nil {
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
	group := cmp.Or(u.Name, "dmutex")
	return &tool.Base{
		Lock: func(lock string) store.Store { return at(group + "/" + lock) },
		Name: group, Group: at(group),
		Stop: func() { client.Close(func(c *clientv3.Client) { _ = c.Close() }) },
	}, nil
}

// security reads the files of TLS.
func security(wanted bool, files url.Values) (*tls.Config, error) {
	switch {
	case !wanted && len(files) > 0:
		return nil, errors.New("etcd:// is without TLS: authority, cert and key are for etcds://")
	case !wanted:
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
