package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/integration/servers"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/natsstore"
	"github.com/dmutex/dmutex/store/storetest"
)

const bucket = "groups"

func startJetStream(t *testing.T) *server.Server {
	return startNATS(t, server.Options{Port: -1, JetStream: true, StoreDir: t.TempDir()})
}

func jetStream(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}

func openKey(t *testing.T, js jetstream.JetStream, key string) store.Store {
	s, err := natsstore.Open(t.Context(), js, bucket, key)
	require.NoError(t, err)
	return s
}

func load(t *testing.T, s store.Store) store.Revision {
	_, rev, err := s.Load(t.Context())
	require.NoError(t, err)
	return rev
}

func TestNATSStore(t *testing.T) {
	s := startJetStream(t)
	js := jetStream(t, connect(t, s))
	openKey(t, js, "first") // makes the bucket
	stream, err := js.Stream(t.Context(), "KV_"+bucket)
	require.NoError(t, err)
	require.False(t, stream.CachedInfo().Config.AllowDirect, "replicas that disagree confirm their own values")
	kv, err := js.KeyValue(t.Context(), bucket)
	require.NoError(t, err)
	t.Run("store", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T, group string) store.Store { return openKey(t, jetStream(t, connect(t, s)), group) })
		storetest.RunServer(t, s.Addr().String(), func(t *testing.T, address, group string) store.Store {
			nc, err := nats.Connect("nats://"+address, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0),
				nats.PingInterval(100*time.Millisecond), nats.MaxPingsOutstanding(2))
			require.NoError(t, err)
			t.Cleanup(nc.Close)
			return openKey(t, jetStream(t, nc), group)
		}, func(t *testing.T, group string) { require.NoError(t, kv.Delete(t.Context(), group)) })
	})

	// An operator sees the record, and may delete it. Then the record begins again, but its
	// revisions go on.
	t.Run("deleted", func(t *testing.T) {
		ctx := t.Context()
		s := openKey(t, js, "deleted")
		lost := servers.Create(t, s)
		entry, err := kv.Get(ctx, "deleted")
		require.NoError(t, err)
		require.Equal(t, "a", string(entry.Value()))
		require.NoError(t, kv.Delete(ctx, "deleted"))
		servers.Create(t, s)
		stream, err := js.Stream(ctx, "KV_"+bucket)
		require.NoError(t, err)
		require.NoError(t, stream.Purge(ctx, jetstream.WithPurgeSubject("$KV."+bucket+".deleted")))
		servers.Create(t, s)
		_, err = s.Swap(ctx, []byte("b"), lost)
		require.ErrorIs(t, err, store.ErrConflict)
	})

	// A service, or JetStream itself, publishes what a user cannot where that user asks it to. Such a
	// value is refused, also if it looks like that of an operator or of another store.
	t.Run("foreign", func(t *testing.T) {
		nc := js.Conn()
		service, err := nc.Subscribe("echo", func(m *nats.Msg) { _ = m.RespondMsg(&nats.Msg{Data: m.Data, Header: m.Header}) })
		require.NoError(t, err)
		defer func() { require.NoError(t, service.Unsubscribe()) }()
		_, err = kv.Put(t.Context(), "plain", []byte("a"))
		require.NoError(t, err)
		plain := "$KV." + bucket + ".plain"
		for i, forged := range []*nats.Msg{
			{Subject: "echo", Data: []byte("forged")},
			{Subject: "echo", Data: []byte("forged"), Header: nats.Header{"Service": {"1"}}},
			{Subject: "echo"},
			{Subject: "$JS.API.STREAM.MSG.GET.KV_" + bucket, Data: []byte(`{"last_by_subj":"` + plain + `"}`)},
			{Subject: "$JS.API.INFO"},
		} {
			key := "foreign" + strconv.Itoa(i)
			s := openKey(t, js, key)
			rev := load(t, s)
			forged.Reply = "$KV." + bucket + "." + key
			require.NoError(t, nc.PublishMsg(forged))
			eventually(t, "it is not refused: "+forged.Subject, func() bool {
				_, _, err = s.Load(t.Context())
				return err != nil
			})
			require.ErrorContains(t, err, "another program has written the value: find out which, stop all members, and delete the key")
			require.ErrorIs(t, err, store.ErrUnusable)
			_, err = s.Swap(t.Context(), []byte("a"), rev)
			require.ErrorIs(t, err, store.ErrUnusable)
			require.NoError(t, kv.Delete(t.Context(), key))
			_, err = s.Swap(t.Context(), []byte("a"), load(t, s))
			require.NoError(t, err)
		}
	})

	// A value that was written by an earlier release of this package is loaded and replaced.
	t.Run("earlier", func(t *testing.T) {
		s := openKey(t, js, "earlier")
		subject := "$KV." + bucket + ".earlier"
		_, err := js.Publish(t.Context(), subject, []byte("a"), jetstream.WithExpectLastSequenceForSubject(0, subject))
		require.NoError(t, err)
		_, err = s.Swap(t.Context(), []byte("b"), load(t, s))
		require.NoError(t, err)
	})

	// A bucket that is deleted and made again has none of the revisions that it had.
	t.Run("made again", func(t *testing.T) {
		s := openKey(t, js, "again")
		none := load(t, s)
		swap := func() store.Revision {
			rev, err := s.Swap(t.Context(), []byte("a"), load(t, s))
			require.NoError(t, err)
			return rev
		}
		old := swap()
		require.NoError(t, js.DeleteStream(t.Context(), "KV_"+bucket))
		s = openKey(t, js, "again")
		for _, rev := range []store.Revision{none, old} {
			_, err := s.Swap(t.Context(), []byte("b"), rev)
			require.ErrorIs(t, err, store.ErrConflict)
		}
		for {
			rev := swap()
			require.NotEqual(t, old, rev)
			number := func(rev store.Revision) string { return strings.Split(string(rev), ".")[0] }
			_, err := s.Swap(t.Context(), []byte("b"), old)
			require.ErrorIs(t, err, store.ErrConflict)
			if number(rev) >= number(old) && len(rev) >= len(old) {
				return
			}
		}
	})

	// A conflict that a read shows writes nothing.
	t.Run("conflict", func(t *testing.T) {
		s := openKey(t, js, "conflict")
		rev := load(t, s)
		_, err := s.Swap(t.Context(), []byte("a"), rev)
		require.NoError(t, err)
		written := func() uint64 {
			stream, err := js.Stream(t.Context(), "KV_"+bucket)
			require.NoError(t, err)
			return stream.CachedInfo().State.LastSeq
		}
		before := written()
		_, err = s.Swap(t.Context(), []byte("b"), rev)
		require.ErrorIs(t, err, store.ErrConflict)
		require.Equal(t, before, written())
	})

	t.Run("misuse", func(t *testing.T) {
		for _, key := range []string{"", "a.read", "a b", "a*"} {
			_, err := natsstore.Open(t.Context(), js, bucket, key)
			require.ErrorContains(t, err, "use letters, digits, - _ =")
		}
		_, err := openKey(t, js, "misuse").Swap(t.Context(), []byte("a"), "mine")
		require.ErrorIs(t, err, store.ErrConflict, "it is no revision of this record")
	})
}

