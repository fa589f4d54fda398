package node

import (
	"encoding/binary"
	"math"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/deadlock"
	"github.com/dmutex/dmutex/membership"
	"github.com/dmutex/dmutex/transport"
)

// A message that is about a lock's algorithm is as transport.AppendMessage writes
// it, and begins with a byte of 0x80 or more. All others begin with one of these:
//
//	says...   then
//	Prepare   round, leaving
//	Promise   round, leaving, installed view, completed view, fence, clock
//	Refuse    round, life
//	View      view
//	Report    view, wait, more, number of holds, (fence, lock) for each; "more" if another part follows
//	Complete  view
//	Leads     1 for "I lead" or 0 for "I lead no longer", epoch, election
//	Probe     a deadlock.Chase
//	Ask       lock: "its holder may give it back"
//
// Numbers are as binary.AppendUvarint writes them. A name has its length before
// it, or is the rest of the message. A view is its epoch, the rest of its fence,
// the number of its members, and node and life for each.
const (
	saysPrepare  = byte(membership.Prepare)
	saysPromise  = byte(membership.Promise)
	saysRefuse   = byte(membership.Refuse)
	saysView     = byte(membership.Decide)
	saysReport   = byte(membership.Report)
	saysComplete = byte(membership.Complete)

	saysLeads = 16
	saysProbe = 17
	saysAsk   = 18
)

// roomFor returns how large frames must be for the messages in a group of so many
// members.
func roomFor(members int) int { return 512 + 2*members*2*binary.MaxVarintLen64 }

func appendView(b []byte, v membership.View) []byte {
	b = binary.AppendUvarint(b, uint64(v.Epoch))
	b = binary.AppendUvarint(b, v.Fence&math.MaxUint32)
	b = binary.AppendUvarint(b, uint64(len(v.Members)))
	for _, m := range v.Members {
		b = binary.AppendUvarint(b, uint64(m.Node))
		b = binary.AppendUvarint(b, m.Life)
	}
	return b
}

// appendMembership appends a message of package membership. Of a REPORT that does
// not fit into size bytes it appends a part, and returns the holds that are left.
func appendMembership(b []byte, m *membership.Message, size int) (_ []byte, left []membership.Hold) {
	b = append(b, byte(m.Kind))
	switch m.Kind {
	case membership.Prepare:
		b = binary.AppendUvarint(b, uint64(m.Round))
		b = appendBool(b, m.Leaving)
	case membership.Promise:
		b = binary.AppendUvarint(b, uint64(m.Round))
		b = appendBool(b, m.Leaving)
		b = appendView(appendView(b, m.Installed), m.Completed)
		b = binary.AppendUvarint(binary.AppendUvarint(b, m.Fence), m.Clock)
	case membership.Refuse:
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(m.Round)), m.Life)
	case membership.Report:
		b = appendView(b, m.View)
		b = binary.AppendVarint(b, m.Wait)
		room := size - len(b) - 1 - binary.MaxVarintLen64
		fit := 0
		for fit < len(m.Holds) {
			if room -= len(m.Holds[fit].Lock) + 2*binary.MaxVarintLen64; room < 0 {
				break
			}
			fit++
		}
		b = appendBool(b, fit < len(m.Holds))
		b = binary.AppendUvarint(b, uint64(fit))
		for _, h := range m.Holds[:fit] {
			b = appendName(binary.AppendUvarint(b, h.Fence), h.Lock)
		}
		left = m.Holds[fit:]
	default:
		b = appendView(b, m.View)
	}
	return b, left
}

// readMembership reads a message of package membership in a group of so many
// members. More tells that it is a part of a REPORT.
func readMembership(message []byte, members int) (m membership.Message, more, ok bool) {
	m.Kind = membership.Kind(message[0])
	r := reader{rest: message[1:], ok: true}
	switch m.Kind {
	case membership.Prepare:
		m.Round, m.Leaving = r.epoch(), r.bool()
	case membership.Promise:
		m.Round, m.Leaving = r.epoch(), r.bool()
		m.Installed, m.Completed = r.view(members), r.view(members)
		m.Fence, m.Clock = r.number(math.MaxUint64), r.number(math.MaxUint64)
	case membership.Refuse:
		m.Round, m.Life = r.epoch(), r.number(math.MaxUint64)
	case membership.Report:
		m.View = r.view(members)
		m.Wait = r.signed()
		more = r.bool()
		for range r.number(uint64(len(r.rest))) {
			h := membership.Hold{Fence: r.number(math.MaxUint64), Lock: r.name()}
			if !r.ok {
				break
			}
			m.Holds = append(m.Holds, h)
		}
	default:
		m.View = r.view(members)
	}
	return m, more, r.end()
}

