package mail_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/linktest"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A box is a Mail and a Handler that notes what it is told.
type box struct {
	*mail.Mail
	t      *testing.T
	answer func(from dmutex.NodeID, seq uint64, message []byte) // is called in Message, if any
	tick   func(now int64) (next int64)
	greet  func(from dmutex.NodeID) // is called in Stranger and Taken, if any

	mu  sync.Mutex
	log []string

	changing sync.Mutex
	peers    []dmutex.NodeID
}

// anyLife returns what SetPeers takes to meet any life of these peers.
func anyLife(ids []dmutex.NodeID) map[dmutex.NodeID]uint64 {
	lives := make(map[dmutex.NodeID]uint64)
	for _, id := range ids {
		lives[id] = 0
	}
	return lives
}

// Add makes a node a peer, beside the others.
func (b *box) Add(id dmutex.NodeID) {
	b.changing.Lock()
	defer b.changing.Unlock()
	b.peers = append(b.peers, id)
	b.SetPeers(anyLife(b.peers))
}

// Remove leaves only the other peers.
func (b *box) Remove(id dmutex.NodeID) {
	b.changing.Lock()
	defer b.changing.Unlock()
	b.peers = slices.DeleteFunc(b.peers, func(peer dmutex.NodeID) bool { return peer == id })
	b.SetPeers(anyLife(b.peers))
}

func (b *box) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, fmt.Sprintf(format, args...))
}

// take returns what was noted since the last take.
func (b *box) take() (log []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	log, b.log = b.log, nil
	return log
}

func (b *box) Met(peer dmutex.NodeID, life uint64) { b.note("met %d as %d", peer, life) }
func (b *box) Left(peer dmutex.NodeID)             { b.note("%d left", peer) }
func (b *box) Refused(peer dmutex.NodeID, err error) {
	b.note("%d: %v", peer, err)
}
func (b *box) Closed(err error) { b.note("closed: %v", err) }

func (b *box) Message(from dmutex.NodeID, seq uint64, message []byte) {
	b.note("%d.%d: %s", from, seq, message)
	if b.answer != nil {
		b.answer(from, seq, message)
	}
}

func (b *box) Stranger(from dmutex.NodeID) {
	b.note("stranger %d", from)
	if b.greet != nil {
		b.greet(from)
	}
}

func (b *box) Taken(by dmutex.NodeID, life uint64) {
	b.note("taken by %d, says %d", life, by)
	if b.greet != nil {
		b.greet(by)
	}
}

func (b *box) Tick(now int64) (next int64) {
	b.note("tick at %v", time.Duration(now))
	return b.tick(now)
}

// say sends a message.
func (b *box) say(to dmutex.NodeID, message string) {
	if _, err := b.Send(to, []byte(message)); err != nil {
		b.t.Errorf("Send: %v", err)
	}
}

// A post is boxes on one memlink network.
type post struct {
	t       *testing.T
	network *memlink.Network
	members []dmutex.NodeID
}

// run calls the test in a bubble, which checks that no goroutine is left.
func run(t *testing.T, cfg memlink.Config, members int, test func(t *testing.T, p *post)) {
	synctest.Test(t, func(t *testing.T) {
		network, err := memlink.New(cfg)
		require.NoError(t, err)
		p := &post{t: t, network: network}
		for id := range dmutex.NodeID(members) {
			p.members = append(p.members, id+1)
		}
		test(t, p)
	})
}

func (p *post) config(self dmutex.NodeID, life uint64) mail.Config {
	peers := slices.DeleteFunc(slices.Clone(p.members), func(id dmutex.NodeID) bool { return id == self })
	slices.Reverse(peers)
	return mail.Config{Peers: peers, Life: life, Settings: "7", Link: p.network.Link(self)}
}

// new makes a box that is not yet open.
func (p *post) new(cfg mail.Config) *box {
	b := &box{t: p.t, peers: slices.Clone(cfg.Peers)}
	cfg.Handler = b
	var err error
	b.Mail, err = mail.New(cfg)
	require.NoError(p.t, err)
	return b
}

// open opens a box whose life is ten times its number.
func (p *post) open(self dmutex.NodeID) *box { return p.openAs(self, 10*uint64(self)) }

func (p *post) openAs(self dmutex.NodeID, life uint64) *box {
	b := p.new(p.config(self, life))
	require.NoError(p.t, b.Open())
	return b
}

