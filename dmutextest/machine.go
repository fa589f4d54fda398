package dmutextest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/dmutex/dmutex"
)

// TestMachine checks that an algorithm keeps the contract of [dmutex.Machine], in
// a group of the members, at least two. If none are given, it checks groups of 1, 3
// and 5 nodes. The network is FIFO.
//
// It does not replace [Explore]: its runs are short. With the flag -short it looks at
// fewer states.
func TestMachine(t *testing.T, algorithm dmutex.Algorithm, members ...dmutex.NodeID) {
	three, five := members, members
	if len(members) == 0 {
		three, five = Nodes(3), Nodes(5)
		t.Run("alone", func(t *testing.T) { alone(t, algorithm) })
	}
	most := 10_000
	if testing.Short() {
		most = 5_000
	}
	t.Run("start", func(t *testing.T) { starts(t, algorithm, three) })
	fresh := Config{Algorithm: algorithm, Members: three, Requests: []int{2}, Cancels: []int{1}, MaxStates: most}
	held := fresh
	held.Holder, held.Home, held.Fence = three[len(three)-1], three[1], 7<<22
	t.Run("fresh", func(t *testing.T) { states(t, fresh) })
	t.Run("carried over", func(t *testing.T) { states(t, held) })
	forgetful := Config{Algorithm: algorithm, Members: three, Home: three[1], Requests: []int{1}, Forgets: []int{1}, MaxStates: most}
	t.Run("forgetful", func(t *testing.T) { states(t, forgetful) })
	if sharer(algorithm, three) {
		fresh.Requests, fresh.Shares = []int{1}, []int{1}
		held.Requests, held.Shares = []int{1}, []int{1}
		held.Holder, held.Sharers = dmutex.None, three[:2]
		forgetful.Shares = []int{1}
		t.Run("shared", func(t *testing.T) { states(t, fresh) })
		t.Run("carried over, shared", func(t *testing.T) { states(t, held) })
		t.Run("forgetful, shared", func(t *testing.T) { states(t, forgetful) })
	} else {
		t.Run("not shared", func(t *testing.T) {
			if m, err := algorithm(dmutex.Start{Self: three[0], Members: three, Sharers: three[:1]}); !errors.Is(err, dmutex.ErrMisuse) {
				t.Errorf("it is no Sharer: got %v, %v for Start.Sharers, want ErrMisuse", m, err)
			}
		})
	}
	t.Run("equal text, equal future", func(t *testing.T) { futures(t, fresh) })
	t.Run("output", func(t *testing.T) { outputs(t, algorithm, five) })
	t.Run("allocations", func(t *testing.T) { allocations(t, algorithm, five) })
}

// alone checks that a node without peers enters at once, and asks nobody.
func alone(t testing.TB, algorithm dmutex.Algorithm) {
	r, err := Explore(Config{Algorithm: algorithm, Members: Nodes(1), Requests: []int{3}})
	if want := (Report{States: 7, Steps: 6, Depth: 6, Inside: 1, Dense: true, Complete: true}); err != nil || r != want {
		t.Fatalf("three entries of a node alone: got %v, %v, want %v", r, err, want)
	}
}

// sharer reports whether the machines are a [dmutex.Sharer].
func sharer(algorithm dmutex.Algorithm, members []dmutex.NodeID) bool {
	m, _ := algorithm(dmutex.Start{Self: members[0], Members: members})
	_, ok := m.(dmutex.Sharer)
	return ok
}

