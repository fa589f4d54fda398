package dmutextest

import (
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
	z := &fuzz{t: t, group: Config{Algorithm: algorithm, Members: members}, machines: births(t, algorithm, members), data: data}
	for len(z.data) > 0 {
		z.turn()
	}
}

type fuzz struct {
	t        testing.TB
	group    Config
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

func (z *fuzz) turn() {
	const forged = lose
	switch do := [...]verb{request, cancel, release, tick, deliver, forged}[z.below(6)]; {
	case do.local():
		i := z.below(len(z.machines))
		if _, ok := z.machines[i].(dmutex.Ticker); ok || do != tick {
			z.input(i, do, dmutex.Message{})
		}
	case do == forged:
		msg := z.forge()
		i := z.below(len(z.machines))
		if z.below(8) > 0 {
			msg.To = z.group.Members[i]
		}
		z.input(i, deliver, msg)
	case len(z.wire) > 0:
		k := z.below(len(z.wire))
		msg := z.wire[k]
		if z.below(8) > 0 { // else it comes again
			z.wire = slices.Delete(z.wire, k, k+1)
		}
		z.input(slices.Index(z.group.Members, msg.To), deliver, msg.Clone())
	}
}

// forge makes a message that may or may not make sense.
func (z *fuzz) forge() dmutex.Message {
	msg := dmutex.Message{
		Kind:    dmutex.Kind(z.below(dmutex.Kinds + 1)),
		From:    z.member(),
		To:      z.member(),
		Attempt: z.number(),
		Clock:   z.number(),
		Fence:   z.number(),
	}
	for range z.below(6) {
		msg.Numbers = append(msg.Numbers, z.number())
	}
	for range z.below(6) {
		msg.Nodes = append(msg.Nodes, z.member())
	}
	return msg
}

// number is mostly small, and sometimes near a limit.
func (z *fuzz) number() uint64 {
	limits := [...]uint64{1<<32 - 1, 1 << 32, 1<<62 - 1, 1 << 62, 1<<62 + 1, math.MaxUint64}
	k := z.below(256)
	if k < len(limits) {
		return limits[k]
	}
	return uint64(k % 8)
}

// member is mostly one.
func (z *fuzz) member() dmutex.NodeID {
	switch k := z.below(32); k {
	case 0:
		return dmutex.None
	case 1:
		return slices.Max(z.group.Members) + 1
	default:
		return z.group.Members[k%len(z.group.Members)]
	}
}

func (z *fuzz) input(i int, do verb, msg dmutex.Message) {
	m, self := z.machines[i], z.group.Members[i]
	was := local{text: text(m), phase: m.Phase(), fence: m.Fence()}
	out, err := input(m, do, msg)
	if err != nil {
		if f := refused(m, was, do, msg, out, err); f != nil {
			z.t.Fatal(f)
		}
		return
	}
	if !do.lawful(was.phase) {
		z.t.Fatalf("%q: %v is taken", was.text, do)
	}
	if f := z.group.contract(m, self, do, was.phase, was.fence, out); f != nil {
		z.t.Fatalf("%q: %v %v: %v", was.text, do, msg, f)
	}
	if _, f := z.group.inspect(m, self); f != nil {
		z.t.Fatalf("%q: %v %v: %v", was.text, do, msg, f)
	}
	for _, o := range out {
		z.wire = append(z.wire, o.Clone())
	}
}
