package dmutextest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/search"
)

// What can go wrong; the Kind of a [Violation] is one of these.
var (
	// ErrMutualExclusion: two nodes are Held.
	ErrMutualExclusion = errors.New(pkg + "mutual exclusion")

	// ErrFenceOrder: the fence of a grant is not higher than all before it.
	ErrFenceOrder = errors.New(pkg + "fence order")

	// ErrDeadlock: a node is Waiting, no node is Held, no message is in flight and
	// no tick changes anything.
	ErrDeadlock = errors.New(pkg + "deadlock")

	// ErrLivelock: a run returns to an earlier state, so it need never end
	// although the requests do.
	ErrLivelock = errors.New(pkg + "livelock")

	// ErrLeftBehind: every node is Idle and no message is in flight, but a
	// machine cannot be forgotten, and is not a [dmutex.Keeper] that keeps
	// something.
	ErrLeftBehind = errors.New(pkg + "left behind")

	// ErrRefused: a machine refused a lawful input.
	ErrRefused = errors.New(pkg + "refused")

	// ErrChannel: more messages are in flight from one node to another than
	// [Network.Channel] allows.
	ErrChannel = errors.New(pkg + "channel")

	// ErrUnfound: the first law of WaitsFor is broken: a waiting node would not
	// find the holder.
	ErrUnfound = errors.New(pkg + "holder not found")

	// ErrExcluded: the law of [dmutex.Excluder] is broken: a node excludes the holder.
	ErrExcluded = errors.New(pkg + "holder excluded")

	// ErrContract: a machine does what [dmutex.Machine] rules out. It is still
	// Waiting after Cancel, for example, or sends a message to itself.
	ErrContract = errors.New(pkg + "contract")
)

// pkg begins the errors' text. Scripts leave it out.
const pkg = "dmutextest: "

// A Violation is a run in which something went wrong: its Kind is one of the errors
// above, Why says which nodes and how, and Script is the run, see [RunScript].
type Violation = search.Violation

// brief returns what is wrong as scripts write it.
func brief(v *Violation) string { return name(v.Kind) + ": " + v.Why }

// name is a kind as scripts write it.
func name(kind error) string { return strings.TrimPrefix(kind.Error(), pkg) }

// A verb is what may happen in a group.
type verb uint8

const (
	request verb = iota
	cancel
	release
	tick
	deliver
	duplicate // deliver, and the message stays
	lose
	forget // and be born again
)

var verbs = [...]string{"request", "cancel", "release", "tick", "deliver", "duplicate", "lose", "forget"}

func (v verb) String() string { return verbs[v] }

// local reports whether it is an input of the node itself, not of a message.
func (v verb) local() bool { return v < deliver || v == forget }

// lawful reports whether a node may do it in a phase.
func (v verb) lawful(p dmutex.Phase) bool {
	switch v {
	case request:
		return p == dmutex.Idle
	case cancel:
		return p == dmutex.Waiting
	case release:
		return p == dmutex.Held
	default:
		return true
	}
}

// A group is what all machines of a run are born with.
type group struct {
	algorithm dmutex.Algorithm
	members   []dmutex.NodeID
	holder    dmutex.NodeID
	home      dmutex.NodeID
	fence     uint64
	known     uint64 // see dmutex.Start
}

// Nodes returns the nodes 1 to n.
func Nodes(n int) []dmutex.NodeID {
	ids := make([]dmutex.NodeID, n)
	for i := range ids {
		ids[i] = dmutex.NodeID(i + 1)
	}
	return ids
}

func (g *group) birth(self dmutex.NodeID, clock uint64) (dmutex.Machine, error) {
	m, err := g.algorithm(dmutex.Start{
		Self: self, Members: g.members, Holder: g.holder, Home: g.home, Fence: g.fence, Clock: clock, Known: g.known,
	})
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, dmutex.Misuse("the Algorithm returned neither a machine nor an error")
	}
	if is, clone := reflect.TypeOf(m), reflect.TypeOf(m.Clone()); is != clone {
		return nil, fmt.Errorf("%w: the Clone of a %v is a %v: a machine around another needs a Clone of its own", dmutex.ErrMisuse, is, clone)
	}
	return m, nil
}

