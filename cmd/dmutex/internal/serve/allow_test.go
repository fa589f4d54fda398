package serve

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/nats"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
	"github.com/dmutex/dmutex/internal/kit/certtest"
	"github.com/dmutex/dmutex/lock"
)

func requireTakes(t *testing.T, c *client.Client, names ...string) {
	t.Helper()
	for _, name := range names {
		require.NoError(t, tooltest.Acquire(t, c.Mutex(name)).Release())
	}
}

func requireRefused(t *testing.T, m lock.Mutex, why string) {
	t.Helper()
	_, err := m.TryAcquire(t.Context())
	require.ErrorIs(t, err, client.ErrRefused)
	require.ErrorContains(t, err, why)
}

// A client takes the locks that a line with a name of its certificate allows, and no others. The
// member counts and logs those that it refuses.
func TestAllowTLS(t *testing.T) {
	a := certtest.New(t)
	local := []net.IP{net.IPv4(127, 0, 0, 1)}
	own := issue(t, a, &x509.Certificate{IPAddresses: local})
	path := file(t, "# who may lock what\n\n"+
		"cert:alice lock invoices/*\n* share permits#*\n cert:dba team\tlock\tdb one \ncert:bob.example lock reports\ncert:bob share invoices/*\ncert:spiffe://corp/jobs/* lock jobs/*\n* lock public/*")
	s := serve(t, "--group="+filepath.Join(t.TempDir(), "members"), "--cert="+own.Cert, "--key="+own.Key, "--authority="+own.Authority, "--allow="+path)
	as := func(template *x509.Certificate) *client.Client { return dial(t, issue(t, a, template), s) }
	alice := as(&x509.Certificate{Subject: pkix.Name{CommonName: "alice"}})
	bob := as(&x509.Certificate{Subject: pkix.Name{CommonName: "bob"}, DNSNames: []string{"bob.example"}})
	job, err := url.Parse("spiffe://corp/jobs/7")
	require.NoError(t, err)

	requireTakes(t, alice, "invoices/", "invoices/1", "public/x")
	requireTakes(t, bob, "reports", "public/x")
	requireTakes(t, as(&x509.Certificate{Subject: pkix.Name{CommonName: "dba team"}}), "db one")
	for _, reader := range []*client.Client{alice, bob} {
		require.NoError(t, tooltest.Acquire(t, reader.Mutex("invoices/1").Shared()).Release())
	}
	requireRefused(t, bob.Mutex("invoices/1"), `cert:bob may not take the lock "invoices/1": to change that, add the line "cert:bob lock invoices/1"`)
	requireRefused(t, bob.Mutex("db one").Shared(), `cert:bob may not share the lock "db one": to change that, add the line "cert:bob share db one"`)
	requireTakes(t, as(&x509.Certificate{URIs: []*url.URL{job}}), "jobs/1")
	const change = " to the file of --allow at each member, and send SIGHUP"
	requireRefused(t, alice.Mutex("invoices"), `cert:alice may not take the lock "invoices": to change that, add the line "cert:alice lock invoices"`+change)
	requireRefused(t, alice.Mutex("reports"), `cert:alice may not take the lock "reports"`)
	requireRefused(t, bob.Mutex("reports/1"), `cert:bob may not take the lock "reports/1"`)
	requireRefused(t, as(&x509.Certificate{}).Mutex("reports"), `a client without certificate may not take the lock "reports": to change that, add the line "* lock reports"`)
	require.Contains(t, s.says("client refused"), `lock=invoices/1 err="cert:bob may not`)
	require.Contains(t, s.shows("/metrics"), "\ndmutex_clients_refused_total 6\n")
	if runtime.GOOS == "windows" {
		return // it has no SIGHUP
	}

	// A file with an error changes nothing. Another one is in force at once, for what is taken from then on.
	held := tooltest.Acquire(t, alice.Mutex("invoices/1"))
	require.NoError(t, os.WriteFile(path, []byte("cert:bob lock invoices/*\nnonsense"), 0o600))
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
	require.Contains(t, s.says("the rules are as before"), `line 2, \"nonsense\"`)
	requireRefused(t, bob.Mutex("invoices/2"), "cert:bob may not")
	requireTakes(t, alice, "invoices/2")
	require.NoError(t, os.WriteFile(path, []byte("cert:bob lock invoices/*"), 0o600))
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
	s.says("is in force")
	requireTakes(t, bob, "invoices/2")
	requireRefused(t, alice.Mutex("invoices/2"), "cert:alice may not")
	require.NoError(t, held.Err())
	require.NoError(t, held.Release())
	requireRefused(t, as(&x509.Certificate{Subject: pkix.Name{CommonName: "carol"}}).Mutex("x"), `cert:carol may take no lock: to change that, add the line "cert:carol lock NAME"`)
}

