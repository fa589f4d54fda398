// Package base links into the tool the services that keep records and need no other module: Kubernetes and S3.
package base

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/kubestore"
	"github.com/dmutex/dmutex/store/s3store"
)

// All is what every build has of [tool.Bases].
var All = map[string]func(url string, lease time.Duration) (*tool.Base, error){"kube": Kube, "s3": S3}

// Kube opens kube://NAMESPACE, where Leases are the records of locks, or kube://NAMESPACE/NAME, a Lease that is the record
// of a group. In a pod it asks the API server of the cluster, elsewhere that of ?server=, such as
// http://127.0.0.1:8001 of kubectl proxy.
func Kube(text string, _ time.Duration) (*tool.Base, error) {
	u, group, query, err := parse(text, "server")
	if err != nil {
		return nil, err
	}
	if u.Host == "" || strings.Contains(group, "/") {
		return nil, errors.New("it is not kube://NAMESPACE, nor kube://NAMESPACE/NAME for a group")
	}
	cluster := kubestore.Config{Server: query.Get("server"), Namespace: u.Host}
	if cluster.Server == "" {
		if cluster.Client, err = kubestore.InCluster(); err != nil {
			return nil, errors.New("this process runs in no pod: end the URL with ?server=http://127.0.0.1:8001 while kubectl proxy runs")
		}
	}
	return base(group, "lock-", '-', 253, func(ctx context.Context, name string) (store.Store, error) {
		return kubestore.Open(ctx, cluster, name)
	})
}

// S3 opens s3://BUCKET or s3://BUCKET/PREFIX, where objects are the records of locks, or s3://BUCKET/NAME, an object that is
// the record of a group. The service is that of AWS, or of ?endpoint= or AWS_ENDPOINT_URL; the region is that of
// ?region=, AWS_REGION or AWS_DEFAULT_REGION.
func S3(text string, _ time.Duration) (*tool.Base, error) {
	u, key, query, err := parse(text, "endpoint", "region")
	if err != nil {
		return nil, err
	}
	if u.Host == "" {
		return nil, errors.New("it is not s3://BUCKET, nor s3://BUCKET/NAME for a group")
	}
	region := cmp.Or(query.Get("region"), os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"), "us-east-1")
	bucket := s3store.Config{
		Endpoint: cmp.Or(query.Get("endpoint"), os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), "https://s3."+region+".amazonaws.com"),
		Region:   region, Bucket: u.Host,
	}
	if os.Getenv("AWS_ACCESS_KEY_ID") == "" || os.Getenv("AWS_SECRET_ACCESS_KEY") == "" {
		return nil, errors.New("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	prefix := ""
	if key != "" {
		prefix = key + "/"
	}
	return base(key, prefix, '_', 512, func(ctx context.Context, name string) (store.Store, error) {
		return s3store.Open(ctx, bucket, name)
	})
}

// parse reads a URL, whose path is a name, and whose query has only these keys.
func parse(text string, keys ...string) (u *url.URL, name string, query url.Values, err error) {
	if u, err = url.Parse(text); err != nil {
		return nil, "", nil, err
	}
	if query, err = url.ParseQuery(u.RawQuery); err != nil {
		return nil, "", nil, err
	}
	for key := range query {
		if !slices.Contains(keys, key) {
			return nil, "", nil, fmt.Errorf("%s:// has no %q: only %s may follow the question mark", u.Scheme, key, strings.Join(keys, " and "))
		}
	}
	if u.User != nil || u.Port() != "" || u.Fragment != "" {
		return nil, "", nil, fmt.Errorf("%s:// takes no user, port or fragment", u.Scheme)
	}
	return u, strings.Trim(u.Path, "/"), query, nil
}

// base opens records late. The record of a lock is called prefix and the escaped name of the lock, in at most longest
// bytes.
func base(group, prefix string, mark byte, longest int, open func(ctx context.Context, name string) (store.Store, error)) (*tool.Base, error) {
	asked, cancel := context.WithCancel(context.Background())
	cancel() // so nothing is asked, but a wrong name or URL is refused
	if _, err := open(asked, cmp.Or(group, prefix+"0")); !errors.Is(err, context.Canceled) {
		return nil, err
	}
	late := func(name string) store.Store {
		return tool.LateStore{Late: tool.NewLate(outage, func(ctx context.Context) (store.Store, error) { return open(ctx, name) })}
	}
	b := &tool.Base{Name: group, Stop: func() {}, Lock: func(lock string) store.Store {
		name := prefix + escape(lock, mark)
		if len(name) > longest { // a hash keeps long names apart
			name = fmt.Sprintf("%s%c%x", name[:longest-65], mark, sha256.Sum256([]byte(lock)))
		}
		return late(name)
	}}
	if group != "" {
		b.Group = late(group)
	}
	return b, nil
}

// escape writes lower-case letters and digits as they are, and mark and two hexadecimal digits for every other
// byte: Leases have no upper case.
func escape(name string, mark byte) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%c%02x", mark, c)
		}
	}
	return b.String()
}

// outage reports whether an error may pass: a store says so of its own errors that do not.
func outage(err error) bool {
	request, is := errors.AsType[*url.Error](err)
	return !is || tool.Outage(request.Err)
}
