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

// ErrFormat marks a file that is not a trace, or a line that does not belong in one.
// The error names file and line.
var ErrFormat = errors.New("trace: not a trace")

// A reader reads a trace, event by event.
type reader struct {
	name   string
	lines  *bufio.Reader
	header Header
	line   int
	again  encoder // of lines as they should be
}

// newReader reads the header.
func newReader(name string, r io.Reader) (*reader, error) {
	t := &reader{name: name, lines: bufio.NewReaderSize(r, maxLine)}
	line, err := t.next()
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, err
	}
	var h jsonHeader
	t.line = 1
	if json.Unmarshal(line, &h) != nil || h.DMutex != "trace" {
		return nil, t.wrong("it has no header")
	}
	t.header = h.Header
	rising := slices.IsSorted(h.Members) && len(slices.Compact(slices.Clone(h.Members))) == len(h.Members)
	switch {
	case h.Version != version:
		return nil, t.wrong("its version is %d, and this program reads %d", h.Version, version)
	case !bytes.Equal(t.again.header(&t.header), line):
		return nil, t.wrong("the header is not as it would be written: %s", t.again.header(&t.header))
	case !rising || slices.Contains(h.Members, dmutex.None) || !slices.Contains(h.Members, h.Self):
		return nil, t.wrong("the members are not ascending, or %d is not among them", h.Self)
	}
	return t, nil
}

// next returns the next line, with its end. The error is io.EOF after the last line, and
// io.ErrUnexpectedEOF in the middle of one.
func (t *reader) next() ([]byte, error) {
	line, err := t.lines.ReadSlice('\n')
	t.line++
	switch {
	case err == nil:
		return line, nil
	case err == bufio.ErrBufferFull:
		return nil, t.wrong("the line is longer than %d bytes", maxLine)
	case err == io.EOF && len(line) > 0:
		return nil, io.ErrUnexpectedEOF
	case err == io.EOF:
		return nil, io.EOF
	}
	return nil, fmt.Errorf("%s: %w", t.name, err)
}

// maxWhy is how much is said about a line that is wrong, in bytes.
const maxWhy = 500

func (t *reader) wrong(format string, args ...any) error {
	why := strings.TrimSuffix(fmt.Sprintf(format, args...), "\n")
	if len(why) > maxWhy {
		why = strings.ToValidUTF8(why[:maxWhy], "") + " ..."
	}
	return fmt.Errorf("%s:%d: %w: %s", t.name, t.line, ErrFormat, why)
}

func (t *reader) event(line []byte) (Event, error) {
	var j jsonEvent
	if err := json.Unmarshal(line, &j); err != nil {
		return Event{}, t.wrong("%v", err)
	}
	e := Event{
		Time: j.T, What: j.Do, Lock: j.Lock, Peer: j.Peer, Life: j.Life, First: j.First, Last: j.Last, N: j.N, Members: j.Members,
		Clock: j.Clock, Known: j.Known, Limit: j.Limit, Holder: j.Holder, Home: j.Home, Fence: j.Fence, Err: j.Err,
	}
	if bytes.HasPrefix(line, []byte(`{"dmutex":`)) {
		return e, t.wrong("another header: each life of a node has a file of its own")
	}
	if !e.What.known() {
		return e, t.wrong("the event %q is unknown", j.Do)
	}
	if j.Hex != "" {
		name, err := hex.DecodeString(j.Hex)
		if err != nil || utf8.Valid(name) {
			return e, t.wrong("hex is for names that are not UTF-8")
		}
		e.Lock = string(name)
	}
	if (e.Lock != "") != e.What.ofLock() {
		return e, t.wrong("a %s must have a lock if and only if it happens to one", e.What)
	}
	for _, p := range []dmutex.Phase{dmutex.Waiting, dmutex.Held} {
		if p.String() == j.Phase {
			e.Phase = p
		}
	}
	self, ok := t.header.Self, true
	for _, id := range e.Members {
		if !t.member(id) {
			return e, t.wrong("a view has a member that the group does not have")
		}
	}
	if j.In != nil {
		e.In, ok = j.In.message(j.In.From, self)
		ok = ok && t.member(e.In.From)
	}
	for i := range j.Out {
		m, known := j.Out[i].message(self, j.Out[i].To)
		e.Out = append(e.Out, m)
		ok = ok && known && t.member(m.To)
	}
	if !ok {
		return e, t.wrong("a message is of an unknown kind, or not between members")
	}
	// There is only one way to write an event, so any missing, repeated or unknown
	// field shows here.
	if again := t.again.event(&e); !bytes.Equal(again, line) {
		return e, t.wrong("the event is not as it would be written: %s", again)
	}
	return e, nil
}

func (t *reader) member(id dmutex.NodeID) bool {
	_, found := slices.BinarySearch(t.header.Members, id)
	return found
}

func (j *jsonMessage) message(from, to dmutex.NodeID) (Message, bool) {
	m := Message{j.Seq, dmutex.Message{
		From: from, To: to, Attempt: j.Attempt, Clock: j.Clock, Fence: j.Fence, Numbers: j.Numbers, Nodes: j.Nodes,
	}}
	for k := dmutex.Kind(1); int(k) < dmutex.Kinds; k++ {
		if k.String() == j.Kind {
			m.Kind = k
			return m, true
		}
	}
	return m, false
}

// Read reads a whole trace. Errors begin with name, the name of the file.
func Read(name string, r io.Reader) (*Trace, error) {
	reader, err := newReader(name, r)
	if err != nil {
		return nil, err
	}
	t := &Trace{Header: reader.header, Name: name}
	for {
		line, err := reader.next()
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			t.Cut = err != io.EOF
			return t, nil
		case err != nil:
			return nil, err
		}
		e, err := reader.event(line)
		if err != nil {
			return nil, err
		}
		e.Line = reader.line
		t.Events = append(t.Events, e)
	}
}
