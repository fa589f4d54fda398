package mail_test

import (
	"bytes"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A hub is a network in which several processes may have the same number. Each of them
// gets the frames for that number.
type hub struct {
	mu    sync.Mutex
	links []*hubLink
}

type hubLink struct {
	hub   *hub
	self  dmutex.NodeID
	queue chan hubFrame
	away  bool // it neither sends nor hears
	done  sync.WaitGroup
}

type hubFrame struct {
	from dmutex.NodeID
	data []byte
}

func (h *hub) link(self dmutex.NodeID) *hubLink {
	return &hubLink{hub: h, self: self, queue: make(chan hubFrame, 1000)}
}

func (l *hubLink) MaxFrame() int { return 64 << 10 }

func (l *hubLink) Trouble(dmutex.NodeID) error { return nil }

func (l *hubLink) Open(host transport.Host) error {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.hub.links = append(l.hub.links, l)
	l.done.Go(func() {
		for f := range l.queue {
			host.Deliver(f.from, [][]byte{f.data})
		}
	})
	return nil
}

func (l *hubLink) Send(to dmutex.NodeID, frame []byte) error {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	if !slices.Contains(l.hub.links, l) {
		return transport.ErrClosed
	}
	for _, other := range l.hub.links {
		if other.self == to && !other.away && !l.away {
			other.queue <- hubFrame{l.self, bytes.Clone(frame)}
		}
	}
	return nil
}

func (l *hubLink) Close() error {
	l.hub.mu.Lock()
	before := len(l.hub.links)
	l.hub.links = slices.DeleteFunc(l.hub.links, func(other *hubLink) bool { return other == l })
	if len(l.hub.links) < before {
		close(l.queue)
	}
	l.hub.mu.Unlock()
	l.done.Wait()
	return nil
}

func (l *hubLink) leave(away bool) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.away = away
}

// If a second process opens with the number of a live one, every peer tells it so, with 1 for
// the lower life, and nothing else happens. A process that was replaced while it was away learns that when it
// next sends.
func TestTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hub{}
		open := func(self dmutex.NodeID, life uint64) (*box, *hubLink) {
			link := h.link(self)
			b := &box{t: t}
			peers := slices.DeleteFunc([]dmutex.NodeID{1, 2, 3}, func(id dmutex.NodeID) bool { return id == self })
			var err error
			b.Mail, err = mail.New(mail.Config{Peers: peers, Life: life, Link: link, Handler: b})
			require.NoError(t, err)
			require.NoError(t, b.Open())
			return b, link
		}
		one, _ := open(1, 10)
		two, link := open(2, 20)
		three, _ := open(3, 30)
		time.Sleep(time.Minute)
		for _, b := range []*box{one, two, three} {
			b.take()
		}

		second, _ := open(2, 21)
		time.Sleep(100 * time.Millisecond)
		require.ElementsMatch(t, []string{"taken by 1, says 1", "taken by 1, says 3"}, second.take())
		time.Sleep(time.Minute)
		for _, b := range []*box{one, two, three} {
			require.Empty(t, b.take())
		}
		require.NotContains(t, second.take(), "met 1 as 10")

		link.leave(true)
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"met 2 as 21"}, one.take())
		second.take()
		link.leave(false)
		two.say(1, "where was I?")
		two.Flush()
		time.Sleep(100 * time.Millisecond)
		require.Contains(t, two.take(), "taken by 21, says 1")
		require.Empty(t, one.take())
		require.EqualValues(t, 21, one.Status(2).Life)

		require.NoError(t, link.Close())
		require.ErrorIs(t, two.Close(t.Context()), transport.ErrClosed)
		closeAll(t, one, second, three)
	})
}

// A peer whose life is above MaxLife is not met before the clock has come near it.
func TestMaxLife(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		start := time.Now()
		cfg := p.config(1, 10)
		cfg.MaxLife = func() uint64 { return uint64(20 + time.Since(start)/time.Hour) }
		one := p.new(cfg)
		require.NoError(t, one.Open())
		two := p.openAs(2, 23)
		time.Sleep(2 * time.Hour)
		require.Zero(t, one.Status(2).Life)
		require.Zero(t, two.Status(1).Life)
		for _, line := range one.take() {
			require.Contains(t, line, "ahead of the clock")
		}
		time.Sleep(2 * time.Hour)
		require.NotZero(t, one.Status(2).Life)
		require.NotZero(t, two.Status(1).Life)
		closeAll(t, one, two)
	})
}

// A hosted link is one whose host a test sees.
type hosted struct {
	transport.Link
	host transport.Host
}

func (l *hosted) Open(host transport.Host) error {
	l.host = host
	return l.Link.Open(host)
}

// The link gets every field of the Host, also if a type embeds it: the present life of the node and
// the bound of lives, and what the caller of New wants to know. Its report that a peer is connected
// with another life counts like a report of the peer.
func TestHost(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		cfg := p.config(1, 10)
		link := &hosted{Link: cfg.Link}
		cfg.Link, cfg.MaxLife = link, func() uint64 { return 100 }
		died := dmutex.None
		cfg.Host = transport.Host{Died: func(id dmutex.NodeID) { died = id }, Apart: time.Second, Logger: slog.New(slog.DiscardHandler)}
		one := p.new(cfg)
		require.NoError(t, one.Open())
		for host, i := reflect.ValueOf(link.host), 0; i < host.NumField(); i++ {
			require.False(t, host.Field(i).IsZero(), host.Type().Field(i).Name)
		}
		link.host.Died(2)
		require.EqualValues(t, 2, died)
		lives := func() []uint64 {
			own, highest := link.host.Life()
			return []uint64{own, highest}
		}
		require.Equal(t, []uint64{10, 100}, lives())
		link.host.Taken(2, 9)
		link.host.Taken(2, 11)
		link.host.Taken(2, 10)  // is this life
		link.host.Taken(2, 101) // cannot be
		link.host.Taken(3, 9)   // is nobody
		require.Equal(t, []string{"taken by 9, says 2", "taken by 11, says 2"}, one.take())

		two := p.open(2)
		one.say(2, "hello")
		settle(one)
		one.take()
		link.host.Taken(2, 9) // is out of date
		two.take()
		one.greet = func(by dmutex.NodeID) { one.say(by, "who are you?") }
		link.host.Taken(2, 11)
		require.Equal(t, []string{"taken by 11, says 2"}, one.take())
		synctest.Wait()
		require.Equal(t, []string{"1.2: who are you?"}, two.take())
		one.Rename(12)
		require.Equal(t, []uint64{12, 100}, lives())
		settle(one)
		closeAll(t, one, two)
	})
}