// A lagging JetStream reads like a replica that is one read behind.
type lagging struct{ jetstream.JetStream }

type laggingStream struct {
	jetstream.Stream
	mu    sync.Mutex
	entry *jetstream.RawStreamMsg
	err   error
}

func (l lagging) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := l.JetStream.Stream(ctx, name)
	return &laggingStream{Stream: s, err: jetstream.ErrMsgNotFound}, err
}

func (l *laggingStream) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	entry, err := l.Stream.GetLastMsgForSubject(ctx, subject)
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	entry, l.entry = l.entry, entry
	err, l.err = l.err, err
	return entry, err
}

// Load is current even if reads of the bucket are stale.
func TestNATSStoreLagging(t *testing.T) {
	s := startJetStream(t)
	openKey(t, jetStream(t, connect(t, s)), "first") // makes the bucket
	storetest.Run(t, func(t *testing.T, group string) store.Store {
		return openKey(t, lagging{jetStream(t, connect(t, s))}, group)
	})
}

// Open says which setting of a bucket would lose the record, and what to do.
func TestNATSStoreSettings(t *testing.T) {
	js := jetStream(t, connect(t, startJetStream(t)))
	for i, test := range []struct {
		set  func(*jetstream.StreamConfig)
		says string
	}{
		{func(c *jetstream.StreamConfig) {}, ""},
		{func(c *jetstream.StreamConfig) { c.AllowDirect = true }, ""},
		{func(c *jetstream.StreamConfig) { c.MaxMsgSize = store.MaxValue + 8<<10 }, ""},
		{func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, "is in memory"},
		{func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, "forgets entries after 1h0m0s"},
		{func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 }, "forgets entries, or takes no more, when it is full"},
		{func(c *jetstream.StreamConfig) { c.MaxBytes, c.Discard = 1<<20, jetstream.DiscardNew }, "forgets entries, or takes no more, when it is full"},
		{func(c *jetstream.StreamConfig) { c.MaxMsgs = 1000 }, "forgets entries, or takes no more, when it is full"},
		{func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 0 }, "keeps all that was ever written"},
		{func(c *jetstream.StreamConfig) {
			c.Discard, c.DiscardNewPerSubject = jetstream.DiscardNew, true
		}, "takes no second value of a key"},
		{func(c *jetstream.StreamConfig) { c.AllowRollup = true }, "allows roll-ups, by which each user of one key can delete all others"},
		{func(c *jetstream.StreamConfig) { c.AllowMsgSchedules = true }, "allows roll-ups"},
		{func(c *jetstream.StreamConfig) { c.NoAck = true }, "acknowledges nothing"},
		{func(c *jetstream.StreamConfig) { c.AllowMsgCounter, c.AllowDirect = true, true }, "is one of counters"},
		{func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }, "forgets entries that consumers have taken"},
		{func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }, "forgets entries that consumers have taken"},
		{func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: ">", Destination: "other.>"}
		}, "stores entries under other subjects"},
		{func(c *jetstream.StreamConfig) { c.MaxMsgSize = store.MaxValue }, "takes messages of at most 65536 bytes: set its maximum to 73728 or more"},
		{func(c *jetstream.StreamConfig) { c.Sealed = true }, "is sealed"},
		{func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode }, "acknowledges entries before they are written"},
		{func(c *jetstream.StreamConfig) {
			c.Mirror, c.Subjects = &jetstream.StreamSource{Name: "KV_other"}, nil
		}, "is a mirror, or copies from other buckets"},
	} {
		bucket := "groups" + strconv.Itoa(i)
		config := jetstream.StreamConfig{Name: "KV_" + bucket, Subjects: []string{"$KV." + bucket + ".>"}, MaxMsgsPerSubject: 1}
		test.set(&config)
		sealed := config.Sealed // a stream is sealed once it is there
		config.Sealed = false
		_, err := js.CreateStream(t.Context(), config)
		require.NoError(t, err, test.says)
		if config.Sealed = sealed; sealed {
			_, err = js.UpdateStream(t.Context(), config)
			require.NoError(t, err)
		}
		_, err = natsstore.Open(t.Context(), js, bucket, "a")
		if test.says == "" {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, store.ErrUnusable)
			require.ErrorContains(t, err, ": bucket "+bucket+" "+test.says)
		}
	}
}

