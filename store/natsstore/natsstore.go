// Package natsstore keeps the record of a group under a key of a JetStream key-value bucket,
// on a connection that the application already has. It needs servers of version 2.11 or
// later.
//
// # The bucket
//
// [Open] makes the bucket if it is missing, as this command does:
//
//	nats stream add KV_dmutex --defaults --subjects='$KV.dmutex.>' --storage=file --replicas=3 \
//		--max-msgs-per-subject=1 --discard=new --deny-delete --no-allow-rollup --no-allow-direct
//
// On a server that is in no cluster it has one replica. If a cluster cannot place three, Open
// returns an error: it makes no bucket that is less safe than its servers allow.
//
// Open refuses a bucket whose settings could lose the record. One that was made by nats kv add
// allows roll-ups: each user who may write one key could delete all others. Then
//
//	nats stream edit KV_dmutex --no-allow-rollup
//
// Open cannot check three things:
//
//   - A server acknowledges a write before it is on disk; by default it syncs every two
//     minutes. If the only replica loses power, or one of three while another is behind, the
//     record can revert to its state of some minutes before, and the replicas may then disagree
//     for good. Set sync_interval: always in the jetstream block of each server, with three
//     replicas, too.
//   - With one replica, an outage of that server is an outage of the store, and
//     the record is only as safe as one disk.
//   - If the record is older than the members remember, after such a loss or a restore,
//     they stop with an error. Stop all members and delete the key; the group then starts
//     with a new record.
//
// A server that hangs is not noticed before nats.go has missed the answers to its pings: more than
// four minutes by default. Connect with nats.PingInterval of an eighth of the lease and
// nats.MaxPingsOutstanding(2), and nats.go goes to another server before the lease ends.
//
// # Reads
//
// No read of JetStream is linearizable: the leader answers without checking that it still leads, and
// any replica answers a direct get. So Load reads the record, and then publishes
// an empty entry, under the key with .read added, on condition that the record is unchanged:
// only a leader with a majority can accept it. Each entry has a random name in a header, which is part
// of its revision: no other state has the same, also in a bucket that was deleted and made again.
//
// In a bucket that allows direct gets, replicas that disagree after a loss of power can each confirm
// their own value. The bucket that Open makes does not allow them: what the leader has is the record.
//
// # Permissions
//
// For the bucket b and the key k: publish to $KV.b.k and $KV.b.k.read, to
// $JS.API.STREAM.INFO.KV_b, and to $JS.API.STREAM.MSG.GET.KV_b (or
// $JS.API.DIRECT.GET.KV_b.$KV.b.k, if the bucket allows direct gets); subscribe to
// _INBOX.>. The first of the two reads every key of the bucket: a group that others must not read
// has a bucket of its own. To make the bucket, Open also publishes to $JS.API.INFO and to
// $JS.API.STREAM.CREATE.KV_b.
//
// NATS does not check these permissions where a service, or JetStream itself, answers a request on a
// reply subject that its sender has chosen. So Load refuses an entry that no store of this package has
// written, but within an account that has other users this is no wall: see docs/security.md.
package natsstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dmutex/dmutex/store"
)

// A record is a [store.Store] under a key.
type record struct {
	js      jetstream.JetStream
	name    string // of the stream
	subject string
	reads   atomic.Pointer[reads]
}

// reads is how a record is read, by the settings of the bucket when it was looked at.
type reads struct {
	stream jetstream.Stream // whose Info is not asked for, because that might change how it reads
	get    string           // the subject
	direct bool
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
	if js == nil || js.Conn() == nil {
		return nil, errors.New("natsstore: the connection is nil")
	}
	s := &record{js: js, name: "KV_" + bucket, subject: "$KV." + bucket + "." + key}
	s.reads.Store(new(reads))
	before := js.Conn().LastError()
	if err := s.open(ctx, bucket); err != nil {
		return nil, s.fail("open", err, before)
	}
	return s, nil
}

func (s *record) open(ctx context.Context, bucket string) error {
	err := s.permitted(ctx, "$JS.API.STREAM.INFO.KV_"+bucket, s.subject, s.subject+".read")
	if err != nil {
		return err
	}
	err = s.look(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if err := s.create(ctx, bucket); err != nil {
			return fmt.Errorf("there is no bucket %s, and it cannot be made: %w; make it by hand: the documentation of package natsstore has the command", bucket, err)
		}
		err = s.look(ctx)
	}
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("no server with JetStream answers: start it with -js: %w", err)
	case err != nil:
		return err
	}
	return s.permitted(ctx, s.reads.Load().get)
}

// look reads the settings of the bucket.
func (s *record) look(ctx context.Context) error {
	stream, err := s.js.Stream(ctx, s.name)
	if err != nil {
		return err
	}
	config := stream.CachedInfo().Config
	if err := check(config); err != nil {
		return fmt.Errorf("%w: bucket %s %w", store.ErrUnusable, strings.TrimPrefix(s.name, "KV_"), err)
	}
	r := &reads{stream: stream, get: "$JS.API.STREAM.MSG.GET." + s.name, direct: config.AllowDirect}
	if r.direct {
		r.get = "$JS.API.DIRECT.GET." + s.name + "." + s.subject
	}
	s.reads.Store(r)
	return nil
}

