package servers

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BadNetwork returns an address that leads to a server through a network. Once it has turned bad, what is sent is up to 3 ms
// late, and once in some hundred messages a connection ends in the middle of one. Turn is a harm of Register.
func BadNetwork(t *testing.T, server string) (address string, turn func() (lost bool)) {
	bad := new(atomic.Bool)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for seed := uint64(0); ; seed += 2 {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server)
			if err != nil {
				_ = near.Close()
				continue
			}
			end := sync.OnceFunc(func() { _, _ = near.Close(), far.Close() })
			go pass(near, far, bad, rand.New(rand.NewPCG(seed, 0)), end)
			go pass(far, near, bad, rand.New(rand.NewPCG(seed+1, 0)), end)
		}
	}()
	return l.Addr().String(), func() bool { bad.Store(true); return false }
}

func pass(from io.Reader, to io.Writer, bad *atomic.Bool, luck *rand.Rand, end func()) {
	defer end()
	some := make([]byte, 32<<10)
	for {
		n, err := from.Read(some)
		if bad.Load() {
			time.Sleep(time.Duration(luck.Int64N(int64(3 * time.Millisecond))))
			if luck.IntN(300) == 0 {
				_, _ = to.Write(some[:n/2])
				return
			}
		}
		if _, failed := to.Write(some[:n]); err != nil || failed != nil {
			return
		}
	}
}