// permitted starts a server with a bucket. It returns a client that may publish and subscribe
// only to these subjects.
func permitted(t *testing.T, direct bool, subscribe string, publish ...string) jetstream.JetStream {
	s := startNATS(t, server.Options{Port: -1, JetStream: true, StoreDir: t.TempDir(), Users: []*server.User{
		{Username: "operator", Password: "secret"},
		{Username: "node", Password: "secret", Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: publish},
			Subscribe: &server.SubjectPermission{Allow: []string{subscribe}},
		}},
	}})
	operator := jetStream(t, connect(t, s, nats.UserInfo("operator", "secret")))
	_, err := operator.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KV_" + bucket, Subjects: []string{"$KV." + bucket + ".>"}, MaxMsgsPerSubject: 1, AllowDirect: direct,
	})
	require.NoError(t, err)
	return jetStream(t, connect(t, s, nats.UserInfo("node", "secret")))
}

// The permissions of the package comment are enough, and none can be left out. Open names the
// one that is missing.
func TestNATSStorePermitted(t *testing.T) {
	for _, direct := range []bool{true, false} {
		publish := []string{"$KV.groups.a", "$KV.groups.a.read", "$JS.API.STREAM.INFO.KV_groups", "$JS.API.STREAM.MSG.GET.KV_groups"}
		if direct {
			publish[3] = "$JS.API.DIRECT.GET.KV_groups.$KV.groups.a"
		}
		node := openKey(t, permitted(t, direct, "_INBOX.>", publish...), "a")
		_, none, err := node.Load(t.Context())
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(none), "0."), "Open has written something")
		rev, err := node.Swap(t.Context(), []byte("a"), none)
		require.NoError(t, err)
		value, last, err := node.Load(t.Context())
		require.NoError(t, err)
		require.Equal(t, "a", string(value))
		require.Equal(t, rev, last)

		for i, missing := range publish {
			rest := append([]string{"none"}, publish[:i]...)
			js := permitted(t, direct, "_INBOX.>", append(rest, publish[i+1:]...)...)
			_, err := natsstore.Open(t.Context(), js, bucket, "a")
			require.ErrorIs(t, err, store.ErrUnusable)
			require.ErrorContains(t, err, `Publish to "`+missing+`"`)
		}
		_, err = natsstore.Open(t.Context(), permitted(t, direct, "none", publish...), bucket, "a")
		require.ErrorIs(t, err, store.ErrUnusable)
		require.ErrorContains(t, err, `Subscription to "_INBOX.`)
	}
}