// born checks a group at birth: the holder is Held, and all others are Idle.
func (g *group) born(nodes []*local) error {
	for i, l := range nodes {
		for _, other := range nodes[:i] {
			if l.phase == dmutex.Held && other.phase == dmutex.Held {
				return search.Wrong(ErrMutualExclusion, "%d and %d both hold the lock at birth", other.self, l.self)
			}
		}
	}
	for _, l := range nodes {
		phase, fence := dmutex.Idle, uint64(0)
		if l.self == g.holder {
			phase, fence = dmutex.Held, g.fence
		}
		if l.phase != phase || l.fence != fence {
			return search.Wrong(ErrContract, "%d is born %v with fence %d, not %v with fence %d", l.self, l.phase, l.fence, phase, fence)
		}
	}
	return knows(nodes)
}

// act gives a machine a lawful input, and checks what the machine alone shows.
func (g *group) act(m dmutex.Machine, self dmutex.NodeID, do verb, msg dmutex.Message) ([]dmutex.Message, error) {
	was, fence := m.Phase(), m.Fence()
	out, err := input(m, do, msg)
	if err != nil {
		return nil, search.Wrong(ErrRefused, "%v", err)
	}
	return out, g.contract(m, self, do, was, fence, out)
}

// contract checks what an input, which found the machine in a phase and with a
// fence, has made of it.
func (g *group) contract(m dmutex.Machine, self dmutex.NodeID, do verb, was dmutex.Phase, fence uint64, out []dmutex.Message) error {
	is := m.Phase()
	switch {
	case do == request && is == dmutex.Idle,
		do == cancel && is != dmutex.Idle,
		do == release && is != dmutex.Idle,
		do >= tick && is != was && !(was == dmutex.Waiting && is == dmutex.Held):
		return search.Wrong(ErrContract, "%v makes %d, which was %v, %v", do, self, was, is)
	case is != dmutex.Held && m.Fence() != 0:
		return search.Wrong(ErrContract, "%d is %v and has fence %d", self, is, m.Fence())
	case was == dmutex.Held && is == dmutex.Held && m.Fence() != fence:
		return search.Wrong(ErrContract, "%d holds the lock, and its fence changes from %d to %d", self, fence, m.Fence())
	}
	for _, o := range out {
		switch {
		case o.From != self || o.To == self:
			return search.Wrong(ErrContract, "%d sends %v", self, o)
		case !slices.Contains(g.members, o.To):
			return search.Wrong(ErrContract, "%v is not addressed to a member", o)
		}
	}
	return nil
}

func input(m dmutex.Machine, do verb, msg dmutex.Message) ([]dmutex.Message, error) {
	switch do {
	case request:
		return m.Request()
	case cancel:
		return m.Cancel()
	case release:
		return m.Release()
	case tick:
		return m.(dmutex.Ticker).Tick()
	default:
		return m.Handle(msg)
	}
}

// A local is a machine in one state, and what can be seen of it.
type local struct {
	self    dmutex.NodeID
	machine dmutex.Machine
	text    string
	phase   dmutex.Phase
	fence   uint64
	forgets bool // it may be forgotten
	clean   bool // it may be forgotten, or keeps something
	stirs   bool // a tick changes something
	waits   []dmutex.NodeID
	lends   dmutex.NodeID

	excludes []dmutex.NodeID // peers
}

// inspect looks at a machine. It keeps it.
func (g *group) inspect(m dmutex.Machine, self dmutex.NodeID) (local, error) {
	l := local{self: self, machine: m, text: text(m), phase: m.Phase(), fence: m.Fence(), waits: m.WaitsFor(nil)}
	if t := text(m.Clone()); t != l.text {
		return l, search.Wrong(ErrContract, "the clone of %q is %q", l.text, t)
	}
	if _, ok := m.(dmutex.Ticker); ok {
		c := m.Clone()
		out, err := c.(dmutex.Ticker).Tick()
		l.stirs = err != nil || len(out) > 0 || text(c) != l.text
	}
	if f := g.awaits(&l); f != nil {
		return l, f
	}
	if m, ok := m.(dmutex.Lender); ok {
		l.lends = m.Lends()
	}
	if m, ok := m.(dmutex.Excluder); ok {
		for _, id := range g.members {
			if id != self && m.Excludes(id) {
				l.excludes = append(l.excludes, id)
			}
		}
	}
	_, _, l.forgets = m.Forget()
	k, ok := m.(dmutex.Keeper)
	l.clean = l.forgets || ok && k.Keeps()
	if l.forgets {
		return l, g.forgotten(l)
	}
	return l, nil
}

