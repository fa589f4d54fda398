package kubestore

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/kubetest"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/storetest"
)

func open(t *testing.T, s *kubetest.Server, name string) store.Store {
	t.Helper()
	record, err := Open(t.Context(), Config{Server: s.URL, Namespace: s.Namespace}, name)
	require.NoError(t, err)
	return record
}

// A record of text can be read by kubectl, and one of other bytes is kept, too.
func TestTextAndBytes(t *testing.T) {
	s := kubetest.New(t)
	r := open(t, s, "invoices")
	rev := store.Revision("")
	for _, value := range []string{"members 1 2 <&>\n", "\xff\x00", "\x00", "\u2028"} {
		var err error
		rev, err = r.Swap(t.Context(), []byte(value), rev)
		require.NoError(t, err)
		got, _, err := r.Load(t.Context())
		require.NoError(t, err)
		require.Equal(t, value, string(got))
	}
	_, err := r.Swap(t.Context(), []byte("members 1 2\n"), rev)
	require.NoError(t, err)
	require.Equal(t, "members 1 2\n", s.Lease("invoices")["metadata"].(map[string]any)["annotations"].(map[string]any)["dmutex/record"])
}

// What only an operator can mend is said at once, and how.
func TestUnusable(t *testing.T) {
	for name, tt := range map[string]struct {
		broken func(*kubetest.Server)
		says   string
	}{
		"no permission":   {func(s *kubetest.Server) { s.Allow() }, "give the service account a Role with get, create and update of leases: 403 Forbidden"},
		"no user":         {func(s *kubetest.Server) { s.Admit("secret") }, "the server does not know this user: 401 Unauthorized"},
		"another program": {func(s *kubetest.Server) { s.Put("invoices", map[string]any{"control-plane": "x"}) }, "another program uses it, so choose another name"},
	} {
		t.Run(name, func(t *testing.T) {
			s := kubetest.New(t)
			r := open(t, s, "invoices")
			rev, err := r.Swap(t.Context(), []byte("value"), "")
			require.NoError(t, err)
			tt.broken(s)
			_, _, err = r.Load(t.Context())
			require.ErrorContains(t, err, tt.says)
			require.ErrorIs(t, err, store.ErrUnusable)
			if name != "another program" {
				storetest.Unusable(t, r, rev)
			}
			_, err = Open(t.Context(), Config{Server: s.URL, Namespace: s.Namespace}, "invoices")
			require.ErrorContains(t, err, tt.says)
		})
	}
	s := kubetest.New(t)
	_, err := Open(t.Context(), Config{Server: s.URL, Namespace: "other"}, "invoices")
	require.ErrorIs(t, err, store.ErrUnusable)
	other := httptest.NewServer(http.NotFoundHandler()) // which has no Leases: its 404 is no missing record
	defer other.Close()
	_, err = Open(t.Context(), Config{Server: other.URL, Namespace: "locks"}, "invoices")
	require.ErrorIs(t, err, store.ErrUnusable)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>welcome")) }))
	defer page.Close()
	_, err = Open(t.Context(), Config{Server: page.URL, Namespace: "locks"}, "invoices")
	require.ErrorContains(t, err, "is no API server of Kubernetes")
}

// An error of the server that passes is no conflict, and not unusable.
func TestPassingErrors(t *testing.T) {
	var code atomic.Int32
	inner := kubetest.New(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := code.Load(); c != 0 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(int(c))
			return
		}
		inner.ServeHTTP(w, r)
	}))
	defer s.Close()
	r, err := Open(t.Context(), Config{Server: s.URL + "/", Namespace: inner.Namespace}, "invoices")
	require.NoError(t, err)
	rev, err := r.Swap(t.Context(), []byte("value"), "")
	require.NoError(t, err)
	for _, c := range []int32{429, 500, 503, 504} {
		code.Store(c)
		_, _, loading := r.Load(t.Context())
		_, swapping := r.Swap(t.Context(), []byte("value"), rev)
		for _, err := range []error{loading, swapping} {
			require.Error(t, err)
			require.NotErrorIs(t, err, store.ErrConflict)
			require.NotErrorIs(t, err, store.ErrUnusable)
		}
	}
}

// Names that Kubernetes does not allow, and Configs that lead nowhere, are refused before anything is sent.
func TestRefused(t *testing.T) {
	for _, name := range []string{"", "Invoices", "a/b", "../x", "a_b", "-a", "a-", ".", "a..b", "ä", strings.Repeat("a", 254)} {
		_, err := Open(t.Context(), Config{Server: "http://127.0.0.1:1", Namespace: "locks"}, name)
		require.ErrorContains(t, err, "is no name of a Lease", name)
	}
	for _, server := range []string{"127.0.0.1:8001", "ftp://x", "https://", "::"} {
		_, err := Open(t.Context(), Config{Server: server, Namespace: "locks"}, "invoices")
		require.ErrorContains(t, err, "is no URL of an API server")
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := Open(t.Context(), Config{}, "invoices")
	require.ErrorContains(t, err, "this process runs in no pod")
	_, err = Open(t.Context(), Config{Server: "http://127.0.0.1:1"}, "invoices")
	require.ErrorContains(t, err, "set Config.Server and Config.Namespace")
}

// In a pod the token is read for each request, and the server's certificate is checked.
func TestInCluster(t *testing.T) {
	inner := kubetest.New(t)
	s := httptest.NewTLSServer(inner)
	defer s.Close()
	dir := t.TempDir()
	write := func(file, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	write("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	write("token", "first\n")
	c, err := inAccount(dir)
	require.NoError(t, err)
	inner.Admit("first")
	r, err := Open(t.Context(), Config{Server: s.URL, Client: c, Namespace: inner.Namespace}, "invoices")
	require.NoError(t, err)
	rev, err := r.Swap(t.Context(), []byte("value"), "")
	require.NoError(t, err)
	inner.Admit("second")
	storetest.Unusable(t, r, rev)
	write("token", "second")
	_, _, err = r.Load(t.Context())
	require.NoError(t, err)

	stranger := httptest.NewTLSServer(inner)
	defer stranger.Close()
	stranger.TLS.Certificates = nil
	_, err = Open(context.Background(), Config{Server: strings.Replace(stranger.URL, "127.0.0.1", "localhost", 1), Client: c, Namespace: inner.Namespace}, "invoices")
	require.Error(t, err)

	write("ca.crt", "no certificate")
	_, err = inAccount(dir)
	require.ErrorContains(t, err, "has no certificate in PEM")
	_, err = inAccount(filepath.Join(dir, "missing"))
	require.ErrorContains(t, err, "this process runs in no pod")
}