// starts checks that a Start which makes no sense is refused.
func starts(t testing.TB, algorithm dmutex.Algorithm, members []dmutex.NodeID) {
	self, stranger := members[0], slices.Max(members)+1
	for _, tt := range []struct {
		why   string
		start dmutex.Start
	}{
		{"no members", dmutex.Start{Self: self}},
		{"no self", dmutex.Start{Members: members}},
		{"self is a stranger", dmutex.Start{Self: stranger, Members: members}},
		{"a member twice", dmutex.Start{Self: self, Members: append(slices.Clone(members), self)}},
		{"a member is None", dmutex.Start{Self: self, Members: append(slices.Clone(members), dmutex.None)}},
		{"the holder is a stranger", dmutex.Start{Self: self, Members: members, Holder: stranger}},
		{"a sharer is a stranger", dmutex.Start{Self: self, Members: members, Sharers: []dmutex.NodeID{stranger}}},
		{"a holder and a sharer", dmutex.Start{Self: self, Members: members, Holder: self, Sharers: members[:1]}},
		{"the home is a stranger", dmutex.Start{Self: self, Members: members, Home: stranger}},
	} {
		if m, err := algorithm(tt.start); !errors.Is(err, dmutex.ErrMisuse) {
			t.Errorf("%s: got %v, %v, want ErrMisuse", tt.why, m, err)
		}
	}
	given := slices.Clone(members)
	slices.Reverse(given)
	want := slices.Clone(given)
	for _, self := range given {
		if _, err := algorithm(dmutex.Start{Self: self, Members: given}); err != nil {
			t.Errorf("members in another order: %v", err)
		}
	}
	if !slices.Equal(given, want) {
		t.Errorf("Start.Members was changed from %v to %v", want, given)
	}
}

// states explores, and then looks at each state of a machine that occurred.
func states(t testing.TB, c Config) {
	seen, _, err := explore(c)
	if err != nil {
		t.Fatal(err)
	}
	spoiled := make(map[dmutex.NodeID][]dmutex.Message)
	for _, self := range c.Members {
		spoiled[self] = hostile(self, c.Members)
	}
	for _, l := range seen.locals {
		if pending := l.machine.Pending(); l.phase != dmutex.Idle && pending != (l.phase == dmutex.Waiting) {
			t.Fatalf("%q: %v, and Pending is %v", l.text, l.phase, pending)
		}
		m := l.machine.Clone() // one for all: it is as before after an input that it refuses
		refuses := func(do verb, msg dmutex.Message) {
			out, err := input(m, do, msg)
			if err := refused(m, l, do, msg, out, err); err != nil {
				t.Fatal(err)
			}
		}
		for _, do := range []verb{request, share, cancel, release} {
			if !do.lawful(l) && (do != share || l.sharer) {
				refuses(do, dmutex.Message{})
			}
		}
		for _, msg := range spoiled[l.self] {
			refuses(deliver, msg)
		}
	}
}

// refused checks that a machine has refused an input with the right error, and has not changed.
func refused(m dmutex.Machine, was *local, do verb, msg dmutex.Message, out []dmutex.Message, err error) error {
	want := dmutex.ErrMisuse
	switch {
	case do == deliver:
		want = dmutex.ErrPeer
	case (do == request || do == share) && do.lawful(was):
		want = dmutex.ErrExhausted
	}
	if !errors.Is(err, want) || text(m) != was.text || len(out) > 0 {
		what := do.String()
		if do == deliver {
			what = msg.String()
		}
		return fmt.Errorf("%q: %s is refused by %v (want %v), makes %q and sends %v", was.text, what, err, want, text(m), out)
	}
	return nil
}

// hostile returns messages that no correct peer sends under any algorithm.
func hostile(self dmutex.NodeID, members []dmutex.NodeID) (all []dmutex.Message) {
	peer, stranger := members[0], slices.Max(members)+1
	if peer == self {
		peer = members[1]
	}
	for _, kind := range []dmutex.Kind{0, dmutex.Kind(dmutex.Kinds), math.MaxUint8} {
		all = append(all, dmutex.Message{Kind: kind, From: peer, To: self, Attempt: 1})
	}
	for kind := range dmutex.Kind(dmutex.Kinds) {
		for _, spoil := range []func(*dmutex.Message){
			func(m *dmutex.Message) { m.From = stranger },
			func(m *dmutex.Message) { m.From = dmutex.None },
			func(m *dmutex.Message) { m.From = self },
			func(m *dmutex.Message) { m.To = peer },
			func(m *dmutex.Message) { m.To = stranger },
			func(m *dmutex.Message) { m.To = dmutex.None },
			func(m *dmutex.Message) { m.Attempt = math.MaxUint64 },
			func(m *dmutex.Message) { m.Clock = math.MaxUint64 },
			func(m *dmutex.Message) { m.Fence = math.MaxUint64 },
		} {
			msg := dmutex.Message{Kind: kind, From: peer, To: self, Attempt: 1, Clock: 1}
			spoil(&msg)
			all = append(all, msg)
		}
	}
	return all
}

