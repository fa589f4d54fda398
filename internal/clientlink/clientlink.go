// Package clientlink carries the messages of package clientsession over a connection that keeps
// bytes in order. docs/clients.md has the format, for other languages.
package clientlink

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"net"
	"sync"
	"time"

	"github.com/dmutex/dmutex/internal/clientsession"
	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/internal/wire"
	"github.com/dmutex/dmutex/transport"
)

const (
	// MaxWord bounds the names of sessions and clients, in bytes.
	MaxWord = 64

	// Patience is how long a peer may take to say hello, or to take what is written to it.
	Patience = 5 * time.Second

	maxText = 1000
	maxBody = 10_000 // bytes in a frame: a hello has less
)

// Append appends a message as a frame: its length in 2 bytes, big endian, and a msgpack array.
func Append(b []byte, msg *clientsession.Message) []byte {
	start := len(b)
	b = wire.Append(append(b, 0, 0), func(w *wire.Writer) { write(w, msg) })
	binary.BigEndian.PutUint16(b[start:], uint16(len(b)-start-2))
	return b
}

// fields is how many fields a kind has, and of a hello those before the list.
var fields = [clientsession.Kinds]int{
	clientsession.Hello: 8, clientsession.Beat: 1, clientsession.Ask: 4, clientsession.Drop: 2, clientsession.Bye: 1,
	clientsession.Confirm: 3, clientsession.Granted: 3, clientsession.Refused: 4, clientsession.Leave: 1, clientsession.Over: 3,
}

func write(w *wire.Writer, m *clientsession.Message) {
	w.Array(fields[m.Kind])
	w.Uint(uint64(m.Kind))
	switch m.Kind {
	case clientsession.Hello:
		w.Uint(m.Speaks.Oldest)
		w.Uint(m.Speaks.Newest)
		w.String(m.Session)
		w.String(m.Name)
		w.Bool(m.Fresh)
		w.Uint(m.Number)
		w.Array(len(m.Wants))
		for _, number := range m.Wants {
			w.Uint(number)
		}
	case clientsession.Ask:
		w.Uint(m.Number)
		w.String(m.Lock)
		w.Bool(m.Try)
	case clientsession.Drop:
		w.Uint(m.Number)
	case clientsession.Confirm:
		w.Uint(uint64(m.For))
		w.Uint(uint64(m.Length))
	case clientsession.Granted:
		w.Uint(m.Number)
		w.Uint(m.Fence)
	case clientsession.Refused:
		w.Uint(m.Number)
		fallthrough
	case clientsession.Over:
		w.Uint(uint64(m.Code))
		w.String(m.Text[:min(len(m.Text), maxText)])
	}
}

func decode(b []byte, m *clientsession.Message) error {
	f := decoders.Get().(*wire.Reader)
	defer decoders.Put(f)
	*m = clientsession.Message{}
	f.Reset(b)
	n := f.Array(len(b))
	m.Kind = clientsession.Kind(f.Uint(uint64(clientsession.Kinds - 1)))
	if m.Kind == 0 || n != fields[m.Kind] {
		f.Fail("the message is of an unknown kind")
	}
	switch m.Kind {
	case clientsession.Hello:
		m.Speaks = protocol.Versions{Oldest: f.Number(), Newest: f.Number()}
		m.Session, m.Name, m.Fresh = string(f.Name(MaxWord)), string(f.Name(MaxWord)), f.Bool()
		m.Number = f.Number()
		for range f.Array(clientsession.MaxRequests) {
			m.Wants = append(m.Wants, f.Number())
		}
	case clientsession.Ask:
		m.Number, m.Lock, m.Try = f.Number(), string(f.Name(transport.MaxName)), f.Bool()
	case clientsession.Drop:
		m.Number = f.Number()
	case clientsession.Confirm:
		m.For, m.Length = int64(f.Uint(math.MaxInt64)), int64(f.Uint(math.MaxInt64))
	case clientsession.Granted:
		m.Number, m.Fence = f.Number(), f.Number()
	case clientsession.Refused:
		m.Number = f.Number()
		fallthrough
	case clientsession.Over:
		m.Code = clientsession.Code(f.Uint(uint64(clientsession.Codes - 1)))
		m.Text = string(f.Name(maxText))
	}
	return f.End(func(w *wire.Writer) { write(w, m) })
}

// decoders are shared: a connection is idle for most of the time.
var decoders = sync.Pool{New: func() any { return new(wire.Reader) }}

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

// Read reads a message, which is the Conn's until the next call. It returns [dmutex.ErrPeer] for
// one that no correct program sends.
func (c *Conn) Read() (*clientsession.Message, error) {
	head, err := c.from.Peek(2)
	if err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint16(head)
	if n > maxBody {
		n = 0 // it is refused as an empty one is
	}
	body := make([]byte, n)
	_, _ = c.from.Discard(2)
	if _, err := io.ReadFull(c.from, body); err != nil {
		return nil, err
	}
	return &c.msg, decode(body, &c.msg)
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
		if c.mu.Lock(); err != nil {
			c.out = nil
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
