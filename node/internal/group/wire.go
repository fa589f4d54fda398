package group

import (
	"math"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/wire"
	"github.com/dmutex/dmutex/transport"
)

// What a message says that is about neither a lock nor of package node.
const (
	saysMore = iota + 1 // bytes of a membership.Message: more of it follows
	saysLast            // likewise, and it is complete
	saysName = 15       // the name of the process
)

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

// roomFor returns how large frames must be in a group of so many members.
func roomFor(members int) int { return 512 + 2*members*2*wire.MaxUint }

// Parts returns a message of package membership as messages of at most size bytes for the mail.
func Parts(m *membership.Message, size int) (parts [][]byte) {
	rest := wire.Append(nil, func(w *wire.Writer) { writeMessage(w, m) })
	for ; len(rest) >= size; rest = rest[size-1:] {
		parts = append(parts, append([]byte{saysMore}, rest[:size-1]...))
	}
	return append(parts, append([]byte{saysLast}, rest...))
}

// writeMessage writes all fields but From and To, in their order, in msgpack. A view is its
// epoch, and node and life of each member.
func writeMessage(w *wire.Writer, m *membership.Message) {
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
	w.Array(len(m.Holds))
	for _, h := range m.Holds {
		w.String(h.Lock)
		w.Uint(h.Fence)
	}
	w.Bool(m.Past != nil)
	if m.Past == nil {
		return
	}
	w.Array(len(m.Past.Former))
	for _, f := range m.Past.Former {
		w.Uint(uint64(f.Node))
		w.Uint(f.Epoch)
	}
	w.Array(len(m.Past.Words))
	for _, word := range m.Past.Words {
		w.Uint(uint64(word.Node))
		w.Uint(word.Epoch)
		w.Array(len(word.Members))
		for _, id := range word.Members {
			w.Uint(uint64(id))
		}
		w.Uint(word.Of)
		w.Array(len(word.Differs))
		for _, d := range word.Differs {
			w.String(d.Lock)
			w.Uint(d.Bits)
		}
	}
}

// readMessage reads what writeMessage wrote, in a group of so many members.
func readMessage(message []byte, members int) (m membership.Message, err error) {
	var r wire.Reader
	r.Reset(message)
	m.Kind, m.Round, m.Leaving, m.Life = membership.Kind(r.Uint(math.MaxUint8)), r.Number(), r.Bool(), r.Number()
	for _, v := range []*membership.View{&m.Installed, &m.Completed, &m.View} {
		v.Epoch = r.Number()
		for range r.Array(members) {
			v.Members = append(v.Members, membership.Member{Node: dmutex.NodeID(r.Number()), Life: r.Number()})
		}
	}
	m.Cleared = r.Number()
	for range r.Array(math.MaxInt) {
		m.Holds = append(m.Holds, membership.Hold{Lock: string(r.Name(transport.MaxName)), Fence: r.Number()})
		if r.Err() != nil {
			break // the others that were told of may be many
		}
	}
	if r.Bool() {
		m.Past = new(membership.Past)
		for range r.Array(membership.MaxFormer) {
			m.Past.Former = append(m.Past.Former, membership.Former{Node: dmutex.NodeID(r.Number()), Epoch: r.Number()})
		}
		for range r.Array(membership.MaxWords) {
			word := membership.Word{Node: dmutex.NodeID(r.Number()), Epoch: r.Number()}
			for range r.Array(membership.MaxMembers) {
				word.Members = append(word.Members, dmutex.NodeID(r.Number()))
			}
			word.Of = r.Number()
			for range r.Array(math.MaxInt) {
				word.Differs = append(word.Differs, membership.Differ{Lock: string(r.Name(transport.MaxName)), Bits: r.Number()})
				if r.Err() != nil {
					break
				}
			}
			m.Past.Words = append(m.Past.Words, word)
		}
	}
	return m, r.End(func(w *wire.Writer) { writeMessage(w, &m) })
}
