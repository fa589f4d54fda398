package node

import (
	"fmt"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/chase"
	"github.com/dmutex/dmutex/internal/wire"
	"github.com/dmutex/dmutex/transport"
)

// A message is what nodes tell each other about neither views nor a lock's algorithm (see
// package group). On the wire it is in msgpack: what it says, and then
//
//	Leads   epoch, election, 1 for "I lead it" or 0 for "I lead it no longer"
//	Probe   a chase.Chase
//	Ask     lock: "its holder may give it back"
//	Who     number of the question, lock: "do you hold it?"
//	Hold    number of the question, fence or 0 for "no", milliseconds since the grant
type message struct {
	says   uint64
	number uint64 // of a question, or the epoch
	name   string // of a lock or an election
	leads  bool
	fence  uint64
	age    uint64
	probe  *chase.Chase
}

const (
	saysLeads = 16
	saysProbe = 17
	saysAsk   = 18
	saysWho   = 19
	saysHold  = 20
)

// maxAge bounds the milliseconds of a hold: a century.
const maxAge = 100 * 366 * 24 * 3600 * 1000

func (m *message) append(b []byte) []byte { return wire.Append(b, m.write) }

func (m *message) write(w *wire.Writer) {
	w.Uint(m.says)
	switch m.says {
	case saysLeads:
		w.Uint(m.number)
		w.String(m.name)
		w.Bool(m.leads)
	case saysProbe:
		writeProbe(w, m.probe)
	case saysAsk:
		w.String(m.name)
	case saysWho:
		w.Uint(m.number)
		w.String(m.name)
	case saysHold:
		w.Uint(m.number)
		w.Uint(m.fence)
		w.Uint(m.age)
	}
}

// readMessage reads what a peer says in a group of so many members.
func readMessage(b []byte, members int) (*message, error) {
	var r wire.Reader
	r.Reset(b)
	m, what := &message{says: r.Number()}, ""
	switch m.says {
	case saysLeads:
		what = "announcement of a leader"
		m.number, m.name, m.leads = r.Number(), string(r.Name(maxElection)), r.Bool()
		if m.number == 0 {
			r.Fail("the epoch of a leader is 0")
		}
	case saysProbe:
		what = "deadlock probe"
		m.probe = readProbe(&r, members)
	case saysAsk:
		what = "Ask"
		m.name = string(r.Name(transport.MaxName))
	case saysWho:
		what = "question who holds a lock"
		m.number, m.name = r.Number(), string(r.Name(transport.MaxName))
	case saysHold:
		what = "answer who holds a lock"
		m.number, m.fence, m.age = r.Number(), r.Number(), r.Uint(maxAge)
	default:
		return nil, dmutex.PeerMistake(fmt.Sprintf("unknown kind of message: %d", m.says))
	}
	if err := r.End(m.write); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return m, nil
}

func writeProbe(w *wire.Writer, c *chase.Chase) {
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

func readProbe(r *wire.Reader, members int) *chase.Chase {
	c := &chase.Chase{Began: r.Number(), Checked: int(r.Uint(chase.MaxPath)), Lent: r.Bool()}
	for range r.Array(chase.MaxPath) {
		c.Path = append(c.Path, chase.Wait{Node: dmutex.NodeID(r.Number()), Txn: r.Number(), Number: r.Number(), Lock: string(r.Name(transport.MaxName))})
	}
	for range r.Array(members) {
		c.Ask = append(c.Ask, dmutex.NodeID(r.Number()))
	}
	return c
}

func (u up) Message(from dmutex.NodeID, b []byte) {
	m, err := readMessage(b, u.group.MaxMembers())
	switch {
	case err != nil:
		u.group.Refused(from, err)
	case m.says == saysLeads:
		t := term{epoch: m.number}
		if m.leads {
			t.leader = from
		}
		u.terms.learn(m.name, t, nil)
	case m.says == saysProbe && u.cfg.Deadlock == 0:
		u.group.Refused(from, dmutex.PeerMistake("a deadlock probe, although Config.Deadlock is 0"))
	case m.says == saysProbe:
		u.follow(m.probe)
	case m.says == saysAsk:
		u.locks.Ask(m.name)
	case m.says == saysWho:
		answer := &message{says: saysHold, number: m.number}
		if st := u.locks.Status(m.name); st.Phase == dmutex.Held && st.Holder == u.Self() {
			answer.fence, answer.age = st.Fence, uint64(st.Age.Milliseconds())
		}
		_ = u.send(from, answer.append(nil))
	case m.says == saysHold:
		u.answered(from, m)
	}
}

func (n *Node) send(to dmutex.NodeID, m []byte) error {
	_, err := n.mail.Send(to, m)
	return err
}

// sendAll sends a message to all other members. One that is gone misses it.
func (n *Node) sendAll(m *message) {
	b := m.append(nil)
	for _, p := range n.group.Others() {
		_ = n.send(p, b)
	}
}
