package s3

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/integration/servers"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/s3store"
	"github.com/dmutex/dmutex/store/storetest"
)

// A fake is gofakes3 with its objects in memory, as its objects in a file may be read while they change. When it has crashed, all
// connections are cut.
type fake struct {
	address string
	server  *httptest.Server
	objects *s3mem.Backend
	down    atomic.Bool
}

func startFake(t *testing.T) *fake {
	f := &fake{objects: s3mem.New()}
	require.NoError(t, f.objects.CreateBucket("locks"))
	serve := gofakes3.New(f.objects, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.down.Load() {
			panic(http.ErrAbortHandler)
		}
		serve.ServeHTTP(w, r)
	}))
	f.address = f.server.Listener.Addr().String()
	t.Cleanup(f.server.Close)
	return f
}

func (f *fake) crash() {
	f.down.Store(true)
	f.server.CloseClientConnections()
}

func (f *fake) start() { f.down.Store(false) }

func open(t *testing.T, address, name string) store.Store {
	s, err := s3store.Open(t.Context(), s3store.Config{
		Endpoint: "http://" + address, Bucket: "locks",
		Credentials: func(context.Context) (s3store.Credentials, error) {
			return s3store.Credentials{AccessKeyID: "web", SecretAccessKey: "secret"}, nil
		},
	}, name)
	require.NoError(t, err)
	return s
}

// The store keeps its contract, on a server that others have written.
func TestStore(t *testing.T) {
	f := startFake(t)
	storetest.Run(t, func(t *testing.T, group string) store.Store { return open(t, f.address, group) })
	storetest.RunServer(t, f.address,
		func(t *testing.T, address, group string) store.Store { return open(t, address, group) },
		func(t *testing.T, group string) {
			_, err := f.objects.DeleteObject("locks", group)
			require.NoError(t, err)
		})
}

// The records are registers while their server crashes.
func TestRegister(t *testing.T) {
	f := startFake(t)
	var harms []func() bool
	for range 8 {
		harms = append(harms, func() bool {
			f.crash()
			time.Sleep(20 * time.Millisecond)
			f.start()
			return false
		})
	}
	servers.Register(t, 20_000, func(_ int, name string) store.Store { return open(t, f.address, name) }, harms...)
}

// Three members go on through an outage of the service that is longer than a lease, and lose what they held. Nobody
// holds a lock beside another, and fences rise.
func TestOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	f := startFake(t)
	servers.Outage(t, func() store.Store { return open(t, f.address, "group") }, f.crash, f.start)
}
