package node

import (
	"math"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/deadlock"
	"github.com/dmutex/dmutex/internal/msgp"
	"github.com/dmutex/dmutex/membership"
	"github.com/dmutex/dmutex/transport"
)

// A message that is about a lock's algorithm is as transport.AppendMessage writes
// it, and begins with a byte of 0x80 or more. All others begin with one of these,
// and go on in msgpack as well:
//
//	1 to 7  a message about views: all fields of a membership.Message in their order
//	        but From and To, with "another part of this REPORT follows" before the holds
//	Leads   epoch, election, 1 for "I lead it" or 0 for "I lead it no longer"
//	Probe   a deadlock.Chase
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
func roomFor(members int) int { return 512 + 2*members*2*msgp.MaxUint }

// appendMembership appends a message of package membership. Of a REPORT that does
// not fit into size bytes it appends a part, and returns the holds that are left.
func appendMembership(b []byte, m *membership.Message, size int) (_ []byte, left []membership.Hold) {
	b = append(b, byte(m.Kind))
	b = msgp.AppendUint(b, m.Round)
	b = msgp.AppendBool(b, m.Leaving)
	b = msgp.AppendUint(b, m.Life)
	b = appendView(appendView(b, m.Installed), m.Completed)
	b = appendView(b, m.View)
	b = msgp.AppendUint(b, m.Cleared)
	room := size - len(b) - 1 - msgp.MaxHead
	fit := 0
	for fit < len(m.Holds) {
		if room -= len(m.Holds[fit].Lock) + msgp.MaxHead + msgp.MaxUint; room < 0 {
			break
		}
		fit++
	}
	b = msgp.AppendBool(b, fit < len(m.Holds))
	b = msgp.AppendArray(b, fit)
	for _, h := range m.Holds[:fit] {
		b = msgp.AppendUint(msgp.AppendString(b, h.Lock), h.Fence)
	}
	return b, m.Holds[fit:]
}

// readMembership reads a message of package membership in a group of so many
// members. More tells that it is a part of a REPORT.
func readMembership(message []byte, members int) (m membership.Message, more bool, err error) {
	r := reader{msgp.NewReader(message[1:])}
	m.Kind = membership.Kind(message[0])
	m.Round, m.Leaving, m.Life = r.Uint(), r.Bool(), r.Uint()
	m.Installed, m.Completed = r.view(members), r.view(members)
	m.View, m.Cleared = r.view(members), r.Uint()
	more = r.Bool()
	for range r.Array(math.MaxInt) {
		h := membership.Hold{Lock: string(r.Name(transport.MaxName)), Fence: r.Uint()}
		if r.Err() != nil {
			break
		}
		m.Holds = append(m.Holds, h)
	}
	return m, more, r.End()
}

func appendTerm(b []byte, election string, t term) []byte {
	b = msgp.AppendUint(append(b, saysLeads), t.epoch)
	return msgp.AppendBool(msgp.AppendString(b, election), t.leader != dmutex.None)
}

// readTerm reads what a peer announces of itself. The epoch of a term is not 0.
func readTerm(from dmutex.NodeID, message []byte) (name []byte, t term, err error) {
	r := reader{msgp.NewReader(message[1:])}
	t.epoch, name = r.Uint(), r.Name(MaxElection)
	if r.Bool() {
		t.leader = from
	}
	if err = r.End(); err == nil && t.epoch == 0 {
		err = msgp.ErrBound
	}
	return name, t, err
}

func appendProbe(b []byte, c *deadlock.Chase) []byte {
	b = msgp.AppendUint(append(b, saysProbe), c.Began)
	b = msgp.AppendUint(b, uint64(c.Checked))
	b = msgp.AppendBool(b, c.Lent)
	b = msgp.AppendArray(b, len(c.Path))
	for _, w := range c.Path {
		b = msgp.AppendUint(b, uint64(w.Node))
		b = msgp.AppendUint(msgp.AppendUint(b, w.Txn), w.Number)
		b = msgp.AppendString(b, w.Lock)
	}
	b = msgp.AppendArray(b, len(c.Ask))
	for _, id := range c.Ask {
		b = msgp.AppendUint(b, uint64(id))
	}
	return b
}

// readProbe reads a chase in a group of so many members.
func readProbe(message []byte, members int) (*deadlock.Chase, error) {
	r := reader{msgp.NewReader(message[1:])}
	c := &deadlock.Chase{Began: r.Uint(), Checked: int(r.UintUpTo(deadlock.MaxPath)), Lent: r.Bool()}
	for range r.Array(deadlock.MaxPath) {
		c.Path = append(c.Path, deadlock.Wait{Node: r.node(), Txn: r.Uint(), Number: r.Uint(), Lock: string(r.Name(transport.MaxName))})
	}
	for range r.Array(members) {
		c.Ask = append(c.Ask, r.node())
	}
	return c, r.End()
}

// A reader reads what messages of this package are made of.
type reader struct{ msgp.Reader }

func (r *reader) node() dmutex.NodeID { return dmutex.NodeID(r.Uint()) }

func (r *reader) view(members int) (v membership.View) {
	v.Epoch = r.Uint()
	for range r.Array(members) {
		v.Members = append(v.Members, membership.Member{Node: r.node(), Life: r.Uint()})
	}
	return v
}

func appendView(b []byte, v membership.View) []byte {
	b = msgp.AppendUint(b, v.Epoch)
	b = msgp.AppendArray(b, len(v.Members))
	for _, m := range v.Members {
		b = msgp.AppendUint(msgp.AppendUint(b, uint64(m.Node)), m.Life)
	}
	return b
}
