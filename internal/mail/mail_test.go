package mail_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/internal/stream"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
)

// bad is a network that loses, duplicates, delays and reorders frames.
func bad(seed uint64) memlink.Config {
	return memlink.Config{Seed: seed, Loss: 0.2, Duplicate: 0.2, MinDelay: time.Millisecond, MaxDelay: 30 * time.Millisecond}
}

// Every message arrives once and in order while all members send to each other, and Left
// comes after the last.
func TestOrder(t *testing.T) {
	const each = 200
	for seed := range uint64(5) {
		run(t, bad(seed), 3, func(t *testing.T, p *post) {
			var boxes []*box
			for _, id := range p.members {
				boxes = append(boxes, p.open(id)) // it sends before it has met anybody
			}
			var sending sync.WaitGroup
			for i, b := range boxes {
				for _, to := range p.members {
					if to == p.members[i] {
						continue
					}
					sending.Go(func() {
						for n := range each {
							seq, err := b.Send(to, []byte(fmt.Sprint(n)))
							if err != nil || seq != uint64(n)+1 {
								t.Errorf("Send: number %d, %v", seq, err)
							}
							b.Flush()
							time.Sleep(time.Millisecond)
						}
					})
				}
			}
			sending.Wait()
			settle(boxes...) // a peer that closes hears no more
			closeAll(t, boxes...)
			for i, b := range boxes {
				heard := make(map[dmutex.NodeID]int)
				for _, line := range b.take() {
					var from dmutex.NodeID
					var seq, n int
					if _, err := fmt.Sscanf(line, "%d.%d: %d", &from, &seq, &n); err == nil {
						require.Equal(t, heard[from], n)
						require.Equal(t, heard[from]+1, seq)
						heard[from]++
					} else if _, err := fmt.Sscanf(line, "%d left", &from); err == nil && strings.HasSuffix(line, "left") {
						require.Equal(t, each, heard[from], "node %d of node %d, seed %d", p.members[i], from, seed)
						heard[from]++
					}
				}
				for _, from := range p.members {
					if from != p.members[i] {
						require.GreaterOrEqual(t, heard[from], each) // a closing box may not hear that others left
					}
				}
			}
		})
	}
}

// The acknowledgement of a message does not come before the answers to it, even while
// other goroutines of the answering end send. (If frames are lost or reordered, it may
// overtake them.)
func TestReceiptIsBehindTheAnswers(t *testing.T) {
	const questions = 300
	for _, delay := range []time.Duration{0, time.Millisecond, 7 * time.Millisecond} {
		run(t, memlink.Config{MinDelay: delay, MaxDelay: delay}, 2, func(t *testing.T, p *post) {
			boxes := p.meet()
			one, two := boxes[0], boxes[1]
			two.answer = func(from dmutex.NodeID, seq uint64, message []byte) {
				if string(message) == "question" {
					two.say(from, fmt.Sprint(seq))
				}
			}
			answered := make(map[uint64]bool)
			one.answer = func(_ dmutex.NodeID, _ uint64, message []byte) {
				var seq uint64
				if _, err := fmt.Sscan(string(message), &seq); err == nil {
					answered[seq] = true
				}
			}
			var busy sync.WaitGroup
			for range 3 {
				busy.Go(func() {
					for range questions {
						two.say(1, "noise")
						two.Flush()
						time.Sleep(time.Millisecond)
					}
				})
			}
			for seq := range uint64(questions) {
				one.say(2, "question")
				given := one.Receipt(2)
				one.Flush()
				<-given
				require.True(t, answered[seq+1])
			}
			busy.Wait()
			settle(one, two)
			closeAll(t, one, two)
		})
	}
}

