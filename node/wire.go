package node

import (
	"math"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/chase"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/wire"
	"github.com/dmutex/dmutex/transport"
)

// A message that is about a lock's algorithm is as wire.AppendMessage writes
// it, and begins with a byte of 0x80 or more. All others begin with one of these,
// and go on in msgpack as well:
//
//	1 to 7  a message about views: all fields of a membership.Message in their order
//	        but From and To, with "another part of this REPORT follows" before the holds
//	Leads   epoch, election, 1 for "I lead it" or 0 for "I lead it no longer"
//	Probe   a chase.Chase
//	Ask     lock: "its holder may give it back"
//
// A view is its epoch, and node and life of each member.
const (
	saysLast = byte(membership.Cleared) // of those about views

	saysLeads = 16
	saysProbe = 17
	saysAsk   = 18
)

// roomFor returns how large frames must be for the messages in a group of so many
// members.
func roomFor(members int) int { return 512 + 2*members*2*wire.MaxUint }

// appendMembership appends a message of package membership. Of a REPORT that does
// not fit into size bytes it appends a part, and returns the holds that are left.
func appendMembership(b []byte, m *membership.Message, size int) (_ []byte, left []membership.Hold) {
	start := len(b)
	b = wire.Append(b, func(w *wire.Writer) {
		part := *m
		part.Holds = nil
		writeMembership(w, &part, true)
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
	b = wire.Append(b[:start], func(w *wire.Writer) { writeMembership(w, &part, fit < len(m.Holds)) })
	return b, m.Holds[fit:]
}

func writeMembership(w *wire.Writer, m *membership.Message, more bool) {
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

// readMembership reads a message of package membership in a group of so many
// members. More tells that it is a part of a REPORT.
func readMembership(message []byte, members int) (m membership.Message, more bool, err error) {
	r := newReader(message)
	m.Kind = membership.Kind(r.Uint(uint64(saysLast)))
	m.Round, m.Leaving, m.Life = r.Number(), r.Bool(), r.Number()
	for _, v := range []*membership.View{&m.Installed, &m.Completed, &m.View} {
		v.Epoch = r.Number()
		for range r.Array(members) {
			v.Members = append(v.Members, membership.Member{Node: r.node(), Life: r.Number()})
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
	return m, more, r.End(func(w *wire.Writer) { writeMembership(w, &m, more) })
}

func appendTerm(b []byte, election string, t term) []byte {
	return wire.Append(b, func(w *wire.Writer) { writeTerm(w, election, t) })
}

func writeTerm(w *wire.Writer, election string, t term) {
	w.Uint(saysLeads)
	w.Uint(t.epoch)
	w.String(election)
	w.Bool(t.leader != dmutex.None)
}

// readTerm reads what a peer announces of itself. The epoch of a term is not 0.
func readTerm(from dmutex.NodeID, message []byte) (name []byte, t term, err error) {
	r := newReader(message)
	r.Number()
	t.epoch, name = r.Number(), r.Name(MaxElection)
	if r.Bool() {
		t.leader = from
	}
	if t.epoch == 0 {
		r.Fail("the epoch of a leader is 0")
	}
	return name, t, r.End(func(w *wire.Writer) { writeTerm(w, string(name), t) })
}

func appendProbe(b []byte, c *chase.Chase) []byte {
	return wire.Append(b, func(w *wire.Writer) { writeProbe(w, c) })
}

func writeProbe(w *wire.Writer, c *chase.Chase) {
	w.Uint(saysProbe)
	w.Uint(c.Began)
	w.Uint(uint64(c.Checked))
	w.Bool(c.Lent)
	w.Array(len(c.Path))
	for _, wait := range c.Path {
		w.Uint(uint64(wait.Node))
		w.Uint(wait.Txn)
		w.Uint(wait.Number)
		w.String(wait.Lock)
	}
	w.Array(len(c.Ask))
	for _, id := range c.Ask {
		w.Uint(uint64(id))
	}
}

// readProbe reads a chase in a group of so many members.
func readProbe(message []byte, members int) (*chase.Chase, error) {
	r := newReader(message)
	r.Number()
	c := &chase.Chase{Began: r.Number(), Checked: int(r.Uint(chase.MaxPath)), Lent: r.Bool()}
	for range r.Array(chase.MaxPath) {
		c.Path = append(c.Path, chase.Wait{Node: r.node(), Txn: r.Number(), Number: r.Number(), Lock: string(r.Name(transport.MaxName))})
	}
	for range r.Array(members) {
		c.Ask = append(c.Ask, r.node())
	}
	return c, r.End(func(w *wire.Writer) { writeProbe(w, c) })
}

func appendAsk(b []byte, lock string) []byte {
	return wire.Append(b, func(w *wire.Writer) { writeAsk(w, lock) })
}

func writeAsk(w *wire.Writer, lock string) {
	w.Uint(saysAsk)
	w.String(lock)
}

func readAsk(message []byte) (lock []byte, err error) {
	r := newReader(message)
	r.Number()
	lock = r.Name(transport.MaxName)
	return lock, r.End(func(w *wire.Writer) { writeAsk(w, string(lock)) })
}

// A reader reads what messages of this package are made of.
type reader struct{ wire.Reader }

func newReader(message []byte) *reader {
	r := new(reader)
	r.Reset(message)
	return r
}

func (r *reader) node() dmutex.NodeID { return dmutex.NodeID(r.Number()) }
