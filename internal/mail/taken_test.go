package mail_test

import (
	"bytes"
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

func (l *hubLink) Open(deliver func(from dmutex.NodeID, frame []byte)) error {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.hub.links = append(l.hub.links, l)
	l.done.Go(func() {
		for f := range l.queue {
			deliver(f.from, f.data)
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

// If a second process opens with the number of a live one, every peer tells it so, and
// nothing else happens. A process that was replaced while it was away learns that when it
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
		require.ElementsMatch(t, []string{"taken by 20, says 1", "taken by 20, says 3"}, second.take())
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

// A lifeLink is a link that tells when a peer is connected with another process.
type lifeLink struct {
	transport.Link
	lives   []uint64
	maxLife func() uint64
	taken   func(peer dmutex.NodeID, life uint64)
}

func (l *lifeLink) SetLife(life uint64, maxLife func() uint64, taken func(peer dmutex.NodeID, life uint64)) {
	l.lives, l.maxLife, l.taken = append(l.lives, life), maxLife, taken
}

// The link learns each life of the node and the bound of lives. Its report that a peer is connected with
// another life counts like a report of the peer.
func TestLinkIsTaken(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		cfg := p.config(1, 10)
		link := &lifeLink{Link: cfg.Link}
		cfg.Link, cfg.MaxLife = link, func() uint64 { return 100 }
		one := p.new(cfg)
		require.NoError(t, one.Open())
		require.EqualValues(t, 100, link.maxLife())
		link.taken(2, 9)
		link.taken(2, 11)
		link.taken(2, 10)  // is this life
		link.taken(2, 101) // cannot be
		link.taken(3, 9)   // is nobody
		require.Equal(t, []string{"taken by 9, says 2", "taken by 11, says 2"}, one.take())

		two := p.open(2)
		one.say(2, "hello")
		settle(one)
		one.take()
		link.taken(2, 9) // is out of date
		two.take()
		one.greet = func(by dmutex.NodeID) { one.say(by, "who are you?") }
		link.taken(2, 11)
		require.Equal(t, []string{"taken by 11, says 2"}, one.take())
		synctest.Wait()
		require.Equal(t, []string{"1.2: who are you?"}, two.take())
		one.Rename(12)
		require.Equal(t, []uint64{10, 12}, link.lives)
		settle(one)
		closeAll(t, one, two)
	})
}