// Receipt of messages that are already acknowledged comes at once, and of lost messages never.
func TestReceipt(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		boxes := p.meet()
		one, two := boxes[0], boxes[1]
		require.Nil(t, one.Receipt(7), "no peer")
		<-one.Receipt(2)
		time.Sleep(time.Millisecond) // the goroutine that keeps time looks around each second
		one.say(2, "hello")
		given := one.Receipt(2)
		require.Equal(t, given, one.Receipt(2))
		synctest.Wait()
		select {
		case <-given:
			require.Fail(t, "a receipt before the flush")
		default:
		}
		one.Flush()
		<-given
		<-one.Receipt(2)

		p.crash(two, 2)
		one.say(2, "lost")
		one.Flush()
		lost := one.Receipt(2)
		again := p.openAs(2, 21)
		time.Sleep(time.Minute)
		one.say(2, "welcome")
		one.Flush()
		settle(one, again)
		<-one.Receipt(2)
		select {
		case <-lost:
			require.Fail(t, "a receipt of a life that is gone")
		default:
		}
		closeAll(t, one, again)
	})
}

// A peer that comes back as another life is met again. Messages that its former life did
// not get are gone, and its numbers begin anew.
func TestRestart(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		boxes := p.meet()
		one, two := boxes[0], boxes[1]
		one.say(2, "first")
		one.Flush()
		two.say(1, "heard")
		two.Flush()
		time.Sleep(time.Second)
		require.Equal(t, []string{"2.1: heard"}, one.take())
		require.Equal(t, []string{"1.1: first"}, two.take())

		p.crash(two, 2)
		require.Empty(t, two.take())
		one.say(2, "lost")
		one.Flush()
		time.Sleep(time.Second)
		require.EqualValues(t, 1, one.Status(2).Unacked)
		two = p.openAs(2, 21)
		two.say(1, "back")
		two.Flush()
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"met 2 as 21", "2.1: back"}, one.take())
		st := one.Status(2)
		require.EqualValues(t, 21, st.Life)
		require.Zero(t, st.Unacked)
		seq, err := one.Send(2, []byte("welcome"))
		require.NoError(t, err)
		require.EqualValues(t, 1, seq)
		one.Flush()
		time.Sleep(time.Second)
		require.Equal(t, []string{"met 1 as 10", "1.1: welcome"}, two.take())
		closeAll(t, one, two)
	})
}

// Once the next life of a peer was met, no message of a former life is handled, even if
// the network still delivers its frames.
func TestNothingOfAFormerLife(t *testing.T) {
	for seed := range uint64(20) {
		run(t, bad(seed), 2, func(t *testing.T, p *post) {
			one, life := p.open(1), uint64(20)
			two := p.openAs(2, life)
			for range 5 {
				for range 20 {
					if _, err := one.Send(2, fmt.Append(nil, one.Status(3))); err != nil {
						require.ErrorIs(t, err, stream.ErrClosed)
					}
					one.Flush()
					two.say(1, fmt.Sprint(life))
					two.Flush()
					time.Sleep(5 * time.Millisecond)
				}
				p.crash(two, 2)
				life++
				two = p.openAs(2, life)
			}
			two.say(1, fmt.Sprint(life)) // so that settle waits until they have met
			settle(one, two)
			closeAll(t, one, two)
			var now, last, seq uint64
			for _, line := range one.take() {
				var said, n uint64
				if _, err := fmt.Sscanf(line, "met 2 as %d", &said); err == nil {
					require.Greater(t, said, last)
					now, last, seq = said, said, 0
				} else if _, err := fmt.Sscanf(line, "2.%d: %d", &n, &said); err == nil {
					seq++
					require.Equal(t, []uint64{now, seq}, []uint64{said, n})
				}
			}
			require.Equal(t, life, last)
		})
	}
}

