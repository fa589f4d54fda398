// Package natsstore keeps the record of a group under a key of a JetStream key-value bucket,
// on a connection that the application already has. It needs servers of version 2.11 or
// later.
//
// # The bucket
//
// [Open] makes the bucket if it is missing, as this command does:
//
//	nats kv add dmutex --storage=file --replicas=3
//
// On a server that is in no cluster it has one replica. If a cluster cannot place three, Open
// returns an error: it makes no bucket that is less safe than its servers allow.
//
// Open refuses a bucket whose settings could lose the record. It cannot check three things:
//
//   - A server acknowledges a write before it is on disk; by default it syncs every two
//     minutes. If a majority of the replicas lose power at the same time, or the only
//     replica does, the record can revert to its state of some minutes before. Set
//     sync_interval: always in the jetstream block of each server.
//   - With one replica, an outage of that server is an outage of the store, and
//     the record is only as safe as one disk.
//   - If the record is older than the members remember, after such a loss or a restore,
//     they stop with an error. Stop all members and delete the key; the group then starts
//     with a new record.
//
// # Reads
//
// No read of JetStream is linearizable: any replica answers a direct get, and a leader answers
// other gets without checking that it still leads. So Load reads the record, and then publishes
// an empty entry, under the key with .read added, on condition that the record is unchanged:
// only a leader with a majority can accept it.
//
// # Permissions
//
// For the bucket b and the key k: publish to $KV.b.k and $KV.b.k.read, to
// $JS.API.STREAM.INFO.KV_b, and to $JS.API.DIRECT.GET.KV_b.> (or
// $JS.API.STREAM.MSG.GET.KV_b, if the bucket does not allow direct gets); subscribe to
// _INBOX.>. To make the bucket, Open also publishes to $JS.API.INFO and to
// $JS.API.STREAM.CREATE.KV_b.
package natsstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dmutex/dmutex/store"
)

// A record is a [store.Store] under a key.
type record struct {
	js      jetstream.JetStream
	stream  jetstream.Stream
	subject string
}

// A key may not have dots: one group's key with .read could be another group's key.
var keys = regexp.MustCompile(`^[-_=a-zA-Z0-9]+$`)

// Open returns the store under the key of the bucket, or says what is wrong with
// the bucket or the permissions. It makes the bucket if it is missing. The key has letters,
// digits, and the characters - _ =.
func Open(ctx context.Context, js jetstream.JetStream, bucket, key string) (store.Store, error) {
	if !keys.MatchString(key) {
		return nil, fmt.Errorf("natsstore: key %q: use letters, digits, - _ =", key)
	}
	s := &record{js: js, subject: "$KV." + bucket + "." + key}
	if err := s.permitted(ctx, "$JS.API.STREAM.INFO.KV_"+bucket, s.subject, s.subject+".read"); err != nil {
		return nil, s.fail("open", err)
	}
	var err error
	s.stream, err = js.Stream(ctx, "KV_"+bucket)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if err := s.create(ctx, bucket); err != nil {
			return nil, s.fail("open", fmt.Errorf("there is no bucket %s, and it cannot be made: %w; make it by hand, for example with nats kv add %[1]s --storage=file --replicas=3", bucket, err))
		}
		s.stream, err = js.Stream(ctx, "KV_"+bucket)
	}
	if errors.Is(err, nats.ErrNoResponders) {
		err = fmt.Errorf("no server with JetStream answers: start it with -js: %w", err)
	}
	if err != nil {
		return nil, s.fail("open", err)
	}
	config := s.stream.CachedInfo().Config
	if err := check(config); err != nil {
		return nil, fmt.Errorf("natsstore: %w: bucket %s %w", store.ErrUnusable, bucket, err)
	}
	get := "$JS.API.STREAM.MSG.GET.KV_" + bucket
	if config.AllowDirect {
		get = "$JS.API.DIRECT.GET.KV_" + bucket + "." + s.subject
	}
	if err := s.permitted(ctx, get); err != nil {
		return nil, s.fail("open", err)
	}
	return s, nil
}

// create makes the bucket. Another process may be making it, too.
func (s *record) create(ctx context.Context, bucket string) error {
	if err := s.permitted(ctx, "$JS.API.INFO", "$JS.API.STREAM.CREATE.KV_"+bucket); err != nil {
		return err
	}
	config := jetstream.KeyValueConfig{Bucket: bucket, Description: "records of dmutex", Storage: jetstream.FileStorage, Replicas: 3}
	_, err := s.js.CreateKeyValue(ctx, config)
	if refusal, ok := errors.AsType[*jetstream.APIError](err); ok && refusal.ErrorCode == 10074 { // the server is in no cluster
		config.Replicas = 1
		_, err = s.js.CreateKeyValue(ctx, config)
	}
	if errors.Is(err, jetstream.ErrBucketExists) {
		err = nil
	}
	return err
}

