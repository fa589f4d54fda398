package trace

import (
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dmutex/dmutex"
)

// maxErr bounds the text of Event.Err, in bytes.
const maxErr = 1 << 10

// A Writer writes a trace without buffering, with one Write per line. Callers that
// cannot wait use a [Recorder].
type Writer struct {
	w    io.Writer
	line []byte
}

// NewWriter writes the header.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	t := &Writer{w: w, line: appendHeader(nil, &h)}
	_, err := w.Write(t.line)
	return t, err
}

// Write writes an event. It returns [dmutex.ErrMisuse] for an event that is
// longer than [MaxLine].
func (t *Writer) Write(e *Event) error {
	t.line = appendEvent(t.line[:0], e)
	if len(t.line) > MaxLine {
		return fmt.Errorf("trace: %w: the event takes %d bytes, more than %d", dmutex.ErrMisuse, len(t.line), MaxLine)
	}
	_, err := t.w.Write(t.line)
	return err
}

// Write writes the whole trace.
func (t *Trace) Write(w io.Writer) error {
	out, err := NewWriter(w, t.Header)
	for i := 0; err == nil && i < len(t.Events); i++ {
		err = out.Write(&t.Events[i])
	}
	return err
}

func appendHeader(b []byte, h *Header) []byte {
	b = append(b, `{"dmutex":"trace"`...)
	b = appendUint(b, "version", Version)
	b = appendUint(b, "self", uint64(h.Self))
	b = appendUints(b, "members", h.Members)
	b = appendString(b, "group", strings.ToValidUTF8(h.Group, ""))
	b = appendString(b, "algorithm", strings.ToValidUTF8(h.Algorithm, ""))
	b = appendUint(b, "life", h.Life)
	if h.Opened != 0 {
		b = strconv.AppendInt(appendKey(b, "opened"), h.Opened, 10)
	}
	return append(b, "}\n"...)
}

func appendEvent(b []byte, e *Event) []byte {
	b = append(b, `{"t":`...)
	b = strconv.AppendInt(b, e.Time, 10)
	b = appendString(b, "do", string(e.What))
	if utf8.ValidString(e.Lock) {
		b = appendString(b, "lock", e.Lock)
	} else {
		b = appendString(b, "hex", hex.EncodeToString([]byte(e.Lock)))
	}
	b = appendUint(b, "peer", uint64(e.Peer))
	b = appendUint(b, "life", e.Life)
	b = appendUint(b, "first", e.First)
	b = appendUint(b, "last", e.Last)
	b = appendUint(b, "n", e.N)
	b = appendUints(b, "members", e.Members)
	b = appendUint(b, "clock", e.Clock)
	b = appendUint(b, "holder", uint64(e.Holder))
	if e.What == Handle {
		b = appendMessage(appendKey(b, "in"), &e.In, "from", e.In.From)
	}
	for i := range e.Out {
		if i == 0 {
			b = append(appendKey(b, "out"), '[')
		} else {
			b = append(b, ',')
		}
		b = appendMessage(b, &e.Out[i], "to", e.Out[i].To)
		if i == len(e.Out)-1 {
			b = append(b, ']')
		}
	}
	if e.What.input() || e.What == Born {
		b = appendString(b, "phase", e.Phase.String())
	}
	b = appendUint(b, "fence", e.Fence)
	b = appendString(b, "err", strings.ToValidUTF8(e.Err[:min(len(e.Err), maxErr)], ""))
	return append(b, "}\n"...)
}

func appendMessage(b []byte, m *Message, whose string, other dmutex.NodeID) []byte {
	b = append(b, `{"kind":`...)
	b = quote(b, m.Kind.String())
	b = appendUint(b, whose, uint64(other))
	b = appendUint(b, "seq", m.Seq)
	b = appendUint(b, "attempt", m.Attempt)
	b = appendUint(b, "clock", m.Clock)
	b = appendUint(b, "fence", m.Fence)
	b = appendUints(b, "numbers", m.Numbers)
	b = appendUints(b, "nodes", m.Nodes)
	return append(b, '}')
}

func appendKey(b []byte, key string) []byte {
	b = append(b, ',', '"')
	b = append(b, key...)
	return append(b, '"', ':')
}

func appendUint(b []byte, key string, v uint64) []byte {
	if v == 0 {
		return b
	}
	return strconv.AppendUint(appendKey(b, key), v, 10)
}

func appendUints[T ~uint64](b []byte, key string, list []T) []byte {
	if len(list) == 0 {
		return b
	}
	b = append(appendKey(b, key), '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(v), 10)
	}
	return append(b, ']')
}

func appendString(b []byte, key, s string) []byte {
	if s == "" {
		return b
	}
	return quote(appendKey(b, key), s)
}

// quote appends s, which is valid UTF-8, as JSON.
func quote(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			const digits = "0123456789abcdef"
			b = append(b, `\u00`...)
			b = append(b, digits[c>>4], digits[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