// create makes the bucket. Another process may be making it, too.
func (s *record) create(ctx context.Context, bucket string) error {
	if err := s.permitted(ctx, "$JS.API.INFO", "$JS.API.STREAM.CREATE.KV_"+bucket); err != nil {
		return err
	}
	config := jetstream.StreamConfig{
		Name: "KV_" + bucket, Subjects: []string{"$KV." + bucket + ".>"}, Description: "records of dmutex",
		Storage: jetstream.FileStorage, Replicas: 3, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew,
		DenyDelete: true,
	}
	_, err := s.js.CreateStream(ctx, config)
	if refusal, ok := errors.AsType[*jetstream.APIError](err); ok && refusal.ErrorCode == 10074 { // the server is in no cluster
		config.Replicas = 1
		_, err = s.js.CreateStream(ctx, config)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
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
	if err := nc.LastError(); err != before && denied(err, append(subjects, inbox.Subject)...) {
		return err
	}
	return nil
}

// denied reports whether the server has refused one of the subjects. nats.go tells only by the last
// error of the connection, which others use, too, and which stays when the permission was given.
func denied(err error, subjects ...string) bool {
	return errors.Is(err, nats.ErrPermissionViolation) && slices.ContainsFunc(subjects, func(subject string) bool {
		return strings.Contains(err.Error(), strconv.Quote(subject))
	})
}

// fail names the record in an error, and marks an error that only an operator can mend. before is the
// last error that the connection had when the operation began.
func (s *record) fail(op string, err, before error) error {
	switch why := s.js.Conn().LastError(); {
	case errors.Is(err, nats.ErrConnectionClosed) && why != nil:
		err = fmt.Errorf("%w: %v", err, why) // perhaps why nats.go has closed it
	case errors.Is(err, context.DeadlineExceeded) && why != before && denied(why, s.subject, s.subject+".read", s.reads.Load().get):
		err = fmt.Errorf("%w: %w", why, err) // an answer did not come because a permission was withdrawn
	}
	if slices.ContainsFunc(lasting, func(target error) bool { return errors.Is(err, target) }) {
		err = fmt.Errorf("%w: %w", store.ErrUnusable, err)
	}
	return fmt.Errorf("natsstore: %s %s: %w", op, s.subject, err)
}

// lasting are the errors that recur until an operator mends their cause.
var lasting = []error{nats.ErrPermissionViolation, jetstream.ErrStreamNotFound, jetstream.ErrJetStreamNotEnabledForAccount, errForeign}

const headers = 8 << 10 // the server counts them as part of a message; those of a write contain the subject

var errForeign = errors.New("another program has written the value: find out which, stop all members, and delete the key")

// check returns which setting could lose the record, or refuses its changes.
func check(c jetstream.StreamConfig) error {
	switch {
	case c.Metadata["_nats.level"] == "":
		return errors.New("is on a server older than 2.11, which cannot confirm a read: upgrade it")
	case c.Storage != jetstream.FileStorage:
		return errors.New("is in memory, and would forget the record: create it with --storage=file")
	case c.MaxAge != 0:
		return fmt.Errorf("forgets entries after %v: set its TTL to 0", c.MaxAge)
	case c.MaxBytes > 0 || c.MaxMsgs > 0:
		return errors.New("forgets entries, or takes no more, when it is full: set its maximum of bytes and of messages to -1")
	case c.MaxMsgsPerSubject <= 0:
		return errors.New("keeps all that was ever written: set its maximum of messages per subject, the history of a bucket, to 1")
	case c.DiscardNewPerSubject:
		return errors.New("takes no second value of a key: remove its discard policy per subject")
	case c.AllowRollup:
		return fmt.Errorf("allows roll-ups, by which each user of one key can delete all others: run nats stream edit %s --no-allow-rollup", c.Name)
	case c.NoAck:
		return errors.New("acknowledges nothing: make it with acknowledgements, as buckets are")
	case c.Sealed:
		return errors.New("is sealed, and takes no changes: use another one")
	case c.AllowMsgCounter:
		return errors.New("is one of counters: use another one")
	case c.Retention != jetstream.LimitsPolicy:
		return errors.New("forgets entries that consumers have taken or do not want: make it with retention limits, as buckets are")
	case c.SubjectTransform != nil:
		return errors.New("stores entries under other subjects: remove its subject transform")
	case c.PersistMode == jetstream.AsyncPersistMode:
		return errors.New("acknowledges entries before they are written: set its persist mode to default")
	case c.MaxMsgSize > 0 && c.MaxMsgSize < store.MaxValue+headers:
		return fmt.Errorf("takes messages of at most %d bytes: set its maximum to %d or more", c.MaxMsgSize, store.MaxValue+headers)
	case c.Mirror != nil || len(c.Sources) > 0:
		return errors.New("is a mirror, or copies from other buckets: use the original")
	}
	return nil
}

// Load implements [store.Store].
func (s *record) Load(ctx context.Context) ([]byte, store.Revision, error) {
	before := s.js.Conn().LastError()
	entry, err := s.load(ctx)
	if err != nil {
		return nil, "", s.fail("load", err, before)
	}
	return entry.Data, revision(entry), nil
}

// load returns the last entry of the record.
func (s *record) load(ctx context.Context) (*jetstream.RawStreamMsg, error) {
	for {
		entry, err := s.read(ctx)
		if err == nil {
			_, err = s.publish(ctx, nats.NewMsg(s.subject+".read"), entry)
		}
		if !errors.Is(err, store.ErrConflict) { // which says that the read was stale
			return entry, err
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// Swap implements [store.Store].
func (s *record) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	before := s.js.Conn().LastError()
	m := nats.NewMsg(s.subject)
	m.Data = value
	m.Header.Set(nameHeader, rand.Text())
	last, err := s.read(ctx)
	if err == nil && last.Sequence < sequence(rev) { // the read was stale, or the bucket is another one
		last, err = s.load(ctx)
	}
	if err == nil && revision(last) != rev {
		err = store.ErrConflict
	}
	if err == nil {
		last, err = s.publish(ctx, m, last)
	}
	if err != nil {
		return "", s.fail("swap", err, before)
	}
	return revision(last), nil
}

// nameHeader has the name of an entry.
const nameHeader = "Dmutex-Name"

// read returns the last entry of the record, which need not be current. A key that was never written,
// or was deleted by an operator, has no data.
func (s *record) read(ctx context.Context) (*jetstream.RawStreamMsg, error) {
	r := s.reads.Load()
	entry, err := r.stream.GetLastMsgForSubject(ctx, s.subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		stream, err := s.js.Stream(ctx, s.name)
		if err != nil {
			return nil, err
		}
		return &jetstream.RawStreamMsg{Time: stream.CachedInfo().Created}, nil
	case r.direct && errors.Is(err, nats.ErrNoResponders): // the bucket may allow them no more
		if failed := s.look(ctx); failed != nil || s.reads.Load().direct {
			return nil, cmp.Or(failed, err)
		}
		return s.read(ctx)
	case err != nil:
		return nil, err
	}
	return entry, genuine(entry, r.direct)
}

// genuine refuses an entry that came by a reply subject: JetStream and services add headers, and none
// adds those of a Swap. Older releases have given entries no name.
func genuine(entry *jetstream.RawStreamMsg, direct bool) error {
	swapped := false
	for header, values := range entry.Header {
		switch header {
		case jetstream.ExpectedLastSubjSeqHeader:
			swapped = true
		case jetstream.ExpectedLastSubjSeqSubjHeader, nameHeader:
		case jetstream.StreamHeader, jetstream.SubjectHeader, jetstream.SequenceHeader, jetstream.TimeStampHeaer, jetstream.LastSequenceHeader:
			if len(values) != 1 || !direct { // a direct get adds them to what the entry has
				return fmt.Errorf("%w: it was read from %s, %v", errForeign, header, values)
			}
		case jetstream.MarkerReasonHeader, jetstream.MsgRollup, "KV-Operation": // of an operator who deletes the key
			swapped = swapped || header == "KV-Operation" && len(entry.Data) == 0
		default:
			return fmt.Errorf("%w: it has the header %s", errForeign, header)
		}
	}
	if !swapped {
		return fmt.Errorf("%w: it is no swap", errForeign)
	}
	return nil
}

// pause waits between attempts, which the servers, or another program that writes the key, may refuse
// as long as they like.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w, while the servers were busy", ctx.Err())
	case <-time.After(2 * time.Millisecond):
		return nil
	}
}

// publish adds an entry if the last one of the record is still this, and returns it. Until the replicas
// are done with an entry, the leader refuses all others, right or wrong: then publish tries again.
func (s *record) publish(ctx context.Context, m *nats.Msg, last *jetstream.RawStreamMsg) (*jetstream.RawStreamMsg, error) {
	for {
		ack, err := s.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequenceForSubject(last.Sequence, s.subject))
		if err == nil {
			return &jetstream.RawStreamMsg{Sequence: ack.Sequence, Header: m.Header}, nil
		}
		switch refusal, ok := errors.AsType[*jetstream.APIError](err); {
		case ok && refusal.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
			return nil, store.ErrConflict
		case !ok || refusal.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequenceConstant:
			return nil, err
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// revision is the sequence number of an entry in the stream, 0 if there is none, and what distinguishes it
// from others that had this number, or will have it: its name, else its time, and for none the time when
// the bucket was made.
func revision(entry *jetstream.RawStreamMsg) store.Revision {
	name := cmp.Or(entry.Header.Get(nameHeader), strconv.FormatInt(entry.Time.UnixNano(), 36))
	return store.Revision(strconv.FormatUint(entry.Sequence, 10) + "." + name)
}

// sequence returns the number in a revision, 0 if it is of another store.
func sequence(rev store.Revision) uint64 {
	number, _, _ := strings.Cut(string(rev), ".")
	n, _ := strconv.ParseUint(number, 10, 64)
	return n
}
