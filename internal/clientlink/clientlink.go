// Package clientlink carries the messages of package clientsession over a connection that keeps
// bytes in order. docs/clients.md has the format, for other languages.
package clientlink

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/dmutex/dmutex/internal/clientsession"
	"github.com/dmutex/dmutex/internal/mistake"
	"github.com/dmutex/dmutex/internal/names"
	"github.com/dmutex/dmutex/internal/wire"
	"github.com/dmutex/dmutex/lock"
)

const (
	// MaxWord bounds the names of sessions, in bytes.
	MaxWord = 64

	// Patience is how long a peer may take to say hello, or to take what is written to it.
	Patience = 5 * time.Second

	maxText = 1000
	maxBody = 10_000 // bytes in a frame: a hello has less
)

// Owner returns the user of a NATS server whose inbox an address is: permissions give each user the
// inboxes with one second token. For other addresses it is empty, because a host has many users.
func Owner(a net.Addr) string {
	if a.Network() != "nats" {
		return ""
	}
	return strings.Split(a.String()+"..", ".")[1]
}

// Append appends a message as a frame: its length in 2 bytes, big endian, and a msgpack array.
func Append(b []byte, msg *clientsession.Message) []byte {
	start := len(b)
	b = wire.Write(append(b, 0, 0), func(f *wire.Fields) { fields(f, msg) })
	binary.BigEndian.PutUint16(b[start:], uint16(len(b)-start-2))
	return b
}

// count is how many fields a kind has: a confirm with a text has one more, and an ask that is a claim.
var count = [clientsession.Kinds]int{
	clientsession.Hello: 8, clientsession.Beat: 1, clientsession.Ask: 5, clientsession.Drop: 2, clientsession.Bye: 1, clientsession.Moved: 2,
	clientsession.Confirm: 3, clientsession.Granted: 4, clientsession.Refused: 4, clientsession.Leave: 1, clientsession.Over: 3,
}

// fields describes a message. A text that is too long is cut, and an empty one replaced.
func fields(f *wire.Fields, m *clientsession.Message) {
	n := count[m.Kind]
	if m.Kind == clientsession.Confirm && m.Text != "" || len(m.Of) > 0 {
		n++
	}
	f.Array(&n, math.MaxInt)
	wire.Uint(f, &m.Kind, uint64(clientsession.Kinds-1))
	more := (m.Kind == clientsession.Confirm || m.Kind == clientsession.Ask) && n > count[m.Kind]
	if more {
		n--
	}
	f.Refuse(m.Kind == 0 || n != count[m.Kind], "the message is of an unknown kind")
	switch m.Kind {
	case clientsession.Hello:
		wire.Number(f, &m.Speaks.Oldest)
		wire.Number(f, &m.Speaks.Newest)
		f.Name(&m.Session, MaxWord)
		f.Name(&m.Name, names.Max)
		f.Refuse(!names.Is(m.Name), "a name cannot be shown")
		f.Bool(&m.Fresh)
		wire.Number(f, &m.Number)
		wire.List(f, &m.Wants, clientsession.MaxRequests, func(number *uint64) { wire.Number(f, number) })
	case clientsession.Ask:
		wire.Number(f, &m.Number)
		f.Name(&m.Lock, lock.MaxName)
		how := uint8(0)
		if m.Try {
			how |= 1
		}
		if m.Shares {
			how |= 2
		}
		wire.Uint(f, &how, 3)
		m.Try, m.Shares = how&1 != 0, how&2 != 0
		wire.List(f, &m.Of, clientsession.MaxOf, func(node *uint64) { wire.Number(f, node) })
		if f.Refuse(more != (len(m.Of) > 0), "a claim has one field more"); more {
			f.Name(&m.Session, MaxWord)
		}
	case clientsession.Drop, clientsession.Moved:
		wire.Number(f, &m.Number)
	case clientsession.Confirm:
		wire.Uint(f, &m.For, math.MaxInt64)
		wire.Uint(f, &m.Length, math.MaxInt64)
		if more {
			text(f, m)
		}
	case clientsession.Granted:
		wire.Number(f, &m.Number)
		wire.Number(f, &m.Fence)
		wire.Number(f, &m.Node)
	case clientsession.Refused:
		wire.Number(f, &m.Number)
		fallthrough
	case clientsession.Over:
		wire.Uint(f, &m.Code, uint64(clientsession.Codes-1))
		text(f, m)
	}
}

