// Package etcdstore keeps the record of a group under a key of etcd. It is a module of its
// own, because the client is large.
//
// The client belongs to the application. Load is etcd's default read, which is linearizable,
// and Swap is a transaction that compares the key's modification revision.
//
// etcd makes writes durable on a majority by default. A restore from a snapshot sets the
// record back: restore with --bump-revision and --mark-compacted, and only while all
// members of the group are stopped. Servers must not run with --unsafe-no-fsync.
//
// List all endpoints of the cluster. With one address, such as that of a load balancer, all calls wait for one
// connection. When it died without a word, a client as it is by default had no answer within 45 seconds, and one with
// DialKeepAliveTime of 10 seconds, the least, and DialKeepAliveTimeout of 1 second had one after 11 seconds, which is longer
// than the lease by default. With three endpoints no two calls in a row failed.
//
// The role of the group needs permission to read and write the key.
package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dmutex/dmutex/store"
)

// A record is a [store.Store] under a key.
type record struct {
	client *clientv3.Client
	key    string
}

// Open returns the store under the key. It does not call the servers.
func Open(client *clientv3.Client, key string) (store.Store, error) {
	if key == "" {
		return nil, fmt.Errorf("etcdstore: the key is empty")
	}
	return &record{client, key}, nil
}

// Load implements [store.Store].
func (s *record) Load(ctx context.Context) ([]byte, store.Revision, error) {
	answer, err := s.client.Get(ctx, s.key)
	if err != nil {
		return nil, "", s.fail("load", err)
	}
	if len(answer.Kvs) == 0 {
		return nil, revision(0), nil
	}
	return answer.Kvs[0].Value, revision(answer.Kvs[0].ModRevision), nil
}

// Swap implements [store.Store].
func (s *record) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	last, err := strconv.ParseInt(string(rev), 10, 64)
	if err != nil {
		return "", s.fail("swap", fmt.Errorf("revision %q is not of this store: %w", rev, err))
	}
	// The client does not repeat a transaction that may have been sent, so a Swap never
	// conflicts with itself.
	answer, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(s.key), "=", last)).
		Then(clientv3.OpPut(s.key, string(value))).
		Commit()
	if err != nil {
		return "", s.fail("swap", err)
	}
	if !answer.Succeeded {
		return "", s.fail("swap", store.ErrConflict)
	}
	return revision(answer.Header.Revision), nil
}

// fail names the key in an error, and marks an error that only an operator can mend.
func (s *record) fail(op string, err error) error {
	if slices.ContainsFunc(lasting, func(target error) bool { return errors.Is(err, target) }) {
		err = fmt.Errorf("%w: %w", store.ErrUnusable, err)
	}
	return fmt.Errorf("etcdstore: %s %q: %w", op, s.key, err)
}

// lasting are the errors that recur until an operator mends their cause.
var lasting = []error{rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed}

// revision is the revision of the whole etcd cluster at the last change of the key. It
// only rises, even when keys are deleted. It is 0 if the key does not exist.
func revision(n int64) store.Revision { return store.Revision(strconv.FormatInt(n, 10)) }
