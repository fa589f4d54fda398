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

type jsonEvent struct {
	T       int64           `json:"t"`
	Do      What            `json:"do"`
	Lock    string          `json:"lock,omitempty"`
	Hex     string          `json:"hex,omitempty"`
	Peer    dmutex.NodeID   `json:"peer,omitempty"`
	Life    uint64          `json:"life,omitempty"`
	N       uint64          `json:"n,omitempty"`
	Members []dmutex.NodeID `json:"members,omitempty"`
	Clock   uint64          `json:"clock,omitempty"`
	Known   uint64          `json:"known,omitempty"`
	Limit   uint64          `json:"limit,omitempty"`
	Holder  dmutex.NodeID   `json:"holder,omitempty"`
	Home    dmutex.NodeID   `json:"home,omitempty"`
	In      *jsonMessage    `json:"in,omitempty"`
	Out     []jsonMessage   `json:"out,omitempty"`
	Phase   string          `json:"phase,omitempty"`
	Fence   uint64          `json:"fence,omitempty"`
	Err     string          `json:"err,omitempty"`
}

type jsonMessage struct {
	Kind    string          `json:"kind"`
	From    dmutex.NodeID   `json:"from,omitempty"`
	To      dmutex.NodeID   `json:"to,omitempty"`
	Seq     uint64          `json:"seq,omitempty"`
	Attempt uint64          `json:"attempt,omitempty"`
	Clock   uint64          `json:"clock,omitempty"`
	Fence   uint64          `json:"fence,omitempty"`
	Numbers []uint64        `json:"numbers,omitempty"`
	Nodes   []dmutex.NodeID `json:"nodes,omitempty"`
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
	out := w.next.Out[:0]
	for i := range e.Out {
		out = append(out, encoded(&e.Out[i], dmutex.None, e.Out[i].To))
	}
	w.next = jsonEvent{
		T: e.Time, Do: e.What, Lock: e.Lock, Peer: e.Peer, Life: e.Life, N: e.N, Members: e.Members,
		Clock: e.Clock, Known: e.Known, Limit: e.Limit, Holder: e.Holder, Home: e.Home, Out: out, Fence: e.Fence, Err: strings.ToValidUTF8(e.Err[:min(len(e.Err), maxErr)], ""),
	}
	if !utf8.ValidString(e.Lock) {
		w.next.Lock, w.next.Hex = "", hex.EncodeToString([]byte(e.Lock))
	}
	if e.What == Handle {
		w.in = encoded(&e.In, e.In.From, dmutex.None)
		w.next.In = &w.in
	}
	if e.What.input() || e.What == Born {
		w.next.Phase = e.Phase.String()
	}
	return w.encode(&w.next)
}

// encoded returns m; the node itself need not be named.
func encoded(m *Message, from, to dmutex.NodeID) jsonMessage {
	return jsonMessage{
		Kind: m.Kind.String(), From: from, To: to, Seq: m.Seq, Attempt: m.Attempt, Clock: m.Clock, Fence: m.Fence, Numbers: m.Numbers, Nodes: m.Nodes,
	}
}