// Left comes after all messages. From then on Send refuses messages to the peer, until it is back.
func TestLeft(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		boxes := p.meet()
		one, two := boxes[0], boxes[1]
		for i := range 3 {
			two.say(1, fmt.Sprint(i))
		}
		closeAll(t, two)
		require.Equal(t, []string{"2.1: 0", "2.2: 1", "2.3: 2", "2 left"}, one.take())
		require.True(t, one.Status(2).Left)
		_, err := one.Send(2, []byte("too late"))
		require.ErrorIs(t, err, stream.ErrClosed)
		require.NoError(t, two.Close(t.Context()))
		_, err = two.Send(1, []byte("too late"))
		require.ErrorIs(t, err, stream.ErrClosed)
		two.Flush()

		two = p.openAs(2, 21)
		time.Sleep(time.Second)
		require.Equal(t, []string{"met 2 as 21"}, one.take())
		require.False(t, one.Status(2).Left)
		one.say(2, "welcome")
		settle(one)
		closeAll(t, one, two)
		require.Contains(t, two.take(), "1.1: welcome")
	})
}

func TestSendRefuses(t *testing.T) {
	run(t, memlink.Config{}, 3, func(t *testing.T, p *post) {
		b := p.open(1)
		b.say(2, "x")
		for _, tc := range []struct {
			to      dmutex.NodeID
			message string
			want    error
		}{
			{1, "to itself", dmutex.ErrMisuse},
			{4, "to a stranger", dmutex.ErrMisuse},
			{2, "", dmutex.ErrMisuse},
			{2, strings.Repeat("x", b.MaxMessage()+1), stream.ErrTooLarge},
		} {
			seq, err := b.Send(tc.to, []byte(tc.message))
			require.ErrorIs(t, err, tc.want)
			require.Zero(t, seq)
		}
		require.EqualValues(t, 1, b.Status(2).Unacked)
		require.Zero(t, b.Backlog(3))
		require.Zero(t, b.Backlog(4))
		require.Zero(t, b.Status(4))

		large := []byte(strings.Repeat("x", b.MaxMessage()))
		sent := 0
		var err error
		for err == nil {
			if _, err = b.Send(3, large); err == nil {
				sent++
			}
		}
		require.ErrorIs(t, err, stream.ErrFull)
		require.Greater(t, b.Backlog(3), 4<<20-b.MaxMessage()-10)

		three := p.open(3)
		time.Sleep(time.Minute)
		require.Zero(t, b.Backlog(3))
		require.EqualValues(t, sent, b.Status(3).Life-30+uint64(count(three.take(), "1.")))

		err = b.Close(nodetest.ContextFor(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "not acknowledged by [2]")
		closeAll(t, three)
	})
}

func count(log []string, prefix string) (n int) {
	for _, line := range log {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// Tick comes at the time that its last call returned, or that Wake was given, whichever is
// first. Its messages are flushed.
func TestTick(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		boxes := p.meet()
		one, two := boxes[0], boxes[1]
		start := int64(one.Now().Age())
		after := func(seconds int64) int64 { return start + seconds*int64(time.Second) }
		var next []int64
		one.tick = func(now int64) int64 {
			one.say(2, time.Duration(now-start).String())
			at := next[0]
			if next = next[1:]; at == after(40) {
				one.Wake(time.Duration(after(30) - now))
			}
			return at
		}
		next = []int64{after(10), after(20), after(40), due.Never}
		time.Sleep(time.Second)
		require.Empty(t, one.take(), "nobody has asked for a Tick")
		one.Wake(59 * time.Second)
		one.Wake(time.Second)
		one.Wake(89 * time.Second)
		time.Sleep(time.Second)
		time.Sleep(7 * time.Second)
		one.Wake(2 * time.Second) // later than what Tick has asked for
		time.Sleep(time.Hour)
		var at []string
		for _, line := range two.take() {
			if _, what, ok := strings.Cut(line, ": "); ok {
				at = append(at, what)
			}
		}
		require.Equal(t, []string{"2s", "10s", "20s", "30s"}, at)

		next = []int64{due.Never}
		one.Wake(0) // has passed
		time.Sleep(time.Second)
		require.Equal(t, 1, count(two.take(), "1."))
		closeAll(t, one, two)
	})
}

// Close returns after the last call of the Handler.
func TestCloseWaitsForTick(t *testing.T) {
	run(t, memlink.Config{}, 1, func(t *testing.T, p *post) {
		b := p.open(1)
		ticking := make(chan struct{})
		b.tick = func(int64) int64 { <-ticking; return due.Never }
		b.Wake(0)
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- b.Close(t.Context()) }()
		synctest.Wait()
		require.Empty(t, closed)
		close(ticking)
		require.NoError(t, <-closed)
	})
}

