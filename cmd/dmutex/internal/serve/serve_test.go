package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
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
	"github.com/dmutex/dmutex/cmd/dmutex/internal/run"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
	"github.com/dmutex/dmutex/internal/kit/certtest"
	"github.com/dmutex/dmutex/internal/kit/kubetest"
	"github.com/dmutex/dmutex/internal/kit/s3test"
	"github.com/dmutex/dmutex/lock"
)

type grammar struct {
	Serve Cmd     `cmd:""`
	Run   run.Cmd `cmd:""`
}

func TestMain(m *testing.M) { tooltest.Main(m, new(grammar)) }

// A process is a running dmutex serve.
type process struct {
	t             *testing.T
	cmd           *exec.Cmd
	clients, page string
	said          *os.File    // its log
	log           chan string // lines
}

// serve starts a process of this binary.
func serve(t *testing.T, flags ...string) *process {
	t.Helper()
	return start(t, serveCommand(append([]string{"--listen=127.0.0.1:0"}, flags...)...))
}

func serveCommand(flags ...string) *exec.Cmd {
	return exec.Command(os.Args[0], append([]string{"serve", "--http=127.0.0.1:0", "--lease=1s"}, flags...)...)
}

// start starts a process, and waits until it listens.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	s := &process{t: t, cmd: cmd, log: make(chan string, 100)}
	said, stderr, err := os.Pipe()
	require.NoError(t, err)
	s.said = said
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
			select {
			case s.log <- lines.Text():
			default: // no test reads so many
			}
		}
	}()
	return s
}

// says waits for a line of the log with this text.
func (s *process) says(text string) (line string) {
	s.t.Helper()
	late := time.After(tooltest.TooLong)
	for !strings.Contains(line, text) {
		select {
		case line = <-s.log:
		case <-late:
			require.Fail(s.t, "the log does not say: "+text)
		}
	}
	return line
}

// shows requires that the process serves these pages, and returns the last.
func (s *process) shows(paths ...string) (text string) {
	s.t.Helper()
	for _, path := range paths {
		answer, err := http.Get(s.page + path)
		require.NoError(s.t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(s.t, err)
		require.NoError(s.t, answer.Body.Close())
		require.Equal(s.t, http.StatusOK, answer.StatusCode, path)
		text = string(body)
	}
	return text
}

// unready returns why the member is not ready.
func (s *process) unready() string {
	s.t.Helper()
	answer, err := http.Get(s.page + "/ready")
	require.NoError(s.t, err)
	defer answer.Body.Close()
	require.Equal(s.t, http.StatusServiceUnavailable, answer.StatusCode)
	body, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	return string(body)
}

func (s *process) kill() {
	if s.cmd.ProcessState == nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
	}
}

