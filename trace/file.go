package trace

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
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
	if e.What == Handle || e.What == Lose {
		w.in = encoded(&e.In)
		w.in.To, w.next.In = dmutex.None, &w.in
	}
	if e.What.input() || e.What == Born {
		w.next.Phase = e.Phase.String()
	}
	return w.encode(&w.next)
}

func encoded(m *Message) jsonMessage { return jsonMessage{m.Kind.String(), *m} }

// ErrFormat marks a file that is not a trace, or a line that does not belong in one.
// The error names file and line.
var ErrFormat = errors.New("trace: not a trace")

// A reader reads the lines of a trace.
type reader struct {
	*Trace
	self  dmutex.NodeID // as the last view says
	line  int
	again encoder // of lines as they should be
}

// Read reads a whole trace. Errors begin with name, the name of the file.
func Read(name string, r io.Reader) (*Trace, error) {
	t := &reader{Trace: &Trace{Name: name}}
	for lines := bufio.NewReaderSize(r, maxLine); ; {
		line, err := lines.ReadSlice('\n')
		t.line++
		switch {
		case err == bufio.ErrBufferFull:
			return nil, t.wrong("the line is longer than %d bytes", maxLine)
		case err == io.EOF && t.line == 1:
			return nil, t.wrong("it has no header")
		case err == io.EOF:
			t.Cut = len(line) > 0
			return t.Trace, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", name, err)
		case t.line == 1:
			err = t.readHeader(line)
		default:
			err = t.readEvent(line)
		}
		if err != nil {
			return nil, err
		}
	}
}

func (t *reader) readHeader(line []byte) error {
	var h jsonHeader
	if json.Unmarshal(line, &h) != nil || h.DMutex != "trace" {
		return t.wrong("it has no header")
	}
	t.Header, t.self = h.Header, h.Self
	rising := slices.IsSorted(h.Members) && len(slices.Compact(slices.Clone(h.Members))) == len(h.Members)
	switch {
	case h.Version != version:
		return t.wrong("its version is %d, and this program reads %d", h.Version, version)
	case !bytes.Equal(t.again.header(&t.Header), line):
		return t.wrong("the header is not as it would be written: %s", t.again.header(&t.Header))
	case !rising || slices.Contains(h.Members, dmutex.None) || !slices.Contains(h.Members, h.Self) && (h.Self != dmutex.None || h.Members != nil):
		return t.wrong("the members are not ascending, or %d is not among them", h.Self)
	}
	return nil
}

// maxWhy is how much is said about a line that is wrong, in bytes.
const maxWhy = 500

func (t *reader) wrong(format string, args ...any) error {
	why := strings.TrimSuffix(fmt.Sprintf(format, args...), "\n")
	if len(why) > maxWhy {
		why = strings.ToValidUTF8(why[:maxWhy], "") + " ..."
	}
	return fmt.Errorf("%s:%d: %w: %s", t.Name, t.line, ErrFormat, why)
}

func (t *reader) readEvent(line []byte) error {
	var j jsonEvent
	if err := json.Unmarshal(line, &j); err != nil {
		return t.wrong("%v", err)
	}
	e := j.Event
	e.Line = t.line
	if bytes.HasPrefix(line, []byte(`{"dmutex":`)) {
		return t.wrong("another header: each life of a node has a file of its own")
	}
	if !e.What.ofLock() && !slices.Contains(others, e.What) {
		return t.wrong("the event %q is unknown", e.What)
	}
	if j.Hex != "" {
		name, err := hex.DecodeString(j.Hex)
		if err != nil || utf8.Valid(name) {
			return t.wrong("hex is for names that are not UTF-8")
		}
		e.Lock = string(name)
	}
	if (e.Lock != "") != e.What.ofLock() {
		return t.wrong("a %s must have a lock if and only if it happens to one", e.What)
	}
	e.Phase = named(j.Phase, dmutex.Held)
	stranger := func(id dmutex.NodeID) bool {
		_, found := slices.BinarySearch(t.Header.Members, id)
		return !found && (t.Header.Members != nil || id == dmutex.None)
	}
	switch {
	case slices.ContainsFunc(e.Members, stranger):
		return t.wrong("a view has a member that the group does not have")
	case e.What == View && t.Header.Self != dmutex.None && e.Peer != t.Header.Self:
		return t.wrong("the node has another number than in the header")
	case e.What == View:
		t.self = e.Peer
	case e.Lock != "" && t.self == dmutex.None:
		return t.wrong("the node has no number yet")
	}
	ok := true
	if j.In != nil {
		e.In = j.In.message()
		e.In.To, ok = t.self, e.In.Kind != 0 && !stranger(e.In.From)
	}
	for i := range j.Out {
		m := j.Out[i].message()
		m.From, ok = t.self, ok && m.Kind != 0 && !stranger(m.To)
		e.Out = append(e.Out, m)
	}
	if !ok {
		return t.wrong("a message is of an unknown kind, or not between members")
	}
	// There is only one way to write an event, so any missing, repeated or unknown
	// field shows here.
	if again := t.again.event(&e); !bytes.Equal(again, line) {
		return t.wrong("the event is not as it would be written: %s", again)
	}
	t.Events = append(t.Events, e)
	return nil
}

// message returns the message, with kind 0 if its name is unknown.
func (j *jsonMessage) message() Message {
	j.Message.Kind = named(j.Kind, dmutex.Kind(dmutex.Kinds-1))
	return j.Message
}

// named returns the value from 1 to last with this name, and 0 if there is none.
func named[T interface {
	~uint8
	fmt.Stringer
}](name string, last T) T {
	for v := T(1); v <= last; v++ {
		if v.String() == name {
			return v
		}
	}
	return 0
}