// A message that is sent and flushed before Open leaves after it.
func TestFlushBeforeOpen(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		one, two := p.new(p.config(1, 10)), p.open(2)
		one.say(2, "early")
		one.Flush()
		require.NoError(t, one.Open())
		time.Sleep(time.Minute)
		require.Equal(t, []string{"met 1 as 10", "1.1: early"}, two.take())
		closeAll(t, one, two)
	})
}

// A Mail without peers keeps time.
func TestAlone(t *testing.T) {
	run(t, memlink.Config{}, 1, func(t *testing.T, p *post) {
		b := p.new(p.config(1, 10))
		b.tick = func(int64) int64 { return due.Never }
		b.Wake(time.Hour)
		require.NoError(t, b.Open())
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"tick at 1h0m0s"}, b.take())
		b.Flush()
		b.Rename(11)
		b.Add(2)
		b.Remove(2)
		closeAll(t, b)
	})
}

// A node that renames itself leaves and is met again at once.
func TestRename(t *testing.T) {
	run(t, memlink.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond}, 3, func(t *testing.T, p *post) {
		boxes := p.meet()
		one, two := boxes[0], boxes[1]
		one.say(2, "old")
		require.NotZero(t, one.Backlog(2))
		one.Rename(11)
		require.Zero(t, one.Backlog(2))
		require.Zero(t, one.Status(2).Life)
		time.Sleep(30 * time.Millisecond)
		require.Equal(t, []string{"met 2 as 20", "met 3 as 30"}, sorted(one.take()))
		require.Equal(t, []string{"1.1: old", "1 left", "met 1 as 11"}, two.take())
		require.Equal(t, []string{"1 left", "met 1 as 11"}, boxes[2].take())
		seq, err := one.Send(2, []byte("new"))
		require.NoError(t, err)
		require.EqualValues(t, 1, seq)
		one.Flush()
		two.say(1, "hello")
		two.Flush()
		time.Sleep(time.Second)
		require.Contains(t, two.take(), "1.1: new")
		require.Contains(t, one.take(), "2.1: hello")
		closeAll(t, boxes...)
		one.Rename(12)
	})
}

func sorted(log []string) []string {
	// Different peers are told at the same time: put the lines of 2 first.
	var two, rest []string
	for _, line := range log {
		if strings.HasPrefix(line, "met 2") || strings.HasPrefix(line, "2") {
			two = append(two, line)
		} else {
			rest = append(rest, line)
		}
	}
	return append(two, rest...)
}

// A node that renames itself says so at once also to peers that it has not met.
func TestRenameEarly(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		link := &burstLink{Link: p.network.Link(1)}
		cfg := p.config(1, 10)
		cfg.Link = link
		one := p.new(cfg)
		require.NoError(t, one.Open())
		time.Sleep(time.Minute)
		before := link.sent.Load()
		one.Rename(11)
		require.EqualValues(t, 1, link.sent.Load()-before)
		closeAll(t, one)
	})
}

