package mail_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/transport/memlink"
)

// BenchmarkAsk sends a question to two peers and waits for their answers, in groups
// of several sizes: in a large one Flush has more peers to look at.
func BenchmarkAsk(b *testing.B) {
	for _, members := range []int{3, 25, 100} {
		b.Run(fmt.Sprint(members), func(b *testing.B) {
			network, err := memlink.New(memlink.Config{})
			require.NoError(b, err)
			answered := make(chan struct{}, 2)
			var all []*asker
			for self := range dmutex.NodeID(members) {
				a := &asker{fail: b.Error, answered: answered}
				cfg := mail.Config{Life: uint64(self) + 1, Link: network.Link(self + 1), Handler: a}
				for peer := range dmutex.NodeID(members) {
					if peer != self {
						cfg.Peers = append(cfg.Peers, peer+1)
					}
				}
				a.Mail, err = mail.New(cfg)
				require.NoError(b, err)
				require.NoError(b, a.Open())
				all = append(all, a)
			}
			all[0].ask(2, 3) // now they have met
			b.ReportAllocs()
			for b.Loop() {
				all[0].ask(2, 3)
			}
			b.StopTimer()
			var closing sync.WaitGroup
			for _, a := range all {
				closing.Go(func() { _ = a.Close(b.Context()) })
			}
			closing.Wait()
		})
	}
}
