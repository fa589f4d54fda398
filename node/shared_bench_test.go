package node_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/lock"
)

// BenchmarkShared measures over TCP: join is one more reader of a node that shares the lock, and
// the others are 64 goroutines of two nodes over 100 names, which take each lock to read it, or in one
// of a hundred cases to write. In exclusive the readers take it alone, too.
func BenchmarkShared(b *testing.B) {
	b.Run("join", func(b *testing.B) {
		nodes := tcpGroup(b, central.New, 2, 0)
		m := nodes[1].Mutex(atFirst(nodes)).Shared()
		h, err := m.Acquire(b.Context())
		require.NoError(b, err)
		before := nodes[1].Status().Sent
		b.ReportAllocs()
		for b.Loop() {
			h, err := m.Acquire(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			h.Release()
		}
		require.Equal(b, before, nodes[1].Status().Sent)
		require.NoError(b, h.Release())
	})
	for _, name := range []string{"exclusive", "shared"} {
		b.Run(name, func(b *testing.B) {
			nodes := tcpGroup(b, central.New, 2, 0)
			b.SetParallelism(64 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					m := nodes[rand.IntN(2)].Mutex(fmt.Sprint("lock ", rand.IntN(100)))
					var way lock.Mutex = m
					if name == "shared" && rand.IntN(100) > 0 {
						way = m.Shared()
					}
					h, err := way.Acquire(b.Context())
					if err != nil {
						b.Error(err)
						return
					}
					h.Release()
				}
			})
		})
	}
}
