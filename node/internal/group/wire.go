package group

import (
	"math"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/wire"
	"github.com/dmutex/dmutex/transport"
)

// A message about views begins with its Kind, 1 to saysLast, and goes on in msgpack: all
// fields of a membership.Message in their order but From and To, with "another part of
// this REPORT follows" before the holds. A view is its epoch, and node and life of each
// member.
const saysLast = byte(membership.Cleared)

// A message with the name of a process begins with saysName.
const saysName = 15

func appendName(b []byte, name string) []byte {
	return wire.Append(b, func(w *wire.Writer) { writeName(w, name) })
}

func writeName(w *wire.Writer, name string) {
	w.Uint(saysName)
	w.String(name)
}

func readName(message []byte) (string, error) {
	var r wire.Reader
	r.Reset(message)
	r.Number()
	name := string(r.Name(transport.MaxName))
	if !membership.IsName(name) {
		r.Fail("a name cannot be shown")
	}
	return name, r.End(func(w *wire.Writer) { writeName(w, name) })
}

// roomFor returns how large frames must be for the messages in a group of so many
// members.
func roomFor(members int) int { return 512 + 2*members*2*wire.MaxUint }

// AppendMessage appends a message of package membership to b. Of a REPORT that does
// not fit into size bytes it appends a part, and returns the holds that did not fit.
func AppendMessage(b []byte, m *membership.Message, size int) (_ []byte, rest []membership.Hold) {
	start := len(b)
	b = wire.Append(b, func(w *wire.Writer) {
		part := *m
		part.Holds = nil
		writeMessage(w, &part, true)
	})
	room := size - (len(b) - start) - wire.MaxHead
	fit := 0
	for fit < len(m.Holds) {
		if room -= len(m.Holds[fit].Lock) + wire.MaxHead + wire.MaxUint; room < 0 {
			break
		}
		fit++
	}
	part := *m
	part.Holds = m.Holds[:fit]
	b = wire.Append(b[:start], func(w *wire.Writer) { writeMessage(w, &part, fit < len(m.Holds)) })
	return b, m.Holds[fit:]
}

func writeMessage(w *wire.Writer, m *membership.Message, more bool) {
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
	w.Array(len(m.Holds))
	for _, h := range m.Holds {
		w.String(h.Lock)
		w.Uint(h.Fence)
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
	for range r.Array(math.MaxInt) {
		h := membership.Hold{Lock: string(r.Name(transport.MaxName)), Fence: r.Number()}
		if r.Err() != nil {
			break
		}
		m.Holds = append(m.Holds, h)
	}
	return m, more, r.End(func(w *wire.Writer) { writeMessage(w, &m, more) })
}
