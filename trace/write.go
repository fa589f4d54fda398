package trace

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/dmutex/dmutex"
)

// maxErr bounds the text of Event.Err, in bytes.
const maxErr = 1 << 10

// Write writes the trace. It returns [dmutex.ErrMisuse] for an event that is longer than
// a line may be, 1 MiB.
func (t *Trace) Write(w io.Writer) error {
	var lines encoder
	_, err := w.Write(lines.header(&t.Header))
	for i := 0; err == nil && i < len(t.Events); i++ {
		line := lines.event(&t.Events[i])
		if len(line) > maxLine {
			return fmt.Errorf("trace: %w: the event takes %d bytes, more than %d", dmutex.ErrMisuse, len(line), maxLine)
		}
		_, err = w.Write(line)
	}
	return err
}

type jsonHeader struct {
	DMutex  string `json:"dmutex"`
	Version int    `json:"version"`
	Header
}

// What is written in other words than an Event has.
type jsonEvent struct {
	Event
	In    *jsonMessage  `json:"in,omitempty"`
	Out   []jsonMessage `json:"out,omitempty"`
	Phase string        `json:"phase,omitempty"`
	Hex   string        `json:"hex,omitempty"`
}

type jsonMessage struct {
	Kind string `json:"kind"`
	Message
}

// An encoder makes lines. The next line overwrites the last.
type encoder struct {
	line bytes.Buffer
	json *json.Encoder // to line

	// What is encoded. It lives here so that an event costs no memory.
	head jsonHeader
	next jsonEvent
	in   jsonMessage
}

func (w *encoder) encode(v any) []byte {
	if w.json == nil {
		w.json = json.NewEncoder(&w.line)
		w.json.SetEscapeHTML(false)
	}
	w.line.Reset()
	if err := w.json.Encode(v); err != nil {
		panic(err) // strings, numbers and lists of them have no errors
	}
	return w.line.Bytes()
}

func (w *encoder) header(h *Header) []byte {
	w.head = jsonHeader{"trace", version, *h}
	w.head.Group, w.head.Algorithm = strings.ToValidUTF8(h.Group, ""), strings.ToValidUTF8(h.Algorithm, "")
	return w.encode(&w.head)
}

func (w *encoder) event(e *Event) []byte {
	w.next = jsonEvent{Event: *e, Out: w.next.Out[:0]}
	w.next.Err = strings.ToValidUTF8(e.Err[:min(len(e.Err), maxErr)], "")
	for i := range e.Out {
		w.next.Out = append(w.next.Out, encoded(&e.Out[i]))
		w.next.Out[i].From = dmutex.None // it is the node itself
	}
	if !utf8.ValidString(e.Lock) {
		w.next.Lock, w.next.Hex = "", hex.EncodeToString([]byte(e.Lock))
	}
	if e.What == Handle {
		w.in = encoded(&e.In)
		w.in.To, w.next.In = dmutex.None, &w.in
	}
	if e.What.input() || e.What == Born {
		w.next.Phase = e.Phase.String()
	}
	return w.encode(&w.next)
}

func encoded(m *Message) jsonMessage { return jsonMessage{m.Kind.String(), *m} }