// meet opens all boxes and lets them meet.
func (p *post) meet() (boxes []*box) {
	for _, id := range p.members {
		boxes = append(boxes, p.open(id))
	}
	time.Sleep(time.Minute)
	for i, b := range boxes {
		for _, id := range p.members {
			if id != p.members[i] {
				require.NotZero(p.t, b.Status(id).Life)
			}
		}
		b.take()
	}
	return boxes
}

// crash ends a box without a farewell.
func (p *post) crash(b *box, self dmutex.NodeID) {
	p.network.Partition([]dmutex.NodeID{self})
	ctx, cancel := context.WithCancel(p.t.Context())
	cancel()
	_ = b.Close(ctx)
	p.network.Heal()
}

// settle waits until everything that was sent is acknowledged.
func settle(boxes ...*box) {
	for range 3600 {
		time.Sleep(time.Second)
		if !slices.ContainsFunc(boxes, (*box).waits) {
			return
		}
	}
	panic("not acknowledged within an hour")
}

func (b *box) waits() bool {
	for id := range dmutex.NodeID(10) { // those that are no peers have the zero Status
		if b.Status(id).Unacked > 0 {
			return true
		}
	}
	return false
}

// closeAll closes boxes at the same time.
func closeAll(t *testing.T, boxes ...*box) {
	ctx := nodetest.ContextFor(t, time.Hour)
	var closing sync.WaitGroup
	for _, b := range boxes {
		closing.Go(func() {
			if err := b.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	closing.Wait()
}

// A burstLink delivers together what arrives while it is dammed, and counts what
// it sends.
type burstLink struct {
	transport.Link
	sent    atomic.Int64
	stall   atomic.Pointer[chan struct{}] // what the next Send waits for, if anything
	deliver func(from dmutex.NodeID, frames [][]byte)

	mu     sync.Mutex
	dammed bool
	frames [][]byte
}

func (l *burstLink) Send(to dmutex.NodeID, frame []byte) error {
	l.sent.Add(1)
	if stall := l.stall.Swap(nil); stall != nil {
		<-*stall
	}
	return l.Link.Send(to, frame)
}

func (l *burstLink) Open(host transport.Host) error {
	deliver := host.Deliver
	l.deliver = deliver
	host.Deliver = linktest.Each(func(from dmutex.NodeID, frame []byte) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.dammed {
			l.frames = append(l.frames, bytes.Clone(frame))
		} else {
			deliver(from, [][]byte{frame})
		}
	})
	return l.Link.Open(host)
}

// hold runs f, and lets its next Send wait until resume is called. resume waits for f, and
// returns how many frames were sent before and in all.
func (l *burstLink) hold(f func()) (resume func() (before, all int64)) {
	sent, stall := l.sent.Load(), make(chan struct{})
	l.stall.Store(&stall)
	var busy sync.WaitGroup
	busy.Go(f)
	synctest.Wait()
	return func() (before, all int64) {
		before = l.sent.Load() - sent
		close(stall)
		busy.Wait()
		synctest.Wait() // another goroutine may have sent the rest
		return before, l.sent.Load() - sent
	}
}

// sayStalled says something to 2 that waits in Send.
func (b *box) sayStalled(link *burstLink) (resume func() (before, all int64)) {
	return link.hold(func() {
		b.say(2, "stalled")
		b.Flush()
	})
}

func (l *burstLink) dam() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dammed = true
}

// take returns the frames that wait, and leaves the link dammed.
func (l *burstLink) take() (frames [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	frames, l.frames = l.frames, nil
	return frames
}

// burst delivers the frames that wait, all of one node, and returns how many there
// were and how many were sent meanwhile.
func (l *burstLink) burst(from dmutex.NodeID) (frames int, sent int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, frames := l.sent.Load(), len(l.frames)
	l.deliver(from, l.frames)
	l.dammed, l.frames = false, nil
	return frames, l.sent.Load() - before
}

// pair opens boxes 1 and 2, with a burstLink for 1, and lets them meet.
func (p *post) pair() (one, two *box, link *burstLink) {
	link = &burstLink{Link: p.network.Link(1)}
	cfg := p.config(1, 10)
	cfg.Link = link
	one = p.new(cfg)
	require.NoError(p.t, one.Open())
	two = p.open(2)
	time.Sleep(time.Minute)
	require.Equal(p.t, []string{"met 2 as 20"}, one.take())
	require.Equal(p.t, []string{"met 1 as 10"}, two.take())
	return one, two, link
}
