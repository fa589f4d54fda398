package linktest_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/linktest"
	"github.com/dmutex/dmutex/transport/memlink"
)

// TestLink must catch links that break the contract. Each mutant runs in a
// process of its own, because its tests are meant to fail.
func TestLinkCatches(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for i, test := range []struct{ mutant, check, says string }{
		{"alters a byte", "frames arrive once", "Not equal"},
		{"cuts off a byte", "frames arrive once", "Not equal"},
		{"confuses senders", "frames arrive once", "Not equal"},
		{"keeps the buffer", "frames arrive once", "Not equal"},
		{"delivers within Send", "Send refuses", "Send delivers by itself"},
		{"loses frames", "frames arrive once", "one is lost"},
		{"repeats frames", "frames arrive once", "a second time"},
		{"reorders frames", "frames arrive once", "out of order"},
		{"forgets the rest of a burst", "frames arrive once", "one is lost"},
		{"repeats a burst", "frames arrive once", "a second time"},
		{"takes little", "Send refuses", "is not greater"},
		{"takes anything", "Send refuses", "transport: frame is empty"},
		{"knows nobody", "Send refuses", "transport: no address"},
		{"needs no Deliver", "frames arrive once", "it has no Deliver"},
		{"opens twice", "Open is called once", "misuse"},
		{"is never closed", "Open is called once", "transport: link is closed"},
		{"forgets that it is closed", "Open is called once", "transport: link is closed"},
		{"closes later", "Close waits", "Close has not waited"},
		{"delivers late", "deliver may send", "delivered after Close"},
		{"waits for readers", "a silent peer", "deadlock"},
		{"keeps what is refused", "a silent peer", "bytes are kept"},
		{"keeps the dead", "a node may restart", "is open: close it first"},
		{"leaves a goroutine", "Open is called once", "deadlock"},
		{"leaves a goroutine, no bubble", "Open is called once", "goroutines are left"},
	} {
		t.Run(test.mutant, func(t *testing.T) {
			if i%4 > 0 { // each is a process, which costs a tenth of a second
				machinetest.Thorough(t)
			}
			machinetest.Catches(t, "TestMutantLink", test.mutant, test.check, test.says, "1m")
		})
	}
}

// TestDynamicLink must catch dynamic links that break the contract.
func TestDynamicLinkCatches(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, test := range []struct{ mutant, check, says string }{
		{"nobody has peers", "a number makes it a link", "misuse"},
		{"knows everybody", "a number makes it a link", "transport: no address"},
		{"keeps its peers", "a number makes it a link", "transport: no address"},
		{"is its own peer", "a number makes it a link", "misuse"},
		{"keeps its number", "a number makes it a link", "waited in vain"},
		{"keeps frames", "a former number is not reached", "Not equal"},
		{"removes nobody", "members come and go", "transport: no address"},
		{"ignores strangers", "a stranger is noticed", "waited in vain"},
		{"waits in deliver", "deliver may change everything", "waited in vain"},
		{"becomes after Close", "members come and go", "transport: link is closed"},
	} {
		t.Run(test.mutant, func(t *testing.T) {
			machinetest.Catches(t, "TestDynamicMutant", test.mutant, test.check, test.says, "1m")
		})
	}
}

// TestDynamicMutant runs in the process of a mutant. Without a mutant it tests good links.
func TestDynamicMutant(t *testing.T) {
	name := machinetest.Mutant()
	linktest.TestDynamicLink(t, linktest.Links{
		New: func(t *testing.T) func(dmutex.NodeID) transport.Link {
			network, err := memlink.New(memlink.Config{})
			require.NoError(t, err)
			return func(self dmutex.NodeID) transport.Link {
				l := network.Link(self)
				return &dynamicMutant{DynamicLink: l, name: name, delivering: make(chan bool, 1)}
			}
		},
		Ordered:  true,
		Synctest: true,
	})
}

// A dynamicMutant is a dynamic link that breaks one rule.
type dynamicMutant struct {
	transport.DynamicLink
	name       string
	delivering chan bool
	closed     atomic.Bool

	mu    sync.Mutex
	self  dmutex.NodeID
	peers []dmutex.NodeID
}

func (m *dynamicMutant) Open(host transport.Host) error {
	if host.Deliver == nil {
		return m.DynamicLink.Open(host)
	}
	deliver := host.Deliver
	host.Deliver = func(from dmutex.NodeID, frames [][]byte) {
		switch m.name {
		case "ignores strangers":
			m.mu.Lock()
			known := slices.Contains(m.peers, from)
			m.mu.Unlock()
			if !known {
				return
			}
		case "waits in deliver":
			m.delivering <- true
			defer func() { <-m.delivering }()
		}
		before := m.number()
		deliver(from, frames)
		if m.name == "keeps frames" && m.number() != before {
			deliver(from, [][]byte{{2}})
		}
	}
	return m.DynamicLink.Open(host)
}

func (m *dynamicMutant) number() dmutex.NodeID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.self
}

func (m *dynamicMutant) Become(self dmutex.NodeID) error {
	if m.name == "waits in deliver" {
		m.delivering <- true
		defer func() { <-m.delivering }()
	}
	m.mu.Lock()
	peers, first := m.peers, m.self == dmutex.None
	m.peers, m.self = nil, self
	m.mu.Unlock()
	switch {
	case m.name == "keeps its number" && !first && self != dmutex.None:
		return nil
	case m.name == "becomes after Close" && m.closed.Load():
		return nil
	}
	err := m.DynamicLink.Become(self)
	if m.name == "keeps its peers" {
		for _, id := range peers {
			_ = m.DynamicLink.SetPeer(id, "")
		}
	}
	return err
}