func appendTerm(b []byte, election string, t term) []byte {
	b = appendBool(append(b, saysLeads), t.leader != dmutex.None)
	b = binary.AppendUvarint(b, t.epoch)
	return append(b, election...)
}

// readTerm reads what a peer announces of itself, behind saysLeads.
func readTerm(from dmutex.NodeID, message []byte) (name []byte, t term, ok bool) {
	r := reader{rest: message, ok: true}
	if r.bool() {
		t.leader = from
	}
	t.epoch = r.number(math.MaxUint64)
	return r.rest, t, r.ok && t.epoch > 0 && len(r.rest) > 0 && len(r.rest) <= MaxElection
}

func appendProbe(b []byte, c *deadlock.Chase) []byte {
	b = append(b, saysProbe)
	b = binary.AppendUvarint(b, c.Began)
	b = binary.AppendUvarint(b, uint64(c.Checked))
	b = appendBool(b, c.Lent)
	b = binary.AppendUvarint(b, uint64(len(c.Path)))
	for _, w := range c.Path {
		b = binary.AppendUvarint(b, uint64(w.Node))
		b = binary.AppendUvarint(b, w.Txn)
		b = binary.AppendUvarint(b, w.Number)
		b = appendName(b, w.Lock)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Ask)))
	for _, id := range c.Ask {
		b = binary.AppendUvarint(b, uint64(id))
	}
	return b
}

// readProbe reads a chase, behind saysProbe, in a group of so many members.
func readProbe(message []byte, members int) (*deadlock.Chase, bool) {
	r := reader{rest: message, ok: true}
	c := &deadlock.Chase{Began: r.number(math.MaxUint64)}
	c.Checked = int(r.number(deadlock.MaxPath))
	c.Lent = r.bool()
	for range r.number(deadlock.MaxPath) {
		w := deadlock.Wait{Node: r.node(), Txn: r.number(math.MaxUint64), Number: r.number(math.MaxUint64), Lock: r.name()}
		if !r.ok {
			return nil, false
		}
		c.Path = append(c.Path, w)
	}
	for range r.number(uint64(members)) {
		c.Ask = append(c.Ask, r.node())
	}
	return c, r.end() && len(c.Path) > 0
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendName(b []byte, name string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(name))), name...)
}

// A reader takes a message apart. No length is believed before it is checked. After
// something that is not as it should be it is not ok, and everything is 0.
type reader struct {
	rest []byte
	ok   bool
}

func (r *reader) number(most uint64) uint64 {
	v, size := binary.Uvarint(r.rest)
	if !r.ok || size <= 0 || v > most {
		r.ok = false
		return 0
	}
	r.rest = r.rest[size:]
	return v
}

func (r *reader) signed() int64 {
	v, size := binary.Varint(r.rest)
	if !r.ok || size <= 0 {
		r.ok = false
		return 0
	}
	r.rest = r.rest[size:]
	return v
}

func (r *reader) bool() bool          { return r.number(1) == 1 }
func (r *reader) epoch() uint32       { return uint32(r.number(math.MaxUint32)) }
func (r *reader) node() dmutex.NodeID { return dmutex.NodeID(r.number(math.MaxUint64)) }

func (r *reader) name() string {
	size := int(r.number(transport.MaxName))
	if size == 0 || size > len(r.rest) {
		r.ok = false
		return ""
	}
	name := string(r.rest[:size])
	r.rest = r.rest[size:]
	return name
}

func (r *reader) view(members int) (v membership.View) {
	v.Epoch = r.epoch()
	v.Fence = uint64(v.Epoch)<<32 | r.number(math.MaxUint32)
	for range r.number(uint64(members)) {
		v.Members = append(v.Members, membership.Member{Node: r.node(), Life: r.number(math.MaxUint64)})
	}
	if !r.ok {
		return membership.View{}
	}
	return v
}

// end reports whether the message was read to its end, and was as it should be.
func (r *reader) end() bool { return r.ok && len(r.rest) == 0 }