// A link that is closed under a Mail is reported once, and no call waits for it.
func TestLinkClosed(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		cfg := p.config(1, 10)
		one := p.new(cfg)
		require.NoError(t, one.Open())
		two := p.open(2)
		time.Sleep(time.Second)
		one.take()
		require.NoError(t, cfg.Link.Close())
		one.say(2, "into the void")
		require.Empty(t, one.take())
		one.Flush()
		synctest.Wait() // another goroutine may be sending
		require.Equal(t, []string{"closed: mail: the link was closed before the mail: transport: link is closed"}, one.take())
		_, err := one.Send(2, []byte("x"))
		require.ErrorIs(t, err, stream.ErrClosed)
		one.Flush()
		require.ErrorIs(t, one.Close(t.Context()), transport.ErrClosed)
		require.NoError(t, one.Close(t.Context()))
		require.Empty(t, one.take())
		require.ErrorIs(t, two.Close(nodetest.ContextFor(t, time.Minute)), context.DeadlineExceeded)
	})
}

// A link that is closed while Close waits ends the waiting.
func TestLinkClosedWhileClosing(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		cfg := p.config(1, 10)
		one := p.new(cfg)
		require.NoError(t, one.Open())
		one.say(2, "x")
		closed := make(chan error)
		go func() { closed <- one.Close(t.Context()) }()
		synctest.Wait()
		require.NoError(t, cfg.Link.Close())
		require.ErrorIs(t, <-closed, transport.ErrClosed)
	})
}

// Close takes a round trip.
func TestCloseIsPrompt(t *testing.T) {
	run(t, memlink.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond}, 3, func(t *testing.T, p *post) {
		boxes := p.meet()
		for _, b := range boxes {
			start := time.Now()
			closeAll(t, b)
			require.LessOrEqual(t, time.Since(start), 2*time.Millisecond)
		}
	})
}

// A stepLink lets the test take each Send to 2 in two steps: to the link, and back.
type stepLink struct {
	transport.Link
	on   atomic.Bool
	step chan struct{}
}

func (l *stepLink) Send(to dmutex.NodeID, frame []byte) error {
	if to == 2 && l.on.Load() {
		<-l.step
		defer func() { <-l.step }()
	}
	return l.Link.Send(to, frame)
}

// Close waits for another goroutine that sends the last frame, and for nothing else.
func TestCloseWaitsForLastFrame(t *testing.T) {
	run(t, memlink.Config{}, 3, func(t *testing.T, p *post) {
		cfg := p.config(1, 10)
		link := &stepLink{Link: cfg.Link, step: make(chan struct{})}
		cfg.Link = link
		one := p.new(cfg)
		require.NoError(t, one.Open())
		two, three := p.open(2), p.open(3)
		time.Sleep(time.Minute)
		start := time.Now()
		link.on.Store(true)
		go func() {
			one.say(2, "x")
			one.Flush()
		}()
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- one.Close(t.Context()) }()
		for range 4 { // the message and the farewell leave, and one more frame is to leave
			synctest.Wait()
			link.step <- struct{}{}
		}
		synctest.Wait()
		one.Remove(3) // lets Close look again
		synctest.Wait()
		require.Empty(t, closed)
		close(link.step)
		require.NoError(t, <-closed)
		require.Zero(t, time.Since(start))
		closeAll(t, two, three)
	})
}

// A second Close waits for the first.
func TestCloseAgain(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		one := p.open(1)
		one.say(2, "x")
		ctx := nodetest.ContextFor(t, time.Hour)
		var first, second error
		var closing sync.WaitGroup
		closing.Go(func() { first = one.Close(ctx) })
		synctest.Wait()
		closing.Go(func() { second = one.Close(t.Context()) })
		synctest.Wait()
		hasty, cancelHasty := context.WithCancel(t.Context())
		cancelHasty()
		require.ErrorIs(t, one.Close(hasty), context.Canceled)
		closing.Wait()
		require.ErrorIs(t, first, context.DeadlineExceeded)
		require.NoError(t, second)
		require.ErrorIs(t, one.Open(), dmutex.ErrMisuse)
	})
}

