package node

import (
	"cmp"
	"fmt"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/chase"
	"github.com/dmutex/dmutex/internal/wire"
	"github.com/dmutex/dmutex/lock"
)

// A message is what nodes tell each other about neither views nor a lock's algorithm (see
// package group). On the wire it is in msgpack: what it says, and then
//
//	Leads   epoch, election, 1 for "I lead it" or 0 for "I lead it no longer"
//	Probe   a chase.Chase
//	Ask     lock: "its holder may give it back"
//	Who     number of the question, lock: "do you hold it?"
//	Hold    number of the question, fence or 0 for "no", milliseconds since the grant, milliseconds
//	        that a call there has waited to hold it alone, at least 1, or 0 for "none does"
type message struct {
	says   uint64
	number uint64 // of a question, or the epoch
	name   string // of a lock or an election
	leads  bool
	fence  uint64
	age    uint64
	waited uint64
	probe  chase.Chase
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

func (m *message) encode() []byte {
	return wire.Write(nil, func(f *wire.Fields) { m.fields(f, 0) })
}

// fields describes the message in a group of so many members.
func (m *message) fields(f *wire.Fields, members int) {
	wire.Number(f, &m.says)
	switch m.says {
	case saysLeads:
		wire.Number(f, &m.number)
		f.Refuse(m.number == 0, "the epoch of a leader is 0")
		f.Name(&m.name, maxElection)
		f.Bool(&m.leads)
	case saysProbe:
		wire.Number(f, &m.probe.Began)
		wire.Uint(f, &m.probe.Checked, chase.MaxPath)
		f.Bool(&m.probe.Lent)
		wire.List(f, &m.probe.Path, chase.MaxPath, func(w *chase.Wait) {
			wire.Number(f, &w.Node)
			wire.Number(f, &w.Txn)
			wire.Number(f, &w.Number)
			f.Name(&w.Lock, lock.MaxName)
		})
		wire.List(f, &m.probe.Ask, members, func(id *dmutex.NodeID) { wire.Number(f, id) })
	case saysAsk:
		f.Name(&m.name, lock.MaxName)
	case saysWho:
		wire.Number(f, &m.number)
		f.Name(&m.name, lock.MaxName)
	case saysHold:
		wire.Number(f, &m.number)
		wire.Number(f, &m.fence)
		wire.Uint(f, &m.age, maxAge)
		wire.Uint(f, &m.waited, maxAge)
	default:
		f.Refuse(true, fmt.Sprintf("unknown kind of message: %d", m.says))
	}
}

// readMessage reads what a peer says in a group of so many members.
func readMessage(b []byte, members int) (*message, error) {
	m := new(message)
	if err := wire.Read(b, func(f *wire.Fields) { m.fields(f, members) }); err != nil {
		what := map[uint64]string{
			saysLeads: "announcement of a leader", saysProbe: "deadlock probe", saysAsk: "Ask",
			saysWho: "question who holds a lock", saysHold: "answer who holds a lock",
		}[m.says]
		return nil, fmt.Errorf("%s: %w", cmp.Or(what, "message"), err)
	}
	return m, nil
}

func (u up) Message(from dmutex.NodeID, b []byte) {
	m, err := readMessage(b, u.group.MaxMembers())
	switch {
	case err != nil:
		u.group.Refused(from, err)
	case m.says == saysLeads:
		t := term{epoch: m.number}
		if m.leads {
			t.leader, t.life = from, u.mail.Status(from).Life
		}
		u.terms.learn(m.name, t, nil)
	case m.says == saysProbe && u.cfg.Deadlock == 0:
		u.group.Refused(from, dmutex.PeerMistake("a deadlock probe, although Config.Deadlock is 0"))
	case m.says == saysProbe:
		u.follow(&m.probe)
	case m.says == saysAsk:
		u.locks.Ask(m.name)
	case m.says == saysWho:
		own := u.holds(m.name)
		answer := message{says: saysHold, number: m.number, fence: own.Fence, age: uint64(own.Age.Milliseconds())}
		if waited, _, _ := u.locks.Alone(m.name); waited > 0 {
			answer.waited = max(1, uint64(waited.Milliseconds()))
		}
		_ = u.send(from, answer.encode())
	case m.says == saysHold:
		u.answered(from, m)
	}
}

func (n *Node) send(to dmutex.NodeID, m []byte) error {
	_, err := n.mail.Send(to, m)
	return err
}

// sendAll sends a message to all other members. A member that is gone misses it. A question is not
// sent to a member with a large backlog, which leaves room for requests.
func (n *Node) sendAll(m *message) {
	b := m.encode()
	for _, p := range n.group.Others() {
		if m.says != saysWho || n.mail.Backlog(p) < probeBacklog {
			_ = n.send(p, b)
		}
	}
}
