package site

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
)

// A Machine is a [Site] that has the rest of the contract of [dmutex.Machine], too: AppendText, Clone and Forget. An
// algorithm embeds it in place of a Site, says by its method Fields what else it remembers, and calls [Complete]. A
// method of the algorithm takes the place of the Machine's.
type Machine struct {
	Site
	whole interface {
		fields(f *Fields) (algorithm string)
		clone() dmutex.Machine
		self() *Machine
	}
}

// A complete is a machine of type *T that Complete can complete.
type complete[T any] interface {
	*T
	dmutex.Machine
	Fields(f *Fields) (algorithm string)
	self() *Machine
}

// Complete completes a machine that embeds a [Machine].
func Complete[T any, P complete[T]](m P) dmutex.Machine {
	m.self().whole = whole[T, P]{m}
	return m
}

// A whole is the machine that a Machine is part of.
type whole[T any, P complete[T]] struct{ machine P }

func (w whole[T, P]) fields(f *Fields) string { return w.machine.Fields(f) }

func (w whole[T, P]) self() *Machine { return w.machine.self() }

// clone copies the machine, and what its fields point to.
func (w whole[T, P]) clone() dmutex.Machine {
	c := *w.machine
	m := P(&c)
	m.self().Site = w.machine.self().Site.Clone()
	m.Fields(&Fields{site: &m.self().Site, clones: true})
	return Complete[T](m)
}

// Fields are what a machine remembers beside its [Site]. Its method Fields calls a method for each field that
// changes, in the order in which the machine's text shows them, and returns the name of the algorithm:
//
//	func (m *machine) Fields(f *site.Fields) string {
//		f.Set("awaiting", &m.awaiting)
//		f.Times("deferred", &m.deferred)
//		return "ricart"
//	}
//
// The text leaves out what is zero, false or empty.
type Fields struct {
	site   *Site
	clones bool // give each list memory of its own, and write nothing
	hides  bool // see Only
	text   []byte
}

// list writes a list, or clones it.
func list[E any](f *Fields, all *[]E, write func(b []byte) []byte) {
	if f.clones {
		*all = slices.Clone(*all)
	}
	f.one(write)
}

func (f *Fields) one(write func(b []byte) []byte) {
	if !f.clones && !f.hides {
		f.text = write(f.text)
	}
}

// Set is a field by place in Peers: whether each peer is in a set.
func (f *Fields) Set(name string, set *[]bool) {
	list(f, set, func(b []byte) []byte { return canon.Set(b, " "+name+" ", f.site.Peers(), *set) })
}

// Times is a field by place in Peers: the time of a request of each peer, or 0.
func (f *Fields) Times(name string, times *[]uint64) {
	list(f, times, func(b []byte) []byte {
		for j, t := range *times {
			if t != 0 {
				b = dmutex.Stamp{Clock: t, Node: f.site.Peers()[j]}.AppendTo(append(b, " "+name+" "...))
			}
		}
		return b
	})
}

// Stamps is a list of requests, such as a queue.
func (f *Fields) Stamps(name string, stamps *[]dmutex.Stamp) {
	list(f, stamps, func(b []byte) []byte {
		for _, s := range *stamps {
			b = s.AppendTo(append(b, " "+name+" "...))
		}
		return b
	})
}

// Nodes is a list of nodes.
func (f *Fields) Nodes(name string, nodes *[]dmutex.NodeID) {
	list(f, nodes, func(b []byte) []byte { return canon.List(b, " "+name+"=", *nodes) })
}

// Numbers is a list of numbers.
func (f *Fields) Numbers(name string, numbers *[]uint64) {
	list(f, numbers, func(b []byte) []byte {
		if !slices.ContainsFunc(*numbers, func(n uint64) bool { return n != 0 }) {
			return b
		}
		return canon.List(b, " "+name+"=", *numbers)
	})
}

// Number is a number, such as that of a node.
func (f *Fields) Number(name string, n uint64) {
	f.one(func(b []byte) []byte { return canon.Number(b, " "+name+"=", n) })
}

// Flag is a truth value.
func (f *Fields) Flag(name string, set bool) {
	f.one(func(b []byte) []byte { return canon.Flag(b, " "+name, set) })
}

// Only says whether the fields that follow mean anything now. Otherwise the text leaves them out.
func (f *Fields) Only(now bool) { f.hides = !now }

var _ interface{ self() *Machine } = (*Machine)(nil)

func (s *Machine) self() *Machine { return s }

// parts returns the name and the fields of the whole machine.
func (s *Machine) parts() (algorithm string, f *Fields) {
	if s.whole == nil || s.whole.self() != s {
		panic("site: a machine that embeds a site.Machine has its own AppendText, Clone and Forget, or is made by site.Complete, also if it is a copy")
	}
	f = &Fields{site: &s.Site}
	return s.whole.fields(f), f
}

// AppendText implements [dmutex.Machine]: the name of the algorithm, the Site, and the fields.
func (s *Machine) AppendText(b []byte) ([]byte, error) {
	algorithm, f := s.parts()
	return append(s.AppendSite(append(append(b, algorithm...), ' ')), f.text...), nil
}

// Clone implements [dmutex.Machine].
func (s *Machine) Clone() dmutex.Machine {
	_, _ = s.parts()
	return s.whole.clone()
}

// Forget implements [dmutex.Machine]: an idle machine can be forgotten if no field is in its text.
func (s *Machine) Forget() (clock, known uint64, ok bool) {
	_, f := s.parts()
	return s.clock, s.known, s.Idle() && len(f.text) == 0
}

// WaitsFor implements [dmutex.Machine]: all peers, while a request is pending. An algorithm that knows fewer has
// a method of its own.
func (s *Site) WaitsFor(b []dmutex.NodeID) []dmutex.NodeID {
	if s.Pending() {
		b = append(b, s.Peers()...)
	}
	return b
}
