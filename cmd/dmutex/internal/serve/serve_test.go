package serve

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/nats"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
	"github.com/dmutex/dmutex/internal/certtest"
	"github.com/dmutex/dmutex/lock"
)

type grammar struct {
	Serve Cmd `cmd:""`
}

func TestMain(m *testing.M) { tooltest.Main(m, new(grammar)) }

// A process is a running dmutex serve.
type process struct {
	t             *testing.T
	cmd           *exec.Cmd
	clients, page string
}

// serve starts a process of this binary.
func serve(t *testing.T, flags ...string) *process {
	t.Helper()
	return start(t, exec.Command(os.Args[0], append([]string{"serve", "--listen=127.0.0.1:0", "--http=127.0.0.1:0", "--lease=1s"}, flags...)...))
}

// start starts a process, and waits until it listens.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	s := &process{t: t, cmd: cmd}
	said, stderr, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, said.SetReadDeadline(time.Now().Add(tooltest.TooLong)))
	s.cmd.Stderr = stderr
	require.NoError(t, s.cmd.Start())
	stderr.Close()
	t.Cleanup(func() {
		said.Close()
		s.kill()
	})
	var all strings.Builder
	lines := bufio.NewScanner(said)
	for s.page == "" {
		require.True(t, lines.Scan(), all.String())
		all.WriteString(lines.Text() + "\n")
		_, address, _ := strings.Cut(lines.Text(), " address=")
		switch {
		case strings.Contains(lines.Text(), "clients connect here"):
			s.clients = address
		case strings.Contains(lines.Text(), "the page is here"):
			s.page = "http://" + address
		}
	}
	go func() { // otherwise the process would block when it writes
		for lines.Scan() {
		}
	}()
	return s
}

// shows requires that the process serves these pages.
func (s *process) shows(paths ...string) {
	s.t.Helper()
	for _, path := range paths {
		answer, err := http.Get(s.page + path)
		require.NoError(s.t, err)
		require.NoError(s.t, answer.Body.Close())
		require.Equal(s.t, http.StatusOK, answer.StatusCode, path)
	}
}

func (s *process) kill() {
	if s.cmd.ProcessState == nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
	}
}

// dial returns a client of these servers.
func dial(t *testing.T, security tool.TLS, servers ...*process) *client.Client {
	t.Helper()
	var members []string
	for _, s := range servers {
		members = append(members, s.clients)
	}
	config, err := security.Config()
	require.NoError(t, err)
	c, err := client.New(client.Config{Members: members, TLS: config})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// Clients of two members exclude each other. When one member dies, its clients go to the other. A
// signal ends a member in good order.
func TestServe(t *testing.T) {
	group := "--group=" + filepath.Join(t.TempDir(), "members")
	one, two := serve(t, group), serve(t, group, "--name=two")
	a, b := dial(t, tool.TLS{}, one, two), dial(t, tool.TLS{}, two)
	held := tooltest.Acquire(t, b.Mutex("x"))
	two.shows("/", "/alive", "/ready")
	_, err := a.Mutex("x").TryAcquire(t.Context())
	require.ErrorIs(t, err, lock.ErrBusy)
	one.kill()
	require.NoError(t, held.Release())
	next := tooltest.Acquire(t, a.Mutex("x"))
	require.Greater(t, next.Fence(), held.Fence())
	require.NoError(t, next.Release())
	require.NoError(t, two.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, two.cmd.Wait())
}

// With a certificate only clients of the same authority are served.
func TestServeTLS(t *testing.T) {
	ours, theirs := certificate(t), certificate(t)
	s := serve(t, "--group="+filepath.Join(t.TempDir(), "members"), "--cert="+ours.Cert, "--key="+ours.Key, "--authority="+ours.Authority)
	held := tooltest.Acquire(t, dial(t, ours, s).Mutex("x"))
	defer held.Release()
	for _, wrong := range []tool.TLS{{}, theirs} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		_, err := dial(t, wrong, s).Mutex("x").TryAcquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
}

// certificate makes a certificate and its authority.
func certificate(t *testing.T) (files tool.TLS) {
	a := certtest.New(t)
	own := a.Issue(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	secret, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	require.NoError(t, err)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	return tool.TLS{
		Cert: write("cert", "CERTIFICATE", own.Certificate[0]), Key: write("key", "PRIVATE KEY", secret),
		Authority: write("authority", "CERTIFICATE", a.Cert.Raw),
	}
}

// startNATS starts a server with JetStream.
func startNATS(t *testing.T) *server.Server {
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
	})
	require.NoError(t, err)
	ns.Start()
	t.Cleanup(ns.WaitForShutdown)
	t.Cleanup(ns.Shutdown)
	require.True(t, ns.ReadyForConnections(tooltest.TooLong))
	return ns
}

// Members and clients that know only the NATS servers and the group's name find each other.
func TestServeNATS(t *testing.T) {
	ns := startNATS(t)
	group := "--group=" + ns.ClientURL() + "/invoices"
	one, two := serve(t, group), serve(t, group)
	held := tooltest.Acquire(t, dial(t, tool.TLS{}, one).Mutex("x"))
	_, err := dial(t, tool.TLS{}, two).Mutex("x").TryAcquire(t.Context())
	require.ErrorIs(t, err, lock.ErrBusy)
	at, leave, err := nats.Broker.Visit(ns.ClientURL(), "invoices", "test", tool.TLS{})
	require.NoError(t, err)
	defer leave()
	c, err := client.New(at)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Mutex("x").TryAcquire(t.Context())
	require.ErrorIs(t, err, lock.ErrBusy)
	require.NoError(t, held.Release())
	require.NoError(t, tooltest.Acquire(t, c.Mutex("x")).Release())
}

// A wrong command line is refused.
func TestServeUsage(t *testing.T) {
	run := func(args ...string) (int, string, string) { return tooltest.Run(new(grammar), "", args...) }
	tooltest.Refused(t, run, [][2]string{
		{"serve", "missing flags: --group=URL"},
		{"serve --group=g", "give --listen=HOST:PORT"},
		{"serve --group=g --listen=h", "--listen=h: give HOST:PORT"},
		{"serve --group=g --listen=:0", "--listen=:0 is open to other machines: give --cert"},
		{"serve --group=postgres://u:secret@h/d --listen=:0", "for a record in PostgreSQL, write a program"},
		{"serve --group=etcd://h/k --listen=:0", "no store for etcd://"},
		{"serve --group=g --listen=127.0.0.1:0 --algorithm=paxos", "--algorithm=paxos: choose one of central"},
		{"serve --group=g --listen=127.0.0.1:0 --algorithm=broken", "--algorithm=broken: choose one of central"},
		{"serve --group=g --listen=127.0.0.1:0 --grace=-1s", "--grace=-1s: choose 0s or more"},
	})
	group := "--group=" + filepath.Join(t.TempDir(), "g")
	for _, c := range [][2]string{
		{"--listen=127.0.0.1:99999", "serve: --listen=127.0.0.1:99999: "},
		{"--listen=127.0.0.1:0 --session=1h", "Config.Clients.Session is 1h"},
		{"--listen=127.0.0.1:0 --cert=c --key=k --authority=/no/such", "no such file"},
	} {
		status, _, said := run(append([]string{"serve", group}, strings.Fields(c[0])...)...)
		require.Equal(t, tool.StatusIncomplete, status)
		require.Contains(t, said, c[1])
	}
	tool.NATS = nil
	defer func() { tool.NATS = nats.Broker }()
	_, _, said := run("serve", "--group=nats://h/b", "--listen=:0")
	require.Contains(t, said, "--group: "+tool.ErrNoNATS.Error())
}