// An operator of NATS has signed an account for a group and its clients. Each user has the
// permissions of docs/security.md and nothing else.
func TestAllowNATS(t *testing.T) {
	pair := func(kind nkeys.PrefixByte) (nkeys.KeyPair, string) {
		key, err := nkeys.CreatePair(kind)
		require.NoError(t, err)
		public, err := key.PublicKey()
		require.NoError(t, err)
		return key, public
	}
	operator, operatorID := pair(nkeys.PrefixByteOperator)
	resolver := new(server.MemAccResolver)
	account := func(mayStore bool) (nkeys.KeyPair, string) {
		key, id := pair(nkeys.PrefixByteAccount)
		claims := jwt.NewAccountClaims(id)
		if mayStore {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
		}
		token, err := claims.Encode(operator)
		require.NoError(t, err)
		require.NoError(t, resolver.Store(id, token))
		return key, id
	}
	_, system := account(false)
	locks, _ := account(true)
	trusted := jwt.NewOperatorClaims(operatorID)
	trusted.SystemAccount = system
	url := startNATS(t, server.Options{TrustedOperators: []*jwt.OperatorClaims{trusted}, AccountResolver: resolver, SystemAccount: system}).ClientURL()
	creds := func(publish, subscribe []string) string {
		key, id := pair(nkeys.PrefixByteUser)
		claims := jwt.NewUserClaims(id)
		claims.Pub.Allow.Add(publish...)
		claims.Sub.Allow.Add(subscribe...)
		token, err := claims.Encode(locks)
		require.NoError(t, err)
		seed, err := key.Seed()
		require.NoError(t, err)
		text, err := jwt.FormatUserConfig(token, seed)
		require.NoError(t, err)
		return file(t, string(text))
	}
	member := creds([]string{
		"dmutex.invoices.>", "$KV.dmutex.invoices", "$KV.dmutex.invoices.read", "_INBOX.>",
		"$JS.API.INFO", "$JS.API.STREAM.INFO.KV_dmutex", "$JS.API.STREAM.CREATE.KV_dmutex",
		"$JS.API.STREAM.MSG.GET.KV_dmutex",
	}, []string{"dmutex.invoices.>", "dmutex-clients.invoices.>", "_INBOX.>"})

	s := start(t, serveCommand("--group="+url+"/invoices", "--creds="+member, "--allow="+file(t, "nats:alice lock invoices/*")))
	visit := func(user string) *client.Client {
		at, leave := nats.Broker.Visit(url, "invoices", user, tool.Security{
			Creds: creds([]string{"dmutex-clients.invoices.>"}, []string{"_INBOX." + user + ".>"}), Inbox: "_INBOX." + user,
		})
		t.Cleanup(leave)
		c, err := client.New(at)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
	alice := visit("alice")
	requireTakes(t, alice, "invoices/1")
	requireRefused(t, alice.Mutex("reports"), `nats:alice, which is the second word of its inbox, may not take the lock "reports"`)
	requireRefused(t, visit("bob").Mutex("invoices/1"), "nats:bob, which is the second word of its inbox, may take no lock")
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, s.cmd.Wait())
}

// SIGHUP ends no member, even if there is no file to read.
func TestHangup(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it has no SIGHUP")
	}
	s := serve(t, "--group="+filepath.Join(t.TempDir(), "members"))
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
	s.says("there is none")
	requireTakes(t, dial(t, tool.Security{}, s), "x")
}

// A file that is not there, or has an error, is refused, and so are rules for clients that cannot come.
func TestAllowFile(t *testing.T) {
	for _, c := range [][2]string{
		{"", "no line allows anything, such as cert:alice lock invoices/*"},
		{"# cert:a lock x", "no line allows anything"},
		{"cert: lock x", `WHO is cert:NAME, nats:USER or *`},
		{"* lock x\ncert:a lock", `: line 2, "cert:a lock": write WHO lock NAME`},
		{"* shares x", `: line 1, "* shares x": write WHO lock NAME or WHO share NAME`},
		{"* lock x # all", `"* lock x # all": write a comment in a line of its own`},
		{"* lock x\t# all", "write a comment in a line of its own"},
		{"cert:dba lock team lock x", "could mean two things"},
		{"* share lock", "could mean two things"},
		{"alice lock x", `"alice lock x": WHO is cert:NAME, nats:USER or *`},
		{"cert:a lock x", "clients have certificates only with --listen and --cert"},
		{"nats:a lock x", "clients are users of NATS only if --group is at NATS"},
	} {
		status, _, said := tooltest.Run(new(grammar), "", "serve", "--group=g", "--listen=127.0.0.1:0", "--allow="+file(t, c[0]))
		require.Equal(t, tool.StatusIncomplete, status)
		require.Contains(t, said, c[1])
	}
	_, _, said := tooltest.Run(new(grammar), "", "serve", "--group=g", "--listen=127.0.0.1:0", "--allow=/no/such")
	require.Contains(t, said, "--allow: open /no/such")

	// Nor are files of TLS ignored.
	for _, where := range [][]string{{"--group=nats://127.0.0.1:1/g"}, {"--group=tls://127.0.0.1:1/g"}, {"--group=g", "--listen=127.0.0.1:0", "--cert=c", "--key=k"}} {
		status, _, said := tooltest.Run(new(grammar), "", append([]string{"serve", "--authority=/no/such"}, where...)...)
		require.Equal(t, tool.StatusIncomplete, status)
		require.Contains(t, said, "open /no/such", where)
	}
}