// permitted checks that this user may publish to the subjects and receive answers. A request
// without permission would wait in vain, because the server tells only the connection. What
// permitted publishes changes nothing.
func (s *record) permitted(ctx context.Context, subjects ...string) error {
	if o := s.js.Options(); o.APIPrefix != "" || o.Domain != "" {
		return nil // the subjects are others
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	nc := s.js.Conn()
	before := nc.LastError()
	inbox, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return err
	}
	defer func() { _ = inbox.Unsubscribe() }()
	for _, subject := range subjects {
		m := nats.NewMsg(subject)
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatInt(math.MaxInt64, 10)) // so the bucket refuses it
		if err := nc.PublishMsg(m); err != nil {
			return err
		}
	}
	if err := nc.FlushWithContext(ctx); err != nil { // the server has read them all
		return err
	}
	if err := nc.LastError(); err != before && errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	return nil
}

// fail names the record in an error, and marks an error that only an operator can mend.
func (s *record) fail(op string, err error) error {
	// An answer did not come. Perhaps a permission was withdrawn.
	if why := s.js.Conn().LastError(); errors.Is(err, context.DeadlineExceeded) &&
		errors.Is(why, nats.ErrPermissionViolation) && strings.Contains(why.Error(), s.subject) {
		err = fmt.Errorf("%w: %w", why, err)
	}
	if slices.ContainsFunc(lasting, func(target error) bool { return errors.Is(err, target) }) {
		err = fmt.Errorf("%w: %w", store.ErrUnusable, err)
	}
	return fmt.Errorf("natsstore: %s %s: %w", op, s.subject, err)
}

// lasting are the errors that recur until an operator mends their cause.
var lasting = []error{nats.ErrPermissionViolation, jetstream.ErrStreamNotFound, jetstream.ErrJetStreamNotEnabledForAccount}

// check returns which setting could lose the record.
func check(c jetstream.StreamConfig) error {
	switch {
	case c.Metadata["_nats.level"] == "":
		return errors.New("is on a server older than 2.11, which cannot confirm a read: upgrade it")
	case c.Storage != jetstream.FileStorage:
		return errors.New("is in memory, and would forget the record: create it with --storage=file")
	case c.MaxAge != 0:
		return fmt.Errorf("forgets entries after %v: set its TTL to 0", c.MaxAge)
	case c.Discard == jetstream.DiscardOld && (c.MaxBytes > 0 || c.MaxMsgs > 0):
		return errors.New("forgets old entries when it is full: set its discard policy to new")
	case c.Retention != jetstream.LimitsPolicy:
		return errors.New("forgets entries that consumers have taken or do not want: make it with retention limits, as buckets are")
	case c.SubjectTransform != nil:
		return errors.New("stores entries under other subjects: remove its subject transform")
	case c.PersistMode == jetstream.AsyncPersistMode:
		return errors.New("acknowledges entries before they are written: set its persist mode to default")
	case c.MaxMsgSize > 0 && c.MaxMsgSize < store.MaxValue:
		return fmt.Errorf("takes values of at most %d bytes: set its maximum to %d or more", c.MaxMsgSize, store.MaxValue)
	case c.Mirror != nil || len(c.Sources) > 0:
		return errors.New("is a mirror, or copies from other buckets: use the original")
	}
	return nil
}

// Load implements [store.Store].
func (s *record) Load(ctx context.Context) ([]byte, store.Revision, error) {
	for {
		entry, err := s.stream.GetLastMsgForSubject(ctx, s.subject) // a deleted key has an entry without data
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			entry, err = new(jetstream.RawStreamMsg), nil
		}
		if err == nil {
			_, err = s.publish(ctx, s.subject+".read", nil, entry.Sequence)
		}
		switch {
		case err == nil:
			return entry.Data, revision(entry.Sequence), nil
		case !errors.Is(err, store.ErrConflict): // which says that the read was stale
			return nil, "", s.fail("load", err)
		}
	}
}

// Swap implements [store.Store].
func (s *record) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	last, err := strconv.ParseUint(string(rev), 10, 64)
	if err != nil {
		return "", s.fail("swap", fmt.Errorf("revision %q is not of this store: %w", rev, err))
	}
	next, err := s.publish(ctx, s.subject, value, last)
	if err != nil {
		return "", s.fail("swap", err)
	}
	return revision(next), nil
}

// publish adds an entry if the last entry of the record is still the given one, and
// returns the sequence number of the new entry. Until the replicas are done with an entry,
// the leader refuses all others, right or wrong: then publish tries again.
func (s *record) publish(ctx context.Context, subject string, value []byte, last uint64) (uint64, error) {
	for {
		ack, err := s.js.Publish(ctx, subject, value, jetstream.WithExpectLastSequenceForSubject(last, s.subject))
		if err == nil {
			return ack.Sequence, nil
		}
		switch refusal, ok := errors.AsType[*jetstream.APIError](err); {
		case ok && refusal.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
			return 0, store.ErrConflict
		case !ok || refusal.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequenceConstant:
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%w, while the servers were busy", ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// revision is a sequence number of the stream, which only rises. 0 is before the first.
func revision(sequence uint64) store.Revision {
	return store.Revision(strconv.FormatUint(sequence, 10))
}
