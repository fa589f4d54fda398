package dmutextest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/dmutex/dmutex"
)

// FuzzMachine is the body of a fuzz target. It gives the machines of a group (of
// three nodes if there are no members) local inputs at any time, their own
// messages in any order, and forged messages. It checks that no machine panics,
// that each refusal is of the right kind and has changed nothing, that phases
// change only as the contract allows, and that a machine can be forgotten
// whenever it says so.
func FuzzMachine(f *testing.F, algorithm dmutex.Algorithm, members ...dmutex.NodeID) {
	if len(members) == 0 {
		members = Nodes(3)
	}
	f.Add([]byte{0, 0, 0, 1, 4, 0, 4, 0, 4, 0, 4, 0, 2, 0, 4, 0})
	f.Add([]byte{0, 0, 1, 0, 0, 0, 5, 2, 0, 1, 1, 0, 0, 0, 0})
	f.Add([]byte("forged messages of many kinds, in an order that nobody foresaw"))
	f.Fuzz(func(t *testing.T, data []byte) { fuzzOnce(t, algorithm, members, data) })
}

func fuzzOnce(t testing.TB, algorithm dmutex.Algorithm, members []dmutex.NodeID, data []byte) {
	z := &fuzz{Config: Config{Algorithm: algorithm, Members: members}, machines: births(t, algorithm, members), data: data}
	for len(z.data) > 0 {
		if err := z.turn(); err != nil {
			t.Fatal(err)
		}
	}
}

type fuzz struct {
	Config
	machines []dmutex.Machine
	wire     []dmutex.Message
	data     []byte
}

// below takes a number less than n from the data.
func (z *fuzz) below(n int) int {
	if len(z.data) == 0 {
		return 0
	}
	b := z.data[0]
	z.data = z.data[1:]
	return int(b) % n
}

func (z *fuzz) turn() error {
	const forged = lose
	switch do := [...]verb{request, cancel, release, tick, deliver, forged, share}[z.below(7)]; {
	case do == forged:
		msg := z.forge()
		i := z.below(len(z.machines))
		if z.below(8) > 0 {
			msg.To = z.Members[i]
		}
		return z.input(i, deliver, msg)
	case do.local():
		i := z.below(len(z.machines))
		_, ticks := z.machines[i].(dmutex.Ticker)
		_, shares := z.machines[i].(dmutex.Sharer)
		if (ticks || do != tick) && (shares || do != share) {
			return z.input(i, do, dmutex.Message{})
		}
	case len(z.wire) > 0:
		k := z.below(len(z.wire))
		msg := z.wire[k]
		if z.below(8) > 0 { // else the message comes again
			z.wire = slices.Delete(z.wire, k, k+1)
		}
		return z.input(slices.Index(z.Members, msg.To), deliver, msg.Clone())
	}
	return nil
}

// forge makes a message that may or may not make sense.
func (z *fuzz) forge() dmutex.Message {
	number := func() uint64 { // mostly small, and sometimes near a limit
		limits := [...]uint64{1<<32 - 1, 1 << 32, 1<<62 - 1, 1 << 62, 1<<62 + 1, math.MaxUint64}
		k := z.below(256)
		if k < len(limits) {
			return limits[k]
		}
		return uint64(k % 8)
	}
	member := func() dmutex.NodeID { // mostly a member
		switch k := z.below(32); k {
		case 0:
			return dmutex.None
		case 1:
			return slices.Max(z.Members) + 1
		default:
			return z.Members[k%len(z.Members)]
		}
	}
	msg := dmutex.Message{
		Kind: dmutex.Kind(z.below(dmutex.Kinds + 1)), From: member(), To: member(),
		Attempt: number(), Clock: number(), Fence: number(),
	}
	for range z.below(6) {
		msg.Numbers = append(msg.Numbers, number())
	}
	for range z.below(6) {
		msg.Nodes = append(msg.Nodes, member())
	}
	return msg
}

// input gives a machine any input, and returns what goes wrong.
func (z *fuzz) input(i int, do verb, msg dmutex.Message) error {
	m := z.machines[i]
	was := look(m, z.Members[i])
	copied := m.Clone()
	out, err := input(m, do, msg)
	if wrong := alike(m, copied, was.self, do, msg.Clone(), out); wrong != nil {
		return fmt.Errorf("%q: %v %v: %w", was.text, do, msg, wrong)
	}
	if err != nil {
		return refused(m, was, do, msg, out, err)
	}
	if !do.lawful(was) {
		return fmt.Errorf("%q: %v is taken", was.text, do)
	}
	wrong := z.contract(m, was, do, out)
	if wrong == nil {
		_, wrong = z.inspect(m, was.self)
	}
	if wrong != nil {
		return fmt.Errorf("%q: %v %v: %w", was.text, do, msg, wrong)
	}
	for _, o := range out {
		z.wire = append(z.wire, o.Clone())
	}
	return nil
}