// dial returns a client of these servers.
func dial(t *testing.T, security tool.Security, servers ...*process) *client.Client {
	t.Helper()
	var members []string
	for _, s := range servers {
		members = append(members, s.clients)
	}
	connect, err := security.Dial()
	require.NoError(t, err)
	c, err := client.New(client.Config{Members: members, Dial: connect})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// Clients of two members exclude each other. When one member dies, its clients go to the other. A
// signal ends a member in good order.
func TestServe(t *testing.T) {
	group := "--group=" + filepath.Join(t.TempDir(), "members")
	one, two := serve(t, group), serve(t, group, "--name=two")
	a, b := dial(t, tool.Security{}, one, two), dial(t, tool.Security{}, two)
	held := tooltest.Acquire(t, b.Mutex("x"))
	two.shows("/", "/alive", "/ready")
	text := two.shows("/metrics")
	for _, line := range []string{"\ndmutex_up 1\n", "\n# TYPE dmutex_clients gauge\n", "\ndmutex_hold_seconds_count{outcome=\"lost\"} "} {
		require.Contains(t, text, line)
	}
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

// Members whose record is in Kubernetes or S3 meet over TCP, with a certificate that is valid for where the others reach
// them. When one dies, its clients go to another.
func TestServeAtBase(t *testing.T) {
	cluster, bucket := kubetest.New(t), s3test.New(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "web")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	own := certificate(t)
	for _, url := range []string{"kube://locks/invoices?server=" + cluster.URL, "s3://locks/groups/invoices?endpoint=" + bucket.URL} {
		flags := []string{"--group=" + url, "--meet=127.0.0.1:0", "--cert=" + own.Cert, "--key=" + own.Key, "--authority=" + own.Authority}
		one, two := serve(t, flags...), serve(t, flags...)
		c := dial(t, own, one, two)
		held := tooltest.Acquire(t, c.Mutex("x"))
		one.kill()
		require.NoError(t, held.Release())
		require.NoError(t, tooltest.Acquire(t, c.Mutex("x")).Release())
		require.NoError(t, two.cmd.Process.Signal(os.Interrupt))
		require.NoError(t, two.cmd.Wait())
	}
	require.NotNil(t, cluster.Lease("invoices"))
	require.Equal(t, []string{"groups/invoices"}, bucket.Objects())
}

// What a base refuses is known at once.
func TestServeAtBaseRefused(t *testing.T) {
	own := certificate(t)
	security := "--cert=" + own.Cert + " --key=" + own.Key + " --authority=" + own.Authority
	t.Setenv("AWS_ACCESS_KEY_ID", "web")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	for line, want := range map[string]string{
		"--group=kube://locks/g --meet=127.0.0.1:0":                                                                 "this process runs in no pod: end the URL with ?server=",
		"--group=kube://locks?server=http://127.0.0.1:1 --meet=127.0.0.1:0":                                         "end the URL with /NAME",
		"--group=kube://locks/A?server=http://127.0.0.1:1 --meet=127.0.0.1:0":                                       `"A" is no name of a Lease`,
		"--group=kube://locks/a/b?server=http://127.0.0.1:1 --meet=127.0.0.1:0":                                     "it is not kube://NAMESPACE",
		"--group=kube://locks/g?sever=http://127.0.0.1:1 --meet=127.0.0.1:0":                                        `kube:// has no "sever": only server may follow the question mark`,
		"--group=kube://u:secret@locks/g --meet=127.0.0.1:0":                                                        "kube:// takes no user",
		"--group=s3://locks --meet=127.0.0.1:0":                                                                     "end the URL with /NAME",
		"--group=s3:///g --meet=127.0.0.1:0":                                                                        "it is not s3://BUCKET",
		"--group=s3://locks/a..b --meet=127.0.0.1:0":                                                                `"a..b" of an object may have`,
		"--group=kube://locks/g?server=http://127.0.0.1:1 --meet=127.0.0.1:0 --advertise=10.0.0.9:7000 " + security: "the other members reach this one at 10.0.0.9:7000: x509: certificate is valid for",
		"--group=kube://locks/g?server=http://127.0.0.1:1 --meet=:0 --allow-plain":                                  "give --advertise=HOST:PORT, where the other members reach this one",
		"--group=kube://locks/g?server=http://127.0.0.1:1 --meet=127.0.0.1:0 --advertise=10.0.0.9":                  "--advertise=10.0.0.9: give HOST:PORT",
	} {
		status, _, said := tooltest.Run(new(grammar), "", append([]string{"serve", "--listen=127.0.0.1:0"}, strings.Fields(line)...)...)
		require.Contains(t, said, want, line)
		require.NotZero(t, status)
		require.NotContains(t, said, "secret")
	}
}

// A member lives on when the reader of its log has gone away: else the next line would be its crash.
func TestServeLogUnread(t *testing.T) {
	s := serve(t, "--group="+filepath.Join(t.TempDir(), "members"))
	s.said.Close()
	require.NoError(t, s.cmd.Process.Signal(os.Interrupt)) // it logs that the node is closed
	require.NoError(t, s.cmd.Wait())
}

// A signal that comes while the member starts ends it in good order, too.
func TestServeSignalAtStart(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // a NATS server that says nothing
	require.NoError(t, err)
	defer l.Close()
	cmd := serveCommand("--group=nats://" + l.Addr().String() + "/g")
	require.NoError(t, cmd.Start())
	_, err = l.Accept()
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait())
}

// With a certificate only clients of the same authority are served.
func TestServeTLS(t *testing.T) {
	ours, theirs := certificate(t), certificate(t)
	s := serve(t, "--group="+filepath.Join(t.TempDir(), "members"), "--cert="+ours.Cert, "--key="+ours.Key, "--authority="+ours.Authority)
	held := tooltest.Acquire(t, dial(t, ours, s).Mutex("x"))
	defer held.Release()
	for _, wrong := range []tool.Security{{}, theirs} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		_, err := dial(t, wrong, s).Mutex("x").TryAcquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
}

// The member that has a certificate which cannot be used logs that, and so does the member that refuses one. Both
// count it. All files are read anew for each connection.
func TestServeWithoutGoodCertificates(t *testing.T) {
	a, host := certtest.New(t), func() *x509.Certificate {
		return &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	}
	over := host()
	over.NotBefore, over.NotAfter = time.Now().AddDate(0, 0, -2), time.Now().AddDate(0, 0, -1)
	early, ours := host(), issue(t, a, host())
	early.NotBefore, early.NotAfter = time.Now().AddDate(0, 0, 1), time.Now().AddDate(0, 0, 2)
	for said, template := range map[string]*x509.Certificate{
		"the certificate expired at " + over.NotAfter.UTC().Format(time.RFC3339) + ": renew it":                                over,
		"the certificate is valid from " + early.NotBefore.UTC().Format(time.RFC3339) + " on: check the clock of this machine": early,
	} {
		bad := issue(t, a, template)
		status, _, stderr := tooltest.Run(new(grammar), "", "serve", "--group="+t.TempDir(), "--listen=127.0.0.1:0", "--cert="+bad.Cert, "--key="+bad.Key, "--authority="+bad.Authority)
		require.Equal(t, 3, status)
		require.Contains(t, stderr, said)
	}

	s := serve(t, "--group="+filepath.Join(t.TempDir(), "members"), "--cert="+ours.Cert, "--key="+ours.Key, "--authority="+ours.Authority)
	good, err := os.ReadFile(ours.Cert)
	require.NoError(t, err)
	old := a.Issue(over)
	refused := 0
	fails := func(config *tls.Config, told, logged string) {
		c, err := client.New(client.Config{Members: []string{s.clients}, TLS: config})
		require.NoError(t, err)
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), tooltest.TooLong)
		defer cancel()
		attempt := make(chan error, 1)
		go func() { attempt <- c.Ready(ctx) }()
		require.Contains(t, s.says("client's connection failed before it said hello"), logged)
		for c.Status().Trouble == nil {
			time.Sleep(time.Millisecond)
		}
		require.ErrorContains(t, c.Status().Trouble, told)
		cancel()
		require.ErrorContains(t, <-attempt, told)
		refused++
		require.NotContains(t, s.shows("/metrics"), "\ndmutex_clients_refused_total 0\n")
	}
	trusting := func(own ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: a.Pool(), Certificates: own}
	}
	fails(trusting(old), "the member refuses the certificate of this client, and its log says why: ", "expired")
	fails(trusting(), "the member refuses the certificate of this client, and its log says why: ", "didn't provide a certificate")
	fails(nil, "no member answers there: ", "first record does not look like a TLS handshake")
	fails(&tls.Config{RootCAs: certtest.New(t).Pool()}, "the member's certificate is not believed: ", "bad certificate")
	require.NoError(t, tooltest.Acquire(t, dial(t, ours, s).Mutex("x")).Release())
	require.NoError(t, os.WriteFile(ours.Cert, good[:len(good)/2], 0o600)) // torn
	fails(trusting(a.Issue(host())), "the member cannot use its own certificate, and its log says why: ", "--cert=")
	require.Contains(t, s.unready(), "clients cannot connect: --cert=")
	require.NoError(t, os.Remove(ours.Cert))
	require.Contains(t, s.unready(), "no such file")
	fails(trusting(a.Issue(host())), "the member cannot use its own certificate", "no such file")
	require.NoError(t, os.WriteFile(ours.Cert, good, 0o600))
	dead, alive := issue(t, a, over), issue(t, a, host())
	copies := func(from, to tool.Security) {
		for one, other := range map[string]string{from.Cert: to.Cert, from.Key: to.Key} {
			text, err := os.ReadFile(one)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(other, text, 0o600))
		}
	}
	require.Contains(t, s.shows("/ready"), "ready: ")
	copies(dead, ours)
	require.Contains(t, s.unready(), "the certificate expired at ")
	copies(alive, ours)
	require.Contains(t, s.shows("/ready"), "ready: ")

	b := certtest.New(t) // the next authority
	theirs := issue(t, b, host())
	both, err := os.ReadFile(ours.Authority)
	require.NoError(t, err)
	next, err := os.ReadFile(theirs.Authority)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(ours.Authority, append(both, next...), 0o600))
	theirs.Authority = ours.Authority
	require.NoError(t, tooltest.Acquire(t, dial(t, theirs, s).Mutex("x")).Release())
}

