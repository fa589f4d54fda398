package dmutextest

import (
	"math"
	"slices"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/search"
)

// An exploration clones a machine before each input, and knows its states by their texts. So it does not
// see what a machine does to itself between two inputs, nor what its text leaves out. The checks here give
// the same inputs to a machine that is not cloned in between.

// message returns the message of an input, in memory of its own.
func (m *model) message(do verb, msg uint32) dmutex.Message {
	if do != deliver {
		return dmutex.Message{}
	}
	return m.flights[msg].Clone()
}

// borrowed checks that a machine does not use the memory of the message that it was given, in.
func (m *model) borrowed(machine dmutex.Machine, was *local, do verb, msg uint32, in dmutex.Message) error {
	if m.graves || do != deliver || len(in.Numbers)+len(in.Nodes) == 0 {
		return nil
	}
	if given := m.flights[msg]; !slices.Equal(given.Numbers, in.Numbers) || !slices.Equal(given.Nodes, in.Nodes) {
		return search.Wrong(errBlind, "Handle of %d changes the lists of the message that it is given, %v, to %v: clone them", was.self, given.Message, in)
	}
	is := text(machine)
	for i := range in.Numbers {
		in.Numbers[i] = math.MaxUint64
	}
	for i := range in.Nodes {
		in.Nodes[i] = math.MaxUint64
	}
	if now := text(machine); now != is {
		return search.Wrong(errBlind, "Handle of %d keeps the lists of the message that it is given, %v, and they belong to another machine: clone them", was.self, m.flights[msg].Message)
	}
	return nil
}

// repeats gives a machine the input that led to this state, and then the next one, without a clone in
// between. It checks that the machine does the same as its clone, which has sent and become what the step says.
func (m *model) repeats(was *local, do verb, msg uint32, s *step, clone dmutex.Machine) error {
	if !m.pairs || m.graves || was.before == nil || was.by == forget {
		return nil
	}
	machine := was.before.machine.Clone()
	sent, _ := input(machine, was.by, m.message(was.by, was.in))
	l := lived{machine: machine, sent: words(sent)}
	if now := text(machine); now != was.text {
		return search.Wrong(errBlind, "%v makes of %q once %q and once %q: %s", m.doing(was.by, was.in), was.before.text, was.text, now, unseen)
	}
	return m.same(&l, was, do, msg, s.sent, text(clone))
}

// unseen says why machines of equal text may do different things.
const unseen = "what a machine does must depend on what AppendText writes, not on a field that it leaves out, a variable of the package, chance, or the order of a map"

// A lived is a machine that has had all inputs of a run and was never cloned.
type lived struct {
	machine dmutex.Machine
	sent    []string // by the last input
}

// same gives a machine an input, and checks that it sends and becomes the same as another machine of the same text did.
func (m *model) same(l *lived, was *local, do verb, msg uint32, sent []uint32, becomes string) error {
	if do == forget {
		born, err := m.rebirth(l.machine, was.self, 1)
		if err != nil {
			return err
		}
		*l = lived{machine: born}
	} else {
		copied := l.machine.Clone()
		out, err := input(l.machine, do, m.message(do, msg))
		before := l.sent
		if l.sent = words(out); err != nil {
			return search.Wrong(errBlind, "%s of %d refuses %s (%v), and that of another machine in the same state, %q, did not: %s",
				do.method(), was.self, m.doing(do, msg), err, was.text, unseen)
		}
		for k, o := range l.sent {
			switch {
			case k < len(sent) && m.flights[sent[k]].String() == o && len(l.sent) == len(sent):
			case slices.Contains(before, o):
				return search.Wrong(errBlind, "%s of %d sends %s again, which the call before has returned: each input begins with an empty output (Begin of site.Site, which Ask, Cancel, Leave and Check call)",
					do.method(), was.self, o)
			default:
				return m.other(was, do, msg, sent, l.sent)
			}
		}
		if len(l.sent) != len(sent) {
			return m.other(was, do, msg, sent, l.sent)
		}
		if now := text(copied); now != was.text {
			return search.Wrong(errBlind, "an input to %q made its clone %q: Clone must copy what the machine changes", was.text, now)
		}
	}
	if now := text(l.machine); now != becomes {
		return search.Wrong(errBlind, "%s makes of %q once %q and once %q: %s", m.doing(do, msg), was.text, becomes, now, unseen)
	}
	return nil
}

// other says that two machines in the same state send different messages.
func (m *model) other(was *local, do verb, msg uint32, sent []uint32, now []string) error {
	var once []string
	for _, id := range sent {
		once = append(once, m.flights[id].String())
	}
	return search.Wrong(errBlind, "%s makes %q send once [%s] and once [%s]: %s", m.doing(do, msg), was.text, strings.Join(once, ", "), strings.Join(now, ", "), unseen)
}

// doing says what an input is.
func (m *model) doing(do verb, msg uint32) string {
	if do == deliver {
		return m.flights[msg].String()
	}
	return do.String()
}

// words are the messages as text.
func words(out []dmutex.Message) (all []string) {
	for _, o := range out {
		all = append(all, o.String())
	}
	return all
}

// lives makes the machines that live through the run that begins with this state.
func (w *world) lives() error {
	machines, err := w.births()
	if err != nil {
		return err
	}
	w.lived = make([]lived, len(machines))
	for i, m := range machines {
		w.lived[i].machine = m
		if now := text(m); now != w.places[i].text {
			w.lived = nil
			return search.Wrong(errBlind, "a machine of %d is born as %q and another as %q: %s", w.Members[i], w.places[i].text, now, unseen)
		}
	}
	return nil
}

// live gives the machine of node i that lives through the run the input of a step. It checks that the machine does the same,
// and that no other machine changes.
func (w *world) live(i int, do verb, msg uint32, s *step) error {
	was := *s.to // the state before is known by the text of the machine
	was.text = text(w.lived[i].machine)
	if err := w.same(&w.lived[i], &was, do, msg, s.sent, s.to.text); err != nil {
		w.lived = nil // it has gone another way
		return err
	}
	for j := range w.lived {
		if len(w.lived) > 5 {
			break // it would take long, and shows in small groups
		}
		if now := text(w.lived[j].machine); j != i && now != w.places[j].text {
			err := search.Wrong(errBlind, "%s of %d makes %d %q, which was %q: machines must share nothing, such as a variable of the package or Start.Members",
				do.method(), w.Members[i], w.Members[j], now, w.places[j].text)
			w.lived = nil
			return err
		}
	}
	return nil
}

// alike gives a clone the input that a machine has had, and checks that it does the same.
func alike(m, clone dmutex.Machine, self dmutex.NodeID, do verb, msg dmutex.Message, out []dmutex.Message) error {
	again, _ := input(clone, do, msg)
	if one, other := words(out), words(again); !slices.Equal(one, other) {
		return search.Wrong(errBlind, "%s of %d sends [%s], and that of its clone [%s]: each input begins with an empty output, and %s",
			do.method(), self, strings.Join(one, ", "), strings.Join(other, ", "), unseen)
	}
	if one, other := text(m), text(clone); one != other {
		return search.Wrong(errBlind, "%s of %d makes it %q, and its clone %q: %s", do.method(), self, one, other, unseen)
	}
	return nil
}
