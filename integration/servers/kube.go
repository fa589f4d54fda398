//go:build unix

package servers

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Kube is the API server of Kubernetes, with etcd, and nothing else of a cluster: it keeps objects, and nobody acts on
// them.
type Kube struct {
	Address string

	t     *testing.T
	dir   string
	args  []string
	p     *process
	admin *http.Client
}

// KubeProgram returns the path of the API server, or an error that says how to install it.
func KubeProgram() (string, error) {
	program, err := exec.LookPath("kube-apiserver")
	if err != nil {
		return "", errors.New("kube-apiserver is not installed, so kubestore is tested with an imitation only (https://dl.k8s.io/v1.37.2/bin/linux/amd64/kube-apiserver)")
	}
	return program, nil
}

// StartKube starts a server that knows the service accounts of these namespaces, which it makes, by the token
// "NAMESPACE:NAME". They may do what roles allow. It runs until the test ends. StartKube skips the test
// where the programs are not installed.
func StartKube(t *testing.T, namespaces ...string) *Kube {
	program, err := KubeProgram()
	if err != nil {
		t.Skip(err)
	}
	data, _ := StartEtcd(t, t.TempDir())
	k := &Kube{t: t, dir: t.TempDir()}
	file := func(name string, content []byte) string {
		path := filepath.Join(k.dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	signing := file("signing.key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	tokens := "admin,admin,1,system:masters\n"
	for _, n := range namespaces {
		tokens += n + ":dmutex,system:serviceaccount:" + n + ":dmutex,2,system:serviceaccounts\n"
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, port, _ := net.SplitHostPort(l.Addr().String())
	k.Address = l.Addr().String()
	k.args = []string{
		"--etcd-servers", "http://" + data, "--secure-port", port, "--bind-address", "127.0.0.1", "--cert-dir", k.dir,
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", signing,
		"--service-account-signing-key-file", signing, "--service-cluster-ip-range", "10.0.0.0/24",
		"--authorization-mode", "RBAC", "--token-auth-file", file("tokens.csv", []byte(tokens)),
	}
	k.start(program)
	for _, n := range namespaces {
		k.Apply("/api/v1/namespaces", []byte(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "`+n+`"}}`))
	}
	return k
}

func (k *Kube) start(program string) {
	k.p, _ = start(k.t, k.dir, nil, "KILL", "Serving securely on", program, k.args...)
	k.admin = k.Client("admin")
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		r, err := k.admin.Get("https://" + k.Address + "/readyz")
		if err == nil {
			_ = r.Body.Close()
		}
		if err == nil && r.StatusCode == http.StatusOK {
			return
		}
		require.Less(k.t, time.Since(began), time.Minute)
	}
}

// Pause stops the server for a time.
func (k *Kube) Pause(d time.Duration) { k.p.pause(d) }

// Crash kills the server.
func (k *Kube) Crash() { k.p.stop() }

// Start starts a server that has crashed again.
func (k *Kube) Start() {
	program, err := KubeProgram()
	require.NoError(k.t, err)
	k.start(program)
}

// Client returns a client that has this token. It sends each request once, over HTTP/1.1.
func (k *Kube) Client(token string) *http.Client {
	authority, err := os.ReadFile(filepath.Join(k.dir, "apiserver.crt"))
	require.NoError(k.t, err)
	roots := x509.NewCertPool()
	require.True(k.t, roots.AppendCertsFromPEM(authority))
	t := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots},
		TLSNextProto:      map[string]func(string, *tls.Conn) http.RoundTripper{},
		DisableKeepAlives: token == "admin",
	}
	k.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: bearer{t, token}}
}

type bearer struct {
	http.RoundTripper
	token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(r)
}

// Apply makes an object below the path, from YAML or JSON, as an administrator. A field that the server does not know is an
// error.
func (k *Kube) Apply(path string, object []byte) {
	k.t.Helper()
	r, err := k.admin.Post("https://"+k.Address+path+"?fieldValidation=Strict", "application/yaml", bytes.NewReader(object))
	require.NoError(k.t, err)
	defer r.Body.Close()
	said, err := io.ReadAll(r.Body)
	require.NoError(k.t, err)
	require.Equal(k.t, http.StatusCreated, r.StatusCode, "%s\n%s", said, object)
}

// Delete deletes an object as an administrator.
func (k *Kube) Delete(path string) {
	k.t.Helper()
	request, err := http.NewRequest(http.MethodDelete, "https://"+k.Address+path, nil)
	require.NoError(k.t, err)
	r, err := k.admin.Do(request)
	require.NoError(k.t, err)
	require.NoError(k.t, r.Body.Close())
	require.Equal(k.t, http.StatusOK, r.StatusCode)
}