func text(f *wire.Fields, m *clientsession.Message) {
	m.Text = cmp.Or(m.Text[:min(len(m.Text), maxText)], "no reason was given")
	f.Name(&m.Text, maxText)
}

// A Conn is a connection with messages. One goroutine reads, and others may send meanwhile.
type Conn struct {
	net.Conn
	from *bufio.Reader
	msg  clientsession.Message

	most    int // bytes in out
	mu      sync.Mutex
	out     []byte
	full    bool // too much has waited: nothing more is sent
	writing bool
	writer  sync.WaitGroup
}

// New returns a Conn, which is closed when so many bytes wait for a peer that takes nothing.
func New(nc net.Conn, most int) *Conn {
	return &Conn{Conn: nc, from: bufio.NewReaderSize(nc, 256), most: most}
}

// Read reads a message, which is the Conn's until the next call. It returns [mistake.ErrPeer] for
// one that no correct program sends. It sees by three bytes that the other side speaks something else,
// such as TLS or HTTP, and waits for no more of it.
func (c *Conn) Read() (*clientsession.Message, error) {
	head, err := c.from.Peek(2)
	if err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint16(head)
	if n == 0 || n > maxBody {
		return nil, stranger(head)
	}
	if head, err = c.from.Peek(3); err != nil {
		return nil, err
	}
	if head[2]>>4 != 9 { // no array of msgpack
		return nil, stranger(head)
	}
	body := make([]byte, n)
	_, _ = c.from.Discard(2)
	if _, err := io.ReadFull(c.from, body); err != nil {
		return nil, err
	}
	c.msg = clientsession.Message{}
	return &c.msg, wire.Read(body, func(f *wire.Fields) { fields(f, &c.msg) })
}

// stranger is the error for the beginning of what is no message.
func stranger(head []byte) error {
	if head[0] == 0x16 && head[1] == 3 { // a record of TLS that begins a handshake
		return mistake.Peer("the other side speaks TLS, and this one does not")
	}
	return mistake.Peer(fmt.Sprintf("what the other side says begins with %q: it is no client or member", head))
}

// Send sends messages, and does not wait until they are written. It must not be called with or after
// Close.
func (c *Conn) Send(msgs ...clientsession.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full {
		return
	}
	for i := range msgs {
		c.out = Append(c.out, &msgs[i])
	}
	if c.full = len(c.out) > c.most; c.full {
		c.writer.Go(func() { _ = c.Conn.Close() }) // which may wait for the peer, as that of TLS does
	}
	if len(c.out) > 0 && !c.writing {
		c.writing = true
		c.writer.Go(c.write)
	}
}

func (c *Conn) write() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) > 0 {
		out := c.out
		c.out = nil
		c.mu.Unlock()
		_ = c.SetWriteDeadline(time.Now().Add(Patience))
		_, err := c.Write(out)
		if err != nil {
			_ = c.Conn.Close()
		}
		if c.mu.Lock(); len(c.out) == 0 && cap(out) <= 256 { // an idle connection keeps little
			c.out = out[:0]
		}
	}
	c.writing = false
}

// Hurry ends Read. What was sent is still written, if the connection has deadlines.
func (c *Conn) Hurry() {
	if c.SetReadDeadline(time.Unix(1, 0)) != nil {
		go c.Conn.Close() // which may wait for the peer
	}
}

// Close closes the connection when everything is written.
func (c *Conn) Close() error {
	c.writer.Wait()
	return c.Conn.Close()
}
