package mail_test

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A Wake is in time, also between two looks at the clock, which are a second apart.
func TestWakeIsInTime(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		boxes := p.meet()
		one := boxes[0]
		time.Sleep(10 * time.Second)
		start := time.Now()
		var at []time.Duration
		one.tick = func(int64) int64 {
			at = append(at, time.Since(start))
			return due.Never
		}
		for _, after := range []time.Duration{300, 700, 1650} {
			one.Wake(after*time.Millisecond - time.Since(start))
			time.Sleep(after*time.Millisecond - time.Since(start) + time.Nanosecond)
		}
		synctest.Wait()
		require.Equal(t, []time.Duration{300 * time.Millisecond, 700 * time.Millisecond, 1650 * time.Millisecond}, at)
		closeAll(t, boxes...)
	})
}

// A lost frame is sent again in time, whatever else there is to do, and long before the next look
// at the clock.
func TestLostFrameIsSentAgainInTime(t *testing.T) {
	const wait = 100 * time.Millisecond
	for name, when := range map[string]func(one *box, link *burstLink, say func()){
		"at rest": func(_ *box, _ *burstLink, say func()) { say() },
		"during a round": func(one *box, link *burstLink, say func()) {
			resume := link.hold(func() { one.Challenge(3) })
			say()
			resume()
		},
		"while a frame is handled": func(one *box, link *burstLink, say func()) {
			one.answer = func(dmutex.NodeID, uint64, []byte) {
				var busy sync.WaitGroup
				busy.Go(say)
				busy.Wait()
			}
			link.burst(2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, memlink.Config{}, 3, func(t *testing.T, p *post) {
				one, two, link := p.pair()
				three := p.open(3)
				time.Sleep(time.Minute + wait) // keepTime does not look now
				one.take()
				link.dam()
				two.say(1, "question")
				two.Flush()
				synctest.Wait()
				p.network.Partition([]dmutex.NodeID{2})
				when(one, link, func() {
					one.say(2, "lost")
					one.Flush()
				})
				require.Zero(t, one.Status(2).Resent)
				time.Sleep(wait)
				require.NotZero(t, one.Status(2).Resent)
				p.network.Heal()
				link.burst(2)
				settle(one, two)
				closeAll(t, one, two, three)
			})
		})
	}
}

// No timer keeps an unused Mail from being collected.
func TestGarbage(t *testing.T) {
	wake := func(b *box) { b.Wake(time.Hour) }
	open := func(b *box) { require.NoError(t, b.Open()) }
	shut := func(b *box) { require.NoError(t, b.Close(t.Context())) }
	for name, life := range map[string][]func(*box){
		"never open":   {wake},
		"closed":       {open, wake, shut},
		"closed early": {wake, shut},
		"used again":   {open, shut, wake},
	} {
		t.Run(name, func(t *testing.T) {
			network, err := memlink.New(memlink.Config{})
			require.NoError(t, err)
			p := &post{t: t, network: network}
			used := func() weak.Pointer[mail.Mail] {
				b := p.new(p.config(1, 10))
				for _, f := range life {
					f(b)
				}
				return weak.Make(b.Mail)
			}()
			runtime.GC()
			require.Nil(t, used.Value())
		})
	}
}
