//go:build unix

package run

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/nats"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// inFile returns the flags of all that use a new file.
func inFile(t *testing.T, lease string) []string {
	t.Helper()
	return []string{"--store=" + filepath.Join(t.TempDir(), "members"), "--lease=" + lease}
}

// Processes that know nothing but a file run their commands one at a time, with fences
// that rise, while one is killed, one is terminated and others join.
func TestStore(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for leases")
	}
	t.Parallel()
	flags := append(inFile(t, "2s"), "--lock=door")
	inside := filepath.Join(t.TempDir(), "inside")
	enter := func() *started {
		return start(t, flags, "enter:"+inside, "say:in $DMUTEX_FENCE $DMUTEX_LOCK", "wait", "leave:"+inside, "say:out")
	}
	fence := uint64(0)
	getsIn := func(next func() word) (run int) {
		t.Helper()
		w, last := next(), fence
		_, err := fmt.Sscanf(w.line, "in %d door", &fence)
		require.NoError(t, err, w.line)
		require.Greater(t, fence, last)
		return w.run - 1
	}
	getsOut := func(next func() word, runs []*started, run int) {
		t.Helper()
		runs[run].goOn()
		require.Equal(t, word{run + 1, "read on"}, next())
		require.Equal(t, word{run + 1, "out"}, next())
	}

	runs := []*started{enter(), enter(), enter()}
	next := listen(runs...)
	killed := getsIn(next)
	require.NoError(t, runs[killed].cmd.Process.Kill())
	getsOut(next, runs, killed) // its command lives on
	ended := getsIn(next)
	require.NotEqual(t, killed, ended)
	require.NoError(t, os.Remove(inside)) // for the command, which will not
	runs[ended].signal(syscall.SIGTERM)
	third := getsIn(next)
	getsOut(next, runs, third)
	runs[ended].ends(statusSignal + int(syscall.SIGTERM))
	runs[third].ends(0)

	runs = []*started{enter(), enter()}
	next = listen(runs...)
	for range runs {
		getsOut(next, runs, getsIn(next))
	}
	for _, s := range runs {
		s.ends(0)
	}
}

// When the lock is lost the command and its children end, and the status says so (L77).
func TestStoreLost(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for leases")
	}
	t.Parallel()
	for how, lose := range map[string]func(t *testing.T, path string, s *started, flags []string){
		"the store fails": func(t *testing.T, path string, _ *started, _ []string) {
			other := path + ".other"
			require.NoError(t, os.WriteFile(other, []byte("what is this?"), 0o600))
			require.NoError(t, os.Rename(other, path))
		},
		"paused": func(t *testing.T, path string, s *started, flags []string) {
			lock, err := os.Open(path + ".lock")
			require.NoError(t, err)
			require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)) // a process that is paused with this lock keeps it
			s.signal(syscall.SIGSTOP)
			var how syscall.WaitStatus
			_, err = syscall.Wait4(s.cmd.Process.Pid, &how, syscall.WUNTRACED, nil)
			require.NoError(t, err)
			require.True(t, how.Stopped())
			require.NoError(t, lock.Close())
			next := start(t, flags, "say:in")
			require.Equal(t, "in", next.line())
			next.exits(0)
			s.signal(syscall.SIGCONT)
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			flags := inFile(t, "1s")
			path := strings.TrimPrefix(flags[0], "--store=")
			s := start(t, flags, "fork", "trap", "say:ready", "caught", "end", "trap", "say:ready", "caught", "exit:0")
			require.Equal(t, "ready", s.line())
			require.Equal(t, "ready", s.line())
			lose(t, path, s, flags)
			require.Equal(t, "caught terminated", s.line())
			require.Equal(t, "caught terminated", s.line())
			require.Contains(t, s.exits(statusLost), "the command was ended: node: lock was lost")
		})
	}
}

// A signal ends the wait for a lock, and the waiting process leaves the record.
func TestStoreSignalWhileWaiting(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a lease")
	}
	t.Parallel()
	flags := inFile(t, "1s")
	n := join(t, flags)
	held := acquire(t, n)
	waiter := start(t, flags, "say:never")
	require.Eventually(t, func() bool { return len(n.Status().View.Members) == 2 }, tooLong, time.Millisecond)
	waiter.signal(syscall.SIGTERM)
	require.Contains(t, waiter.exits(statusSignal+int(syscall.SIGTERM)), "nothing was run: terminated")
	require.Eventually(t, func() bool { return len(n.Status().View.Members) == 1 }, tooLong, time.Millisecond)
	require.NoError(t, held.Err())
}

// One record serves any number of locks.
func TestStoreLocks(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a lease")
	}
	t.Parallel()
	flags := inFile(t, "1s")
	runs := []*started{
		start(t, append(flags, "--lock=one"), "say:in", "wait"),
		start(t, append(flags, "--lock=two"), "say:in", "wait"),
	}
	for _, s := range runs {
		require.Equal(t, "in", s.line())
	}
	for _, s := range runs {
		s.goOn()
		s.exits(0)
	}
}

