// Package store is the contract for the one small record by which a group of nodes
// agrees on its members. It is changed by compare-and-swap, when a node joins, leaves or
// is excluded, and each member loads it a few times per lease to renew its own. No lock is
// ever taken in the store, so its speed is not the speed of the locks. The stores:
//
//   - [Memory], for tests and for the nodes of one process
//   - filestore, for the processes of one machine; nothing to install
//   - kubestore, for a Lease of Kubernetes
//   - s3store, for an object of S3 or of a service like it
//   - sqlstore, for a database behind database/sql
//   - natsstore, for a JetStream key-value bucket
//   - etcdstore, a module of its own
//   - redisstore, a module of its own
//
// storelock is a lock in a record of its own, for processes that form no group.
//
// The store is trusted: if it forgets an acknowledged change, two nodes may hold the same
// lock. The packages say which settings and which failovers do that.
//
// # A store of your own
//
// Any service with a compare-and-swap on one value can be a [Store]. Test it with
// [github.com/dmutex/dmutex/store/storetest.Run], and with RunServer if it has a server. One that also
// knows when a process has died can be a [Prover].
//
//   - DynamoDB: GetItem with ConsistentRead. PutItem with a new random revision, on the
//     condition that the old one is there, or attribute_not_exists. A
//     ConditionalCheckFailedException is ErrConflict, unless the SDK has retried: turn its
//     retries off. Not on a global table with eventual consistency.
package store

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync"
)

// A Store keeps the record of one group, under a name, such as a key or a path, that was
// given when the store was opened. It is safe for concurrent use. Its methods return soon
// after their context has ended. An error that no later call can overcome, such as a missing
// permission, is returned at once and wraps [ErrUnusable].
type Store interface {
	// Load returns the record and its revision. Before the first Swap, and after an
	// operator has deleted the record, the value is empty, and the revision is the one
	// that Swap needs to create the record.
	//
	// Load is linearizable: it returns the record as it was at some moment between the
	// call and the return, never from a cache, a replica that may lag or a leader that may
	// have been deposed. Members renew their leases by loading the record, so a stale
	// answer can put two holders on one lock. If a plain read of the service does not
	// promise this, Load must confirm by a write that the revision is still the last one.
	//
	// A store that can lose its records, and knows when it has, returns ErrForgotten in place of an
	// empty value while somebody may rely on a record that it had, and once after it has begun anew, so each
	// node needs a Store of its own. The revision is as for an empty value. No record that it had comes back, and no Swap from its revisions succeeds.
	//
	// The caller may modify the returned value.
	Load(ctx context.Context) (value []byte, rev Revision, err error)

	// Swap replaces the record if its revision is still rev, and returns the new revision.
	// It must accept any value of 1 to MaxValue bytes, and does not keep the slice. A Swap
	// to an equal value also makes a new revision.
	//
	// If the error is ErrConflict, this Swap has written nothing and never will: the
	// record has changed since it was loaded, or another write was in progress.
	//
	// After any other error the value may have been written, or may still be written
	// later, even after a Load that has not seen it, until the revision has changed. So
	// load the record, and swap again from the revision that Load returned.
	//
	// A successful Swap is durable: a crash of every process, and a failover of the
	// store, must not undo it.
	Swap(ctx context.Context, value []byte, rev Revision) (Revision, error)
}

// A Revision names one state of a record. The store chooses it, and callers only compare it
// for equality. No two states of a record have the same revision, even if their values are
// equal: a Swap could overwrite changes that its caller has not seen.
type Revision string

// MaxValue is the size in bytes of the largest value that every store must accept. Some
// stores accept larger ones.
const MaxValue = 64 << 10

// ErrConflict is the error of a Swap that has written nothing and never will. Errors match
// it by [errors.Is].
var ErrConflict = errors.New("store: conflict: the record has changed since it was loaded")

// ErrUnusable is wrapped by errors that recur until an operator mends their cause: a wrong
// path, a value that is not a record, a missing permission. They stop a node that has not
// acted yet. To a node that has acted, the store does not answer.
var ErrUnusable = errors.New("store: unusable until this is mended")

// ErrForgotten is wrapped by the error of a Load where there is no record, and there may have been one: the store has lost
// what it had, as Redis does at a restart. A member of a group then goes on as another process, and the group begins anew:
// it waits for a lease. A lock of storelock is not free until Load no longer says so.
var ErrForgotten = errors.New("store: it has begun anew, and may have forgotten a record")

// Memory is a record in memory. The zero Memory is empty and ready for use. It must not be
// copied.
type Memory struct {
	mu    sync.Mutex
	value []byte
	count uint64 // of swaps
}

// Load implements [Store].
func (m *Memory) Load(ctx context.Context) ([]byte, Revision, error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.value), m.revision(), nil
}

// Swap implements [Store].
func (m *Memory) Swap(ctx context.Context, value []byte, rev Revision) (Revision, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if rev != m.revision() {
		return "", ErrConflict
	}
	m.value = bytes.Clone(value)
	m.count++
	return m.revision(), nil
}

func (m *Memory) revision() Revision { return Revision(strconv.FormatUint(m.count, 10)) }