// A Mail that was never open cannot be opened once Close has begun.
func TestOpenDuringClose(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		one, gate := p.new(p.config(1, 10)), make(chan struct{})
		one.Busy(func() { <-gate })
		closed := make(chan error)
		go func() { closed <- one.Close(t.Context()) }()
		synctest.Wait()
		require.ErrorIs(t, one.Open(), dmutex.ErrMisuse)
		close(gate)
		require.NoError(t, <-closed)
	})
}

func TestNewRefuses(t *testing.T) {
	network, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	lawful := mail.Config{Peers: []dmutex.NodeID{2, 3}, Life: 1, Link: network.Link(1), Handler: &box{}}
	for what, spoil := range map[string]func(c *mail.Config){
		"Link":   func(c *mail.Config) { c.Link = nil },
		"frames": func(c *mail.Config) { c.Link = small{c.Link, 1023} },
		"agree on": func(c *mail.Config) { // a HELLO with that has up to 1025 bytes
			c.Link, c.Settings = small{c.Link, 1024}, strings.Repeat("s", 1025-stream.Overhead)
		},
		"node 0": func(c *mail.Config) { c.Peers = []dmutex.NodeID{2, 0} },
		"once":   func(c *mail.Config) { c.Peers = []dmutex.NodeID{2, 3, 2} },
	} {
		cfg := lawful
		spoil(&cfg)
		_, err := mail.New(cfg)
		require.ErrorIs(t, err, dmutex.ErrMisuse)
		require.ErrorContains(t, err, what)
	}
	m, err := mail.New(lawful)
	require.NoError(t, err)
	m.Flush() // before Open: nothing happens
	require.NoError(t, m.Close(t.Context()))
	require.ErrorIs(t, m.Open(), dmutex.ErrMisuse)
	_, err = m.Send(2, []byte("x"))
	require.ErrorIs(t, err, stream.ErrClosed)
}

type small struct {
	transport.Link
	maxFrame int
}

func (l small) MaxFrame() int { return l.maxFrame }

// A Mail whose link fails to open can be opened again.
func TestOpenFails(t *testing.T) {
	run(t, memlink.Config{}, 1, func(t *testing.T, p *post) {
		b := p.open(1)
		other := p.new(p.config(1, 11))
		require.ErrorIs(t, other.Open(), dmutex.ErrMisuse)
		require.ErrorIs(t, b.Open(), dmutex.ErrMisuse)
		closeAll(t, b)
		require.NoError(t, other.Open())
		closeAll(t, other)
	})
}

// A frame that no correct peer sends is reported and changes nothing. A peer of another group is
// reported once.
func TestRefused(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		one := p.open(1)
		other := func(settings string) {
			time.Sleep(10 * time.Millisecond) // behind the question of one
			cfg := p.config(2, 20)
			cfg.Settings = settings
			two := p.new(cfg)
			require.NoError(t, two.Open())
			synctest.Wait()
			require.Equal(t, "7", two.Status(1).Other.Settings, "it hears at once")
			time.Sleep(time.Minute) // for many challenges
			require.Equal(t, settings, one.Status(2).Other.Settings)
			closeAll(t, two)
		}
		other("8")
		other("9")
		other("8")
		say := stream.GroupError{}.Error()
		require.Equal(t, []string{"2: " + say, "2: " + say, "2: " + say}, one.take())
		require.Zero(t, one.Status(2).Silent, "a refused frame says nothing of our group")

		link := p.network.Link(2)
		require.NoError(t, link.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}))
		for range 2 {
			require.NoError(t, link.Send(1, []byte("x")))
		}
		synctest.Wait()
		log := one.take()
		require.Equal(t, 2, count(log, "2: "))
		require.Equal(t, "8", one.Status(2).Other.Settings)
		require.NoError(t, link.Close())

		two := p.openAs(2, 21)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"met 2 as 21"}, one.take())
		st := one.Status(2)
		require.Zero(t, st.Other)
		require.Greater(t, st.Silent, 50*time.Second)
		closeAll(t, one, two)
	})
}
