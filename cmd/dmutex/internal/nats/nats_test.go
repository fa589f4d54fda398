package nats

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/internal/kit/certtest"
)

// An error names the servers without the secrets in their URLs.
func TestServersAreNamedWithoutSecrets(t *testing.T) {
	for servers, want := range map[string]string{
		"nats://me:secret@127.0.0.1:1":                      "nats server at nats://127.0.0.1:1: nats: no servers",
		"secret@127.0.0.1:1":                                "nats server at 127.0.0.1:1: nats: no servers",
		"tls://127.0.0.1:1,nats://me:secret@secret@[::1]:1": "nats server at tls://127.0.0.1:1,nats://[::1]:1: nats: no servers",
		"nats://me:secret@[::1":                             "nats server at nats://[::1: ",
	} {
		_, err := dial(servers, "", usual, tool.Security{})
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}

func start(t *testing.T, options server.Options) (url string) {
	options.Host, options.Port, options.NoLog, options.NoSigs = "127.0.0.1", server.RANDOM_PORT, true, true
	ns, err := server.NewServer(&options)
	require.NoError(t, err)
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	ns.Start()
	require.True(t, ns.ReadyForConnections(30*time.Second))
	return ns.ClientURL()
}

func file(t *testing.T, content []byte) string {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

func requireConnects(t *testing.T, url string, security tool.Security) *nats.Conn {
	_, err := dial(url, "test", usual, tool.Security{})
	require.Error(t, err, "the server lets anybody in")
	nc, err := dial(url, "test", usual, security)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// A user of decentralized authentication connects with its credentials, and reads where it may.
func TestCredentials(t *testing.T) {
	pair := func(make func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		key, err := make()
		require.NoError(t, err)
		public, err := key.PublicKey()
		require.NoError(t, err)
		return key, public
	}
	operator, operatorID := pair(nkeys.CreateOperator)
	account, accountID := pair(nkeys.CreateAccount)
	user, userID := pair(nkeys.CreateUser)
	claims := jwt.NewAccountClaims(accountID)
	accountToken, err := claims.Encode(operator)
	require.NoError(t, err)
	permitted := jwt.NewUserClaims(userID)
	permitted.Sub.Allow.Add("_INBOX.alice.>")
	userToken, err := permitted.Encode(account)
	require.NoError(t, err)
	seed, err := user.Seed()
	require.NoError(t, err)
	creds, err := jwt.FormatUserConfig(userToken, seed)
	require.NoError(t, err)
	operatorClaims := jwt.NewOperatorClaims(operatorID)
	resolver := new(server.MemAccResolver)
	require.NoError(t, resolver.Store(accountID, accountToken))
	url := start(t, server.Options{TrustedOperators: []*jwt.OperatorClaims{operatorClaims}, AccountResolver: resolver})

	nc := requireConnects(t, url, tool.Security{Creds: file(t, creds), Inbox: "_INBOX.alice"})
	inbox, err := nc.SubscribeSync(nc.NewInbox())
	require.NoError(t, err)
	require.NoError(t, nc.Publish(inbox.Subject, nil))
	_, err = inbox.NextMsg(30 * time.Second)
	require.NoError(t, err)
}

func TestNKey(t *testing.T) {
	user, err := nkeys.CreateUser()
	require.NoError(t, err)
	public, err := user.PublicKey()
	require.NoError(t, err)
	seed, err := user.Seed()
	require.NoError(t, err)
	url := start(t, server.Options{Nkeys: []*server.NkeyUser{{Nkey: public}}})
	requireConnects(t, url, tool.Security{NKey: file(t, seed)})
	_, err = dial(url, "test", usual, tool.Security{NKey: "missing"})
	require.ErrorContains(t, err, "--nkey=missing: ")
}

// A server whose certificate a private authority has signed, and that wants none of its clients.
func TestAuthorityAlone(t *testing.T) {
	authority := certtest.New(t)
	own := authority.Issue(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	url := start(t, server.Options{TLS: true, TLSTimeout: 30, TLSConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own},
	}})
	path := file(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Cert.Raw}))
	nc := requireConnects(t, url, tool.Security{Authority: path})
	require.True(t, nc.TLSRequired())
}

// A server that hangs is left within half a lease.
func TestPings(t *testing.T) {
	nc, err := dial(start(t, server.Options{}), "test", 8*time.Second, tool.Security{})
	require.NoError(t, err)
	defer nc.Close()
	require.Equal(t, time.Second, nc.Opts.PingInterval)
	require.Equal(t, 2, nc.Opts.MaxPingsOut)
}