// A machine with another lease than the record's gets an error, and runs nothing.
func TestStoreOtherLease(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a lease")
	}
	t.Parallel()
	flags := inFile(t, "1s")
	acquire(t, join(t, flags))
	said := start(t, []string{flags[0]}, "say:never").exits(statusNoLock)
	require.Contains(t, said, "nothing was run: ")
	require.Contains(t, said, "give the --lease that the others have")
}

// With TLS a certificate is for the host that the others dial.
func TestStoreTLS(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a lease")
	}
	t.Parallel()
	security := certificates(t)
	flags := inFile(t, "1s")
	n := join(t, append(flags, security[1]...))
	held := acquire(t, n)
	s := start(t, append(flags, security[2]...), "say:in")
	require.Eventually(t, func() bool { return len(n.Status().View.Members) == 2 && n.Status().View.Acts }, tooLong, time.Millisecond)
	require.NoError(t, held.Release())
	require.Equal(t, "in", s.line())
	s.exits(0)

	elsewhere := append(append(flags, security[2]...), "--advertise=192.0.2.1:7")
	require.Contains(t, start(t, elsewhere, "say:never").exits(statusNoLock), "192.0.2.1")
}

// Over NATS the record is in a bucket, and nothing listens.
func TestStoreNATS(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a lease")
	}
	t.Parallel()
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
	})
	require.NoError(t, err)
	ns.Start()
	defer ns.WaitForShutdown()
	defer ns.Shutdown()
	require.True(t, ns.ReadyForConnections(tooLong))
	url := ns.ClientURL()
	flags := []string{"--store=" + url + "/locks/run", "--lease=1s"}
	require.Contains(t, start(t, flags, "say:never").exits(statusNoLock), "there is no bucket locks: create it")

	nc, err := natsgo.Connect(url)
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "locks", Storage: jetstream.FileStorage})
	require.NoError(t, err)
	runs := []*started{start(t, flags, "say:in", "wait", "say:out"), start(t, flags, "say:in", "wait", "say:out")}
	next := listen(runs...)
	for range runs {
		w := next()
		require.Equal(t, "in", w.line)
		runs[w.run-1].goOn()
		require.Equal(t, word{w.run, "read on"}, next())
		require.Equal(t, word{w.run, "out"}, next())
	}
	for _, s := range runs {
		s.ends(0)
	}
}

// A command line that cannot work is refused, and the error does not quote a password.
func TestStoreUsage(t *testing.T) {
	for _, c := range []struct{ line, words string }{
		{"--store= -- x", "give a path"},
		{"--store=file://host/path -- x", "file:///path with three slashes"},
		{"--store=etcd://h/k -- x", "this tool has no store for etcd://"},
		{"--store=nats://secret@h:1/key -- x", "it is not nats://HOST:PORT/BUCKET/KEY"},
		{"--store=f --self=1 -- x", "--self and --member are not for --store"},
		{"--store=f --member=1=:1 -- x", "--self and --member are not for --store"},
		{"--store=f --nats=nats://h --prefix=p -- x", "--nats and --prefix are not for --store"},
		{"--store=nats://h/b/k --listen=:1 -- x", "--listen and --advertise are for TCP"},
		{"--store=nats://h/b/k --plain -- x", "--plain is for TCP"},
		{"--store=f --lease=1ms -- x", "--lease=1ms: choose 100ms to 1h"},
		{"--store=f", "give a command, after --"},
		{"--store=/no/such/directory/f -- x", "no such file or directory"},
		{"--store=nats://secret@127.0.0.1:1/b/k -- x", "nats server at nats://127.0.0.1:1"},
		{"--store={} --listen=:0 -- x", "Config.Advertise are --listen and --advertise"},
		{"--store={} --listen=192.0.2.1:0 -- x", "Config.AllowPlain is --plain"},
		{"--store={} --lock= -- x", "the name of a lock has 1 to"},
	} {
		t.Run(c.line, func(t *testing.T) {
			line := strings.ReplaceAll(c.line, "{}", filepath.Join(t.TempDir(), "f"))
			status, stdout, stderr := invoke(strings.Fields("run " + line)...)
			require.Equal(t, statusNoLock, status, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, c.words)
			require.NotContains(t, stderr, "secret")
		})
	}
	tool.NATS = nil
	defer func() { tool.NATS = nats.Broker }()
	_, _, stderr := invoke("run", "--store=nats://h/b/k", "--", "x")
	require.Contains(t, stderr, "--store: "+tool.ErrNoNATS.Error())
}

// The URL of a store is a file, or a key of a bucket of some servers.
func TestRecordURL(t *testing.T) {
	for text, want := range map[string]record{
		"locks":                                 {file: "locks"},
		"/var/lib/my locks":                     {file: "/var/lib/my locks"},
		"file:///var/lib/my%20locks":            {file: "/var/lib/my locks"},
		"nats://h:4222/b/k":                     {servers: "nats://h:4222", bucket: "b", key: "k"},
		"tls://me:a/b@h:1,tls://i:2/bucket/key": {servers: "tls://me:a/b@h:1,tls://i:2", bucket: "bucket", key: "key"},
	} {
		var r record
		require.NoError(t, r.UnmarshalText([]byte(text)))
		require.Equal(t, want, r)
	}
}
