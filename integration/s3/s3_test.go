package s3

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/integration/servers"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/s3store"
	"github.com/dmutex/dmutex/store/storetest"
	"github.com/dmutex/dmutex/transport/tcplink"
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
	const lease = 2 * time.Second
	f := startFake(t)
	var mu sync.Mutex
	inside, fences, holds := map[string]lock.Held{}, map[string]uint64{}, 0
	use := func(ctx context.Context, name string, m lock.Mutex) {
		for ctx.Err() == nil {
			h, err := m.Acquire(ctx)
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("%s: %v", name, err)
				}
				return
			}
			mu.Lock()
			if other := inside[name]; other != nil && other.Err() == nil && h.Err() == nil || h.Fence() <= fences[name] {
				t.Errorf("two hold %s, or a fence falls: %d after %d", name, h.Fence(), fences[name])
			}
			inside[name], fences[name], holds = h, h.Fence(), holds+1
			mu.Unlock()
			time.Sleep(100 * time.Microsecond)
			mu.Lock()
			if inside[name] == h {
				delete(inside, name)
			}
			mu.Unlock()
			_ = h.Release()
		}
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return holds
	}
	ctx, stop := context.WithCancel(t.Context())
	var using sync.WaitGroup
	for i := range 3 {
		link, err := tcplink.New(tcplink.Config{Listen: "127.0.0.1:0"})
		require.NoError(t, err)
		n, err := node.Open(t.Context(), open(t, f.address, "group"), link, node.Config{Algorithm: central.Witnessed, Lease: lease, Name: fmt.Sprint(i)})
		require.NoError(t, err)
		defer n.Close(context.Background())
		for _, name := range []string{"a", "b"} {
			using.Go(func() { use(ctx, name, n.Mutex(name)) })
		}
	}
	for before := 0; before < 10_000; before = count() {
		time.Sleep(10 * time.Millisecond)
	}
	f.crash()
	time.Sleep(2 * lease)
	before, began := count(), time.Now()
	f.start()
	for count() < before+1000 {
		require.Less(t, time.Since(began), time.Minute)
		time.Sleep(time.Millisecond)
	}
	t.Logf("%d holds; 1,000 more %v after the outage", before, time.Since(began).Round(10*time.Millisecond))
	stop()
	using.Wait()
}