// futures checks that machines of equal text behave alike: machines that are
// never copied or exchanged follow the model, which knows only texts.
func futures(t testing.TB, c Config) {
	w, err := newWorld(c)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(50) {
		if run, err := w.random(seed, true, endless); err != nil {
			v, _ := wrongly(err)
			t.Fatal(w.ran(run, seed, v))
		}
	}
}

// outputs checks that a driver which keeps the output notices its mistake, and that an
// input to a clone leaves the output alone.
func outputs(t testing.TB, algorithm dmutex.Algorithm, members []dmutex.NodeID) {
	for i, m := range births(t, algorithm, members) {
		out, _ := m.Request()
		want := fmt.Sprint(out)
		leave(t, m.Clone())
		if is := fmt.Sprint(out); is != want {
			t.Errorf("node %d: an input to a clone makes %q of its output %q", members[i], is, want)
		}
		leave(t, m)
		if len(out) > 0 && fmt.Sprint(out) == want {
			t.Errorf("node %d: the next call left %v in the output of the last", members[i], out[0])
		}
	}
}

// leave undoes a request.
func leave(t testing.TB, m dmutex.Machine) {
	undo := m.Cancel
	if m.Phase() == dmutex.Held {
		undo = m.Release
	}
	if _, err := undo(); err != nil {
		t.Fatal(err)
	}
}

func births(t testing.TB, algorithm dmutex.Algorithm, members []dmutex.NodeID) []dmutex.Machine {
	c := Config{Algorithm: algorithm, Members: members}
	machines, err := c.births()
	if err != nil {
		t.Fatal(err)
	}
	return machines
}

// allocations checks that in the long run nothing is allocated.
func allocations(t testing.TB, algorithm dmutex.Algorithm, members []dmutex.NodeID) {
	p := pump{TB: t, members: members, machines: births(t, algorithm, members)}
	round := func() {
		for i := range p.machines {
			p.cycle(i)
		}
	}
	for range 10 {
		round()
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations while each of %d nodes enters once, want none", n, len(members))
	}
}

// A pump carries messages without allocating.
type pump struct {
	testing.TB
	members  []dmutex.NodeID
	machines []dmutex.Machine
	wire     []dmutex.Message // its memory is reused
}

// cycle lets node i enter and leave.
func (p *pump) cycle(i int) {
	m := p.machines[i]
	p.send(m.Request())
	for ticks := 0; m.Phase() != dmutex.Held; ticks++ {
		if p.deliver(); m.Phase() == dmutex.Held {
			break
		}
		if ticks > 100*len(p.machines) {
			p.Fatalf("node %d waits forever: %q", p.members[i], text(m))
		}
		for _, m := range p.machines {
			if m, ok := m.(dmutex.Ticker); ok {
				p.send(m.Tick())
			}
		}
	}
	p.send(m.Release())
	p.deliver()
}

func (p *pump) deliver() {
	most := 1000 * len(p.machines) * len(p.machines)
	for k := 0; k < len(p.wire); k++ {
		if k == most {
			p.Fatalf("one entry has taken %d messages, %d more are in flight, and the last is %v: the machines answer each other without end", k, len(p.wire)-k, p.wire[k])
		}
		p.send(p.machines[slices.Index(p.members, p.wire[k].To)].Handle(p.wire[k]))
	}
	p.wire = p.wire[:0]
}

func (p *pump) send(out []dmutex.Message, err error) {
	if err != nil {
		p.Fatal(err)
	}
	for _, o := range out {
		k := len(p.wire)
		p.wire = slices.Grow(p.wire, 1)[:k+1]
		o.Numbers, o.Nodes = append(p.wire[k].Numbers[:0], o.Numbers...), append(p.wire[k].Nodes[:0], o.Nodes...)
		p.wire[k] = o
	}
}

// BenchmarkMachine measures in memory how long a request, its entry and its release
// take, including all messages and the work of all machines, in a group of five
// nodes that take turns (or of members, if given).
func BenchmarkMachine(b *testing.B, algorithm dmutex.Algorithm, members ...dmutex.NodeID) {
	if len(members) == 0 {
		members = Nodes(5)
	}
	p := pump{TB: b, members: members, machines: births(b, algorithm, members)}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p.cycle(i % len(members))
	}
}
