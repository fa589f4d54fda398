package group

import (
	"math"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/wire"
	"github.com/dmutex/dmutex/transport"
)

// A message about views begins with its Kind, 1 to saysLast, and goes on in msgpack: all
// fields of a membership.Message in their order but From, To, Holds and Past, then
// whether another part of this REPORT follows, whether it has a Past, and the lines of
// this part. A line is what it is and its fields:
//
//	hold      lock, fence
//	former    node, epoch
//	word      node, epoch, the members that it is about, all members
//	differ    lock, members: of the last word
//
// A view is its epoch, and node and life of each member.
const saysLast = byte(membership.Cleared)

// A message with the name of a process begins with saysName.
const saysName = 15

func writeName(name string) func(w *wire.Writer) {
	return func(w *wire.Writer) { w.Uint(saysName); w.String(name) }
}

func readName(message []byte) (string, error) {
	var r wire.Reader
	r.Reset(message)
	r.Number()
	name := string(r.Name(transport.MaxName))
	if !membership.IsName(name) {
		r.Fail("a name cannot be shown")
	}
	return name, r.End(writeName(name))
}

const (
	holdLine = iota
	formerLine
	wordLine
	differLine
)

// roomFor returns how large frames must be for the messages in a group of so many
// members.
func roomFor(members int) int { return 512 + 2*members*2*wire.MaxUint }

// LinesOf returns the lines of a message, as they are written.
func LinesOf(m *membership.Message) (lines [][]byte) {
	var all []byte
	add := func(write func(w *wire.Writer)) {
		start := len(all)
		all = wire.Append(all, write)
		lines = append(lines, all[start:])
	}
	named := func(what uint64, lock string, number uint64) {
		add(func(w *wire.Writer) { w.Uint(what); w.String(lock); w.Uint(number) })
	}
	for _, h := range m.Holds {
		named(holdLine, h.Lock, h.Fence)
	}
	if m.Past == nil {
		return lines
	}
	for _, f := range m.Past.Former {
		add(func(w *wire.Writer) { w.Uint(formerLine); w.Uint(uint64(f.Node)); w.Uint(f.Epoch) })
	}
	for _, word := range m.Past.Words {
		if word.Node != dmutex.None { // else a part of one, without its beginning
			add(func(w *wire.Writer) {
				w.Uint(wordLine)
				w.Uint(uint64(word.Node))
				w.Uint(word.Epoch)
				w.Uint(word.Of)
				w.Array(len(word.Members))
				for _, id := range word.Members {
					w.Uint(uint64(id))
				}
			})
		}
		for _, d := range word.Differs {
			named(differLine, d.Lock, d.Bits)
		}
	}
	return lines
}

// AppendMessage appends a message of package membership to b, with as many of its lines as
// fit into size bytes. It returns the other lines.
func AppendMessage(b []byte, m *membership.Message, lines [][]byte, size int) (_ []byte, rest [][]byte) {
	room := size - wire.MaxHead - len(wire.Append(nil, func(w *wire.Writer) { writeMessage(w, m, nil, true) }))
	fit := 0
	for fit < len(lines) && len(lines[fit]) <= room {
		room -= len(lines[fit])
		fit++
	}
	return wire.Append(b, func(w *wire.Writer) { writeMessage(w, m, lines[:fit], fit < len(lines)) }), lines[fit:]
}

func writeMessage(w *wire.Writer, m *membership.Message, lines [][]byte, more bool) {
	w.Uint(uint64(m.Kind))
	w.Uint(m.Round)
	w.Bool(m.Leaving)
	w.Uint(m.Life)
	for _, v := range []*membership.View{&m.Installed, &m.Completed, &m.View} {
		w.Uint(v.Epoch)
		w.Array(len(v.Members))
		for _, who := range v.Members {
			w.Uint(uint64(who.Node))
			w.Uint(who.Life)
		}
	}
	w.Uint(m.Cleared)
	w.Bool(more)
	w.Bool(m.Past != nil)
	w.Array(len(lines))
	for _, l := range lines {
		w.Raw(l)
	}
}

// readMessage reads a message of package membership in a group of so many
// members. More tells that it is a part of a REPORT.
func readMessage(message []byte, members int) (m membership.Message, more bool, err error) {
	var r wire.Reader
	r.Reset(message)
	m.Kind = membership.Kind(r.Uint(uint64(saysLast)))
	m.Round, m.Leaving, m.Life = r.Number(), r.Bool(), r.Number()
	for _, v := range []*membership.View{&m.Installed, &m.Completed, &m.View} {
		v.Epoch = r.Number()
		for range r.Array(members) {
			v.Members = append(v.Members, membership.Member{Node: dmutex.NodeID(r.Number()), Life: r.Number()})
		}
	}
	m.Cleared, more = r.Number(), r.Bool()
	past := &membership.Past{}
	if r.Bool() {
		m.Past = past
	}
	for range r.Array(math.MaxInt) {
		if readLine(&r, &m, past); r.Err() != nil {
			break
		}
	}
	return m, more, r.End(func(w *wire.Writer) { writeMessage(w, &m, LinesOf(&m), more) })
}

func readLine(r *wire.Reader, m *membership.Message, past *membership.Past) {
	switch r.Uint(differLine) {
	case holdLine:
		m.Holds = append(m.Holds, membership.Hold{Lock: string(r.Name(transport.MaxName)), Fence: r.Number()})
	case formerLine:
		past.Former = append(past.Former, membership.Former{Node: dmutex.NodeID(r.Number()), Epoch: r.Number()})
	case wordLine:
		word := membership.Word{Node: dmutex.NodeID(r.Number()), Epoch: r.Number(), Of: r.Number()}
		for range r.Array(membership.MaxMembers) {
			word.Members = append(word.Members, dmutex.NodeID(r.Number()))
		}
		past.Words = append(past.Words, word)
	case differLine:
		if len(past.Words) == 0 {
			past.Words = append(past.Words, membership.Word{})
		}
		last := &past.Words[len(past.Words)-1]
		last.Differs = append(last.Differs, membership.Differ{Lock: string(r.Name(transport.MaxName)), Bits: r.Number()})
	}
}