// An operation that takes too long is an outage, although the server refused another subject on this
// connection before.
func TestNATSStoreOutage(t *testing.T) {
	js := permitted(t, true, "_INBOX.>", "$KV.groups.a", "$KV.groups.a.read", "$JS.API.STREAM.INFO.KV_groups", "$JS.API.DIRECT.GET.KV_groups.$KV.groups.a")
	s := openKey(t, js, "a")
	require.NoError(t, js.Conn().Publish("$KV.groups.ab", nil))
	require.NoError(t, js.Conn().Flush())
	require.ErrorIs(t, js.Conn().LastError(), nats.ErrPermissionViolation)
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	_, _, err := s.Load(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, store.ErrUnusable)
	openKey(t, js, "a")

	js.Conn().Close()
	_, _, err = s.Load(t.Context())
	require.ErrorIs(t, err, nats.ErrConnectionClosed)
	require.ErrorContains(t, err, "groups.ab", "the connection's last error, perhaps why it was closed")
	require.NotErrorIs(t, err, store.ErrUnusable)
}

// startJetStreamCluster runs three servers. JetStream wants each server to know the ports of
// the others beforehand, so listeners keep the ports until the servers start.
func startJetStreamCluster(t *testing.T) []*server.Server {
	var kept []net.Listener
	var routes []string
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		kept = append(kept, l)
		routes = append(routes, "nats-route://"+l.Addr().String())
	}
	var servers []*server.Server
	for i, l := range kept {
		require.NoError(t, l.Close())
		servers = append(servers, startNATS(t, server.Options{
			Port: -1, JetStream: true, StoreDir: t.TempDir(), ServerName: "server" + strconv.Itoa(i),
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port},
			Routes:  server.RoutesFromStr(strings.Join(routes, ",")),
		}))
	}
	return servers
}

