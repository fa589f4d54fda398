package node

import (
	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/chase"
	"github.com/dmutex/dmutex/internal/wire"
	"github.com/dmutex/dmutex/transport"
)

// A message that is about neither views nor a lock's algorithm (see package group) begins
// with one of these, and goes on in msgpack:
//
//	Leads   epoch, election, 1 for "I lead it" or 0 for "I lead it no longer"
//	Probe   a chase.Chase
//	Ask     lock: "its holder may give it back"
//	Who     number of the question, lock: "do you hold it?"
//	Hold    number of the question, fence or 0 for "no", milliseconds since the grant
const (
	saysLeads = 16
	saysProbe = 17
	saysAsk   = 18
	saysWho   = 19
	saysHold  = 20
)

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
	t.epoch, name = r.Number(), r.Name(maxElection)
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

func appendWho(b []byte, number uint64, lock string) []byte {
	return wire.Append(b, func(w *wire.Writer) { writeWho(w, number, lock) })
}

func writeWho(w *wire.Writer, number uint64, lock string) {
	w.Uint(saysWho)
	w.Uint(number)
	w.String(lock)
}

func readWho(message []byte) (number uint64, lock string, err error) {
	r := newReader(message)
	r.Number()
	number, lock = r.Number(), string(r.Name(transport.MaxName))
	return number, lock, r.End(func(w *wire.Writer) { writeWho(w, number, lock) })
}

func appendHold(b []byte, number, fence, age uint64) []byte {
	return wire.Append(b, func(w *wire.Writer) { writeHold(w, number, fence, age) })
}

func writeHold(w *wire.Writer, number, fence, age uint64) {
	w.Uint(saysHold)
	w.Uint(number)
	w.Uint(fence)
	w.Uint(age)
}

func readHold(message []byte) (number, fence, age uint64, err error) {
	r := newReader(message)
	r.Number()
	number, fence, age = r.Number(), r.Number(), r.Uint(maxAge)
	return number, fence, age, r.End(func(w *wire.Writer) { writeHold(w, number, fence, age) })
}

// maxAge bounds the milliseconds of a hold: a century.
const maxAge = 100 * 366 * 24 * 3600 * 1000

// A reader reads what messages of this package are made of.
type reader struct{ wire.Reader }

func newReader(message []byte) *reader {
	r := new(reader)
	r.Reset(message)
	return r
}

func (r *reader) node() dmutex.NodeID { return dmutex.NodeID(r.Number()) }
