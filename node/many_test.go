package node_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport/memlink"
)

// BenchmarkManyHeld reports for how long others' grants stop when one member joins, leaves or dies
// while two others hold many locks, all in this process; how late the mutex of a group is got
// meanwhile, for which renewals and signs of life wait; how late the machine wakes a goroutine meanwhile that waits
// for nothing but a millisecond; and how many of the locks are lost. It is run with -benchtime 1x.
func BenchmarkManyHeld(b *testing.B) {
	for _, held := range []int{0, 10_000, 30_000, 100_000, 200_000, 400_000} {
		b.Run(fmt.Sprint(held), func(b *testing.B) {
			for b.Loop() {
				manyHeld(b, held)
			}
		})
	}
}

// A many is a member that notes how many members the last view had that acted.
type many struct {
	*node.Node
	cut     *atomic.Bool
	members atomic.Int64
}

func manyHeld(b *testing.B, count int) {
	net, err := memlink.New(memlink.Config{})
	require.NoError(b, err)
	var record store.Memory
	open := func() *many {
		m := &many{cut: new(atomic.Bool)}
		link := outagetest.Link{DynamicLink: net.Link(dmutex.None), Cut: m.cut}
		m.Node, err = node.Open(b.Context(), &record, link, node.Config{Algorithm: central.Witnessed, Observer: &node.Observer{
			View: func(v node.ViewStatus) { m.members.Store(int64(len(v.Members))) },
		}})
		require.NoError(b, err)
		return m
	}
	all := []*many{open(), open()}
	are := func(n int64) bool { return all[0].members.Load() == n && all[1].members.Load() == n }
	await := func(n int64) {
		for !are(n) {
			time.Sleep(time.Millisecond)
		}
	}
	await(2)
	var held []lock.Held
	for i, name := range names(count) {
		h, err := all[i%2].Mutex(name).Acquire(b.Context())
		require.NoError(b, err)
		held = append(held, h)
	}
	free := "free 0" // at home with the first, and its witness is the second
	for i := 0; locks.Home(free, []dmutex.NodeID{1, 2, 3, 4}) != 1; i++ {
		free = fmt.Sprint("free ", i)
	}
	hurry, cancel := context.WithCancel(b.Context())
	cancel()
	late, asleep := time.Duration(0), time.Duration(0)
	during := func(what string, n int64, change func()) {
		stops, lates, sleeps := make(chan time.Duration), make(chan time.Duration), make(chan time.Duration)
		every := func(longest chan<- time.Duration, act func()) {
			most := time.Duration(0)
			for last := false; !last; {
				last = are(n)
				began := time.Now()
				act()
				most = max(most, time.Since(began))
				time.Sleep(time.Millisecond)
			}
			longest <- most
		}
		go every(stops, func() {
			if h, err := all[1].Mutex(free).Acquire(b.Context()); err == nil {
				_ = h.Release()
			}
		})
		go every(lates, func() {
			_ = all[0].Ready(hurry)
			_ = all[1].Ready(hurry)
		})
		go every(sleeps, func() { time.Sleep(time.Millisecond) })
		change()
		b.ReportMetric((<-stops).Seconds()*1000, what+"-ms")
		late, asleep = max(late, <-lates), max(asleep, <-sleeps-time.Millisecond)
	}
	var third *many
	during("join", 3, func() { third = open() })
	during("leave", 2, func() { require.NoError(b, third.Close(b.Context())) })
	third = open()
	await(3)
	during("death", 2, func() {
		third.cut.Store(true)
		_ = third.Close(hurry) // the record still has it
	})
	lost := 0
	for _, h := range held {
		if h.Err() != nil {
			lost++
		}
	}
	b.ReportMetric(late.Seconds()*1000, "late-ms")
	b.ReportMetric(asleep.Seconds()*1000, "asleep-ms")
	b.ReportMetric(float64(lost), "lost")
	b.ReportMetric(0, "ns/op")
	for _, m := range all {
		_ = m.Node.Close(hurry)
	}
}