// awaits checks the peers that WaitsFor returns.
func (g *group) awaits(l *local) error {
	if pending := l.phase == dmutex.Waiting || l.machine.Pending(); !pending && len(l.waits) > 0 {
		return search.Wrong(ErrContract, "%d is %v and waits for %v", l.self, l.phase, l.waits)
	}
	for i, id := range l.waits {
		if id == l.self || !slices.Contains(g.members, id) || slices.Contains(l.waits[:i], id) {
			return search.Wrong(ErrContract, "%d waits for %v, which are not distinct peers", l.self, l.waits)
		}
	}
	return nil
}

// knows checks what all nodes say of the holder: the first law of WaitsFor, for those
// that wait, and the law of Excludes. A node that stops looks to the others like one that
// is slow, so every run in which it has stopped is the beginning of one that is explored
// anyway, and its machine is in the same state throughout. So it is enough that no node
// excludes the holder, in any state.
func knows(nodes []*local) error {
	h := slices.IndexFunc(nodes, func(l *local) bool { return l.phase == dmutex.Held })
	if h < 0 {
		return nil
	}
	holder := nodes[h].self
	for _, l := range nodes {
		if l.phase != dmutex.Held && slices.Contains(l.excludes, holder) { // two holders are wrong anyway
			return search.Wrong(ErrExcluded, "%d excludes %v, and %d holds the lock", l.self, l.excludes, holder)
		}
		if l.phase != dmutex.Waiting || l.lends == holder || slices.Contains(l.waits, holder) {
			continue
		}
		if !slices.ContainsFunc(nodes, func(n *local) bool { return n.lends == holder && slices.Contains(l.waits, n.self) }) {
			return search.Wrong(ErrUnfound, "%d waits for %v, but none of these is the holder %d or lends to it", l.self, l.waits, holder)
		}
	}
	return nil
}

// forgotten checks the law of Forget.
func (g *group) forgotten(l local) error {
	m, f := g.reborn(l.machine, l.self, 0)
	if f != nil {
		return f
	}
	if k, ok := l.machine.(dmutex.Keeper); ok && k.Keeps() {
		return nil // something is lost: Config.Forgets shows whether it may be
	}
	if t := text(m); t != l.text {
		return search.Wrong(ErrContract, "%q would be forgotten and be born again as %q", l.text, t)
	}
	return nil
}

// reborn returns the machine that replaces a forgotten one, with a clock and a fence
// that are higher by more than they need be.
func (g *group) reborn(m dmutex.Machine, self dmutex.NodeID, more uint64) (dmutex.Machine, error) {
	clock, known, _ := m.Forget()
	fresh := group{algorithm: g.algorithm, members: g.members, home: g.home, fence: g.fence, known: known + more}
	born, err := fresh.birth(self, clock+more)
	if err != nil {
		return nil, search.Wrong(ErrContract, "%q would be forgotten and cannot be born again: %v", text(m), err)
	}
	return born, nil
}

func text(m dmutex.Machine) string {
	b, err := m.AppendText(nil)
	if err != nil {
		panic(fmt.Sprintf("dmutextest: %T.AppendText: %v", m, err))
	}
	return string(b)
}

// enters checks the grant of node i.
func enters(nodes []*local, i int, last uint64) error {
	self := nodes[i].self
	for _, l := range nodes {
		if l.self != self && l.phase == dmutex.Held {
			return search.Wrong(ErrMutualExclusion, "%d and %d both hold the lock", min(self, l.self), max(self, l.self))
		}
	}
	if nodes[i].fence <= last {
		return search.Wrong(ErrFenceOrder, "%d holds the lock with fence %d after a grant with fence %d", self, nodes[i].fence, last)
	}
	return nil
}

// rests checks a state in which no message is in flight.
func rests(nodes []*local) error {
	for _, l := range nodes {
		if l.phase == dmutex.Held || l.stirs {
			return nil
		}
	}
	for _, l := range nodes {
		if l.phase == dmutex.Waiting {
			return search.Wrong(ErrDeadlock, "%d waits, no node holds the lock and no message is in flight", l.self)
		}
	}
	for _, l := range nodes {
		if !l.clean {
			return search.Wrong(ErrLeftBehind, "all nodes are idle, no message is in flight, and this is left: %q", l.text)
		}
	}
	return nil
}

// crowds checks a channel in which n messages are in flight.
func crowds(net Network, msg dmutex.Message, n int) error {
	if net.Channel > 0 && n > net.Channel {
		return search.Wrong(ErrChannel, "%d messages are in flight from %d to %d", n, msg.From, msg.To)
	}
	return nil
}