// certificate makes a certificate and its authority.
func certificate(t *testing.T) (files tool.Security) {
	return issue(t, certtest.New(t), &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
}

// issue makes a certificate.
func issue(t *testing.T, a *certtest.Authority, template *x509.Certificate) tool.Security {
	own := a.Issue(template)
	secret, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	require.NoError(t, err)
	block := func(kind string, der []byte) string {
		return file(t, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	}
	return tool.Security{
		Cert: block("CERTIFICATE", own.Certificate[0]), Key: block("PRIVATE KEY", secret), Authority: block("CERTIFICATE", a.Cert.Raw),
	}
}

// file makes a file.
func file(t *testing.T, text string) (path string) {
	path = filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// startNATS starts a server with JetStream.
func startNATS(t *testing.T, options server.Options) *server.Server {
	options.Host, options.Port, options.NoLog, options.NoSigs = "127.0.0.1", server.RANDOM_PORT, true, true
	options.JetStream, options.StoreDir = true, t.TempDir()
	ns, err := server.NewServer(&options)
	require.NoError(t, err)
	ns.Start()
	t.Cleanup(ns.WaitForShutdown)
	t.Cleanup(ns.Shutdown)
	require.True(t, ns.ReadyForConnections(tooltest.TooLong))
	return ns
}

// Members and clients that know only the NATS servers and the group's name find each other.
func TestServeNATS(t *testing.T) {
	ns := startNATS(t, server.Options{})
	group := "--group=" + ns.ClientURL() + "/invoices"
	one, two := serve(t, group), serve(t, group)
	held := tooltest.Acquire(t, dial(t, tool.Security{}, one).Mutex("x"))
	_, err := dial(t, tool.Security{}, two).Mutex("x").TryAcquire(t.Context())
	require.ErrorIs(t, err, lock.ErrBusy)
	at, leave := nats.Broker.Visit(ns.ClientURL(), "invoices", "test", tool.Security{})
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
		{"serve --group=postgres://u:secret@h/d --listen=127.0.0.1:0", "give --meet=HOST:PORT, where the other members connect"},
		{"serve --group=postgres://u:secret@h/d --listen=127.0.0.1:0 --meet=10.0.0.9:0", "--meet=10.0.0.9:0 is open to other machines: give --cert"},
		{"serve --group=postgres://u:secret@h/d --meet=127.0.0.1:0", "give --listen=HOST:PORT"},
		{"serve --group=g --listen=127.0.0.1:0 --meet=127.0.0.1:0", "--meet and --advertise are for a group at kube://"},
		{"serve --group=consul://h/k --listen=:0", "no store for consul://"},
		{"serve --group=g --listen=127.0.0.1:0 --algorithm=paxos", "--algorithm=paxos: choose one of central"},
		{"serve --group=g --listen=127.0.0.1:0 --session=20s", "--session=20s: choose 100ms to --lease, which is 10s"},
		{"serve --group=g --listen=127.0.0.1:0 --lease=2h", "--lease=2h0m0s: choose 100ms to 1h"},
		{"serve --group=g --listen=127.0.0.1:0 --algorithm=broken", "--algorithm=broken: choose one of central"},
		{"serve --group=g --listen=127.0.0.1:0 --creds=c", "--creds, --nkey and --inbox are for NATS"},
		{"serve --group=nats://h/g --creds=c --nkey=k", "--creds and --nkey can't be used together"},
		{"serve --group=nats://h/g --listen=127.0.0.1:0 --authority=a", "--cert, --key and --authority belong together"},
		{"serve --group=g --listen=127.0.0.1:0 --grace=-1s", "--grace=-1s: choose 0s or more"},
		{"serve --group=g --listen=127.0.0.1:0 --clients=0", "--clients=0: choose 1 or more"},
		{"serve --group=g --listen=127.0.0.1:0 --name=\x1b", `--name="\x1b": choose printable text of at most 64 bytes`},
	})
	record := filepath.Join(t.TempDir(), "g")
	for _, c := range [][2]string{
		{"--listen=127.0.0.1:0 --http=127.0.0.1:99999", "serve: --http=127.0.0.1:99999: "},
		{"--listen=127.0.0.1:99999", "serve: --listen=127.0.0.1:99999: "},
		{"--listen=127.0.0.1:0 --cert=c --key=k --authority=/no/such", "no such file"},
	} {
		status, _, said := run(append([]string{"serve", "--group=" + record}, strings.Fields(c[0])...)...)
		require.Equal(t, tool.StatusIncomplete, status)
		require.Contains(t, said, c[1])
		require.NoFileExists(t, record, "it has not joined")
	}
	tool.NATS = nil
	defer func() { tool.NATS = nats.Broker }()
	_, _, said := run("serve", "--group=nats://h/b", "--listen=:0")
	require.Contains(t, said, "--group: "+tool.ErrNoNATS.Error())
}