func (m *dynamicMutant) SetPeer(id dmutex.NodeID, address string) error {
	self := m.number()
	m.mu.Lock()
	m.peers = append(m.peers, id)
	m.mu.Unlock()
	err := m.DynamicLink.SetPeer(id, address)
	if m.name == "nobody has peers" && self == dmutex.None || m.name == "is its own peer" && id == self && self != dmutex.None {
		return nil
	}
	return err
}

func (m *dynamicMutant) RemovePeer(id dmutex.NodeID) {
	if m.name != "removes nobody" {
		m.DynamicLink.RemovePeer(id)
	}
}

func (m *dynamicMutant) Send(to dmutex.NodeID, frame []byte) error {
	err := m.DynamicLink.Send(to, frame)
	if m.name == "knows everybody" && err == transport.ErrUnknownNode {
		return nil
	}
	return err
}

func (m *dynamicMutant) Close() error {
	m.closed.Store(true)
	return m.DynamicLink.Close()
}

// TestMutantLink runs in the process of a mutant. Without a mutant it tests good links.
func TestMutantLink(t *testing.T) {
	name := machinetest.Mutant()
	linktest.TestLink(t, linktest.Links{
		New: func(t *testing.T) func(dmutex.NodeID) transport.Link {
			network, err := memlink.New(memlink.Config{})
			require.NoError(t, err)
			others := make(map[dmutex.NodeID]*mutant)
			return func(self dmutex.NodeID) transport.Link {
				m := &mutant{Link: network.Link(self), name: name, self: self, others: others}
				others[self] = m
				return m
			}
		},
		Ordered:  true,
		Synctest: !strings.HasSuffix(name, "no bubble"),
	})
}

// A mutant is a link that breaks one rule.
type mutant struct {
	transport.Link
	name    string
	self    dmutex.NodeID
	others  map[dmutex.NodeID]*mutant
	deliver func(from dmutex.NodeID, frames [][]byte)
	sent    atomic.Int32
	kept    [][]byte
}

// Open opens the link with what is wrong about it.
func (m *mutant) Open(host transport.Host) error {
	deliver := host.Deliver
	if deliver == nil {
		if m.name == "needs no Deliver" {
			return nil
		}
		return m.Link.Open(host)
	}
	m.deliver = deliver
	switch m.name {
	case "leaves a goroutine", "leaves a goroutine, no bubble":
		go func() { select {} }()
	case "forgets the rest of a burst", "repeats a burst":
		bursts := make(map[dmutex.NodeID][][]byte)
		host.Deliver = func(from dmutex.NodeID, frames [][]byte) {
			burst := append(bursts[from], bytes.Clone(frames[0]))
			if bursts[from] = burst; len(burst) == 1 {
				return
			}
			delete(bursts, from)
			if m.name == "forgets the rest of a burst" {
				burst = burst[:1]
			} else {
				deliver(from, burst)
			}
			deliver(from, burst)
		}
	case "confuses senders":
		host.Deliver = func(from dmutex.NodeID, frames [][]byte) { deliver(from+1, frames) }
	}
	err := m.Link.Open(host)
	if m.name == "opens twice" && errors.Is(err, dmutex.ErrMisuse) {
		return nil
	}
	return err
}

func (m *mutant) Send(to dmutex.NodeID, frame []byte) error {
	sent := m.sent.Add(1)
	switch m.name {
	case "alters a byte":
		frame = bytes.Clone(frame)
		frame[0] ^= 1
	case "cuts off a byte":
		if len(frame) > 1 {
			frame = frame[1:]
		}
	case "keeps the buffer":
		time.AfterFunc(time.Millisecond, func() { _ = m.Link.Send(to, frame) })
		return nil
	case "delivers within Send":
		m.others[to].deliver(m.self, [][]byte{frame})
		return nil
	case "loses frames":
		if sent%100 == 0 {
			return nil
		}
	case "repeats frames":
		_ = m.Link.Send(to, frame)
	case "reorders frames":
		if sent%10 == 0 {
			time.AfterFunc(time.Millisecond, func() { _ = m.Link.Send(to, frame) })
			return nil
		}
	}
	err := m.Link.Send(to, frame)
	switch {
	case m.name == "takes anything" && err == transport.ErrFrameSize,
		m.name == "knows nobody" && err == transport.ErrUnknownNode,
		m.name == "is never closed" && err == transport.ErrClosed:
		return nil
	case m.name == "keeps what is refused" && err == transport.ErrFull:
		m.kept = append(m.kept, bytes.Clone(frame))
		return nil
	case m.name == "waits for readers" && err == transport.ErrFull:
		select {}
	}
	return err
}

func (m *mutant) Trouble(to dmutex.NodeID) error {
	if m.name == "forgets that it is closed" {
		return nil
	}
	return m.Link.Trouble(to)
}

func (m *mutant) MaxFrame() int {
	if m.name == "takes little" {
		return 1000
	}
	return m.Link.MaxFrame()
}

func (m *mutant) Close() error {
	switch m.name {
	case "delivers late":
		if m.self == 2 {
			time.AfterFunc(time.Millisecond, func() { m.deliver(1, [][]byte{{1}}) })
		}
	case "closes later":
		go m.Link.Close()
		return nil
	case "keeps the dead":
		if m.sent.Load() > 0 {
			return nil
		}
	}
	return m.Link.Close()
}
