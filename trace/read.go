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
	if !e.What.known() {
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
	for _, p := range []dmutex.Phase{dmutex.Waiting, dmutex.Held} {
		if p.String() == j.Phase {
			e.Phase = p
		}
	}
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
		e.In, ok = j.In.message()
		e.In.To, ok = t.self, ok && !stranger(e.In.From)
	}
	for i := range j.Out {
		m, known := j.Out[i].message()
		m.From, ok = t.self, ok && known && !stranger(m.To)
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

func (j *jsonMessage) message() (m Message, ok bool) {
	m = j.Message
	for m.Kind = 1; int(m.Kind) < dmutex.Kinds; m.Kind++ {
		if m.Kind.String() == j.Kind {
			return m, true
		}
	}
	return m, false
}