// A bucket is on three servers. When its leader has stopped, acknowledged values are still
// there. When two servers have stopped, calls fail rather than return old values.
func TestNATSStoreCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	servers := startJetStreamCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var clients []jetstream.JetStream
	for i, s := range servers {
		clients = append(clients, jetStream(t, connect(t, s)))
		for ready := false; !ready; { // until they have elected a leader, and this one knows where the bucket is
			brief, cancel := context.WithTimeout(ctx, time.Second/4)
			s, err := natsstore.Open(brief, clients[i], bucket, "a")
			if err == nil {
				_, _, err = s.Load(brief)
			}
			cancel()
			ready = err == nil
			require.NoError(t, ctx.Err(), "%v", err)
		}
	}
	groups := 0
	storetest.Run(t, func(t *testing.T, group string) store.Store {
		groups++
		return openKey(t, clients[groups%3], group)
	})

	c := startCounters(t, ctx, servers)
	c.progress(20)
	stream, err := clients[0].Stream(ctx, "KV_"+bucket)
	require.NoError(t, err)
	require.Equal(t, 3, stream.CachedInfo().Config.Replicas)
	leader := stream.CachedInfo().Cluster.Leader
	var others []*server.Server
	for _, s := range servers {
		if s.Name() == leader {
			stopNATS(s)
		} else {
			others = append(others, s)
		}
	}
	require.Len(t, others, 2)
	c.progress(20)
	c.end()

	js := jetStream(t, connect(t, others[1]))
	s := openKey(t, js, "counter")
	value, rev, err := s.Load(ctx)
	require.NoError(t, err)
	n, err := strconv.ParseInt(string(value), 10, 64)
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, c.acknowledged.Load(), "acknowledged increments are lost")
	require.LessOrEqual(t, n, c.acknowledged.Load()+c.unknown.Load(), "increments that nobody made")

	stopNATS(others[0])
	brief, cancel := context.WithTimeout(ctx, time.Second/2)
	defer cancel()
	_, _, err = s.Load(brief)
	require.Error(t, err)
	_, err = s.Swap(brief, []byte("0"), rev)
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrConflict)
}

// counters are three clients that increment one number.
type counters struct {
	t                     *testing.T
	acknowledged, unknown atomic.Int64
	poke                  chan bool
	stop                  context.CancelFunc
	counting              sync.WaitGroup
}

func startCounters(t *testing.T, ctx context.Context, servers []*server.Server) *counters {
	ctx, stop := context.WithCancel(ctx)
	c := &counters{t: t, poke: make(chan bool, 1), stop: stop}
	for _, s := range servers {
		s := openKey(t, jetStream(t, connect(t, s)), "counter")
		c.counting.Go(func() {
			for ctx.Err() == nil {
				c.increment(ctx, s)
			}
		})
	}
	return c
}

func (c *counters) increment(ctx context.Context, s store.Store) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	known := c.acknowledged.Load()
	value, rev, err := s.Load(ctx)
	if err != nil {
		return
	}
	n, _ := strconv.ParseInt(string(value), 10, 64)
	if n < known {
		c.t.Errorf("Load is stale: %d, but %d were acknowledged", n, known)
	}
	switch _, err := s.Swap(ctx, strconv.AppendInt(nil, n+1, 10), rev); {
	case err == nil:
		c.acknowledged.Add(1)
		select {
		case c.poke <- true:
		default:
		}
	case !errors.Is(err, store.ErrConflict):
		c.unknown.Add(1)
	}
}

// progress waits for n more increments.
func (c *counters) progress(n int64) {
	c.t.Helper()
	for goal := c.acknowledged.Load() + n; c.acknowledged.Load() < goal; {
		await(c.t, c.poke)
	}
}

func (c *counters) end() {
	c.stop()
	c.counting.Wait()
}

// A bucket may get and lose its direct gets while a store is open: it is read as before, or as is possible now.
func TestNATSStoreDirectChanged(t *testing.T) {
	js := jetStream(t, connect(t, startJetStream(t)))
	openKey(t, js, "first") // makes the bucket
	for _, before := range []bool{false, true, false} {
		key := fmt.Sprint("before-", before, "-", rand.Text())
		set := func(direct bool) {
			stream, err := js.Stream(t.Context(), "KV_"+bucket)
			require.NoError(t, err)
			config := stream.CachedInfo().Config
			config.AllowDirect = direct
			_, err = js.UpdateStream(t.Context(), config)
			require.NoError(t, err)
		}
		set(before)
		s := openKey(t, js, key)
		load(t, s)
		set(!before)
		rev, err := s.Swap(t.Context(), []byte("a"), load(t, s))
		require.NoError(t, err)
		value, last, err := s.Load(t.Context())
		require.NoError(t, err)
		require.Equal(t, "a", string(value))
		require.Equal(t, rev, last)
		_, err = s.Swap(t.Context(), []byte("b"), rev)
		require.NoError(t, err)
	}
}
