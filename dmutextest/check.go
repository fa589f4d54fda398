package dmutextest

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/search"
)

// What can go wrong; the Kind of a [Violation] is one of these.
var (
	// ErrMutualExclusion: two nodes are Held, and not both share.
	ErrMutualExclusion = errors.New(pkg + "mutual exclusion")

	// ErrFenceOrder: the fence of a grant is not higher than all before it with which it conflicts.
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

	// ErrRefused: a machine refused a lawful input, or a message that no right machine would have sent.
	ErrRefused = errors.New(pkg + "refused")

	// ErrChannel: more messages are in flight from one node to another than
	// [Network.Channel] allows, or than any algorithm needs.
	ErrChannel = errors.New(pkg + "channel")

	// ErrUnfound: the first law of WaitsFor is broken: a waiting node would not
	// find the holder.
	ErrUnfound = errors.New(pkg + "holder not found")

	// ErrExcluded: the law of [dmutex.Excluder] is broken: a node excludes the holder.
	ErrExcluded = errors.New(pkg + "holder excluded")

	// ErrOvertaken: a request is granted although a conflicting one with a lower stamp is pending;
	// see [Config.Stamped].
	ErrOvertaken = errors.New(pkg + "overtaken")

	// ErrApart: a request is pending, no message is in flight, and all nodes that wait for the lock or
	// hold it share it. A withdrawn request does not wait, but is pending.
	ErrApart = errors.New(pkg + "apart")

	// ErrWanted: a node shares the lock, no message is in flight, and its Wanted does not say whether
	// a conflicting request of another node is pending.
	ErrWanted = errors.New(pkg + "wanted")

	// ErrContract: a machine does what [dmutex.Machine] rules out. It is still
	// Waiting after Cancel, for example, panics, sends a message to itself, or sends again what
	// an earlier call has returned.
	ErrContract = errors.New(pkg + "contract")
)

// pkg begins the errors' text. Scripts leave it out.
const pkg = "dmutextest: "

// A Violation is a run in which something went wrong: its Kind is one of the errors
// above, Why says which nodes and how, and Script is the run, see [RunScript].
type Violation = search.Violation

// grave are the kinds of what a lock is for. They are judged first: what else is wrong
// with a machine must not hide them.
var grave = []error{ErrMutualExclusion, ErrFenceOrder, ErrDeadlock}

// errBlind is an ErrContract by which a machine is not what its text says, so that nothing else that is seen of it
// need be true. It comes before all.
var errBlind = fmt.Errorf("%w", ErrContract)

func isGrave(err error) bool {
	v, ok := wrongly(err)
	return ok && (v.Kind == errBlind || slices.Contains(grave, v.Kind))
}

func isBlind(err error) bool {
	v, ok := wrongly(err)
	return ok && v.Kind == errBlind
}

// worst returns the first error that is blind, or that is grave, or else the first.
func worst(all ...error) error {
	for _, is := range []func(error) bool{isBlind, isGrave} {
		if i := slices.IndexFunc(all, is); i >= 0 {
			return all[i]
		}
	}
	return cmp.Or(all...)
}

func wrongly(err error) (*Violation, bool) { return errors.AsType[*Violation](err) }

// brief returns what is wrong as scripts write it.
func brief(v *Violation) string { return name(v.Kind) + ": " + v.Why }

// name is a kind as scripts write it.
func name(kind error) string { return strings.TrimPrefix(kind.Error(), pkg) }

// A verb is what may happen in a group.
type verb uint8

const (
	request verb = iota
	cancel
	tick
	forget // and be born again
	share
	release
	deliver
	duplicate // deliver, and the message stays
	lose
)

var verbs = [...]string{"request", "cancel", "tick", "forget", "share", "release", "deliver", "duplicate", "lose"}

func (v verb) String() string { return verbs[v] }

// method is the method of a machine that does v.
func (v verb) method() string {
	if v >= deliver {
		return "Handle"
	}
	return strings.ToUpper(verbs[v][:1]) + verbs[v][1:]
}

// local reports whether v is an input of the node itself, not a message.
func (v verb) local() bool { return v < deliver }

// consumes reports whether a message is received or lost.
func (v verb) consumes() bool { return v == deliver || v == lose }

// inPhase is the only phase in which a node may do something.
var inPhase = map[verb]dmutex.Phase{request: dmutex.Idle, share: dmutex.Idle, cancel: dmutex.Waiting, release: dmutex.Held}

// lawful reports whether a node may do v.
func (v verb) lawful(l *local) bool {
	only, limited := inPhase[v]
	other := l.pending && (v == request && l.shared || v == share && !l.shared) // a withdrawn request of the other kind
	return (!limited || l.phase == only) && !other
}

// Nodes returns the nodes 1 to n.
func Nodes(n int) []dmutex.NodeID {
	ids := make([]dmutex.NodeID, n)
	for i := range ids {
		ids[i] = dmutex.NodeID(i + 1)
	}
	return ids
}

// start says how the machine of member i is born.
func (c *Config) start(i int) dmutex.Start {
	s := dmutex.Start{Self: c.Members[i], Members: c.Members, Holder: c.Holder, Sharers: c.Sharers, Home: c.Home, Fence: c.Fence}
	if c.clocks != nil {
		s.Clock = c.clocks[i]
	}
	return s
}

// again says how a machine is born that replaces a forgotten one. Its clock and its
// fence are the necessary ones plus more.
func (c *Config) again(m dmutex.Machine, self dmutex.NodeID, more uint64) dmutex.Start {
	clock, known, _ := m.Forget()
	return dmutex.Start{Self: self, Members: c.Members, Home: c.Home, Fence: c.Fence, Clock: clock + more, Known: known + more}
}

func (c *Config) birth(s dmutex.Start) (dmutex.Machine, error) {
	if c.Algorithm == nil {
		return nil, dmutex.Misuse("the Algorithm is nil")
	}
	m, err := c.Algorithm(s)
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

// births returns a machine for each member.
func (c *Config) births() ([]dmutex.Machine, error) {
	machines := make([]dmutex.Machine, len(c.Members))
	for i := range machines {
		m, err := c.birth(c.start(i))
		if err != nil {
			return nil, err
		}
		machines[i] = m
	}
	return machines, nil
}

func (c *Config) rebirth(m dmutex.Machine, self dmutex.NodeID, more uint64) (dmutex.Machine, error) {
	born, err := c.birth(c.again(m, self, more))
	if err != nil {
		return nil, search.Wrong(ErrContract, "Forget lets %d be forgotten, and a new machine with the clock and the fence that it returns is refused: %v", self, err)
	}
	return born, nil
}

// act gives a machine a lawful input, and checks what can be seen of this machine alone.
func (c *Config) act(m dmutex.Machine, was *local, do verb, msg dmutex.Message) (out []dmutex.Message, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			out, err = nil, search.Wrong(ErrContract, "%s of %d panics%s: %s", do.method(), was.self, panicked(m), onLine(reason))
		}
	}()
	switch out, err = input(m, do, msg); {
	case err != nil && !do.local():
		return nil, search.Wrong(ErrRefused, "%s of %d refuses what %d sent, so one of the two is wrong: %v", do.method(), was.self, msg.From, err)
	case err != nil:
		return nil, search.Wrong(ErrRefused, "%s of %d refuses what is lawful: %v", do.method(), was.self, err)
	}
	return out, c.contract(m, was, do, out)
}

// onLine writes a value on one line, as a script needs it.
func onLine(v any) string { return strings.Join(strings.Fields(fmt.Sprint(v)), " ") }

// panicked says at which line of the machine's package a panic began. It is called while that is deferred.
func panicked(m dmutex.Machine) string {
	is := reflect.TypeOf(m)
	if is.Kind() == reflect.Pointer {
		is = is.Elem()
	}
	callers := make([]uintptr, 100)
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers)])
	for began := false; ; {
		f, more := frames.Next()
		began = began || f.Function == "runtime.gopanic"
		switch {
		case began && strings.HasPrefix(f.Function, is.PkgPath()+"."):
			return fmt.Sprintf(" at %s:%d", path.Base(f.File), f.Line)
		case !more:
			return ""
		}
	}
}

func input(m dmutex.Machine, do verb, msg dmutex.Message) ([]dmutex.Message, error) {
	switch do {
	case request:
		return m.Request()
	case share:
		return m.(dmutex.Sharer).Share()
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

// contract checks a machine after an input. was is its state before.
func (c *Config) contract(m dmutex.Machine, was *local, do verb, out []dmutex.Message) error {
	self, is, fence := was.self, m.Phase(), m.Fence()
	switch {
	case (do == request || do == share) && is == dmutex.Idle,
		(do == cancel || do == release) && is != dmutex.Idle,
		(do == tick || do == deliver) && is != was.phase && !(was.phase == dmutex.Waiting && is == dmutex.Held):
		return search.Wrong(ErrContract, "%v makes %d, which was %v, %v: %s must not", do, self, was.phase, is, do.method())
	case shares(m) != was.shared && is != dmutex.Idle && do != share,
		do == share && !shares(m), is == dmutex.Idle && !m.Pending() && shares(m):
		return search.Wrong(ErrContract, "after %v, Shared of %d is %v", do, self, shares(m))
	case is != dmutex.Held && fence != 0:
		return search.Wrong(ErrContract, "Fence of %d is %d while it is %v: it is 0 unless Held", self, fence, is)
	case was.phase == dmutex.Held && is == dmutex.Held && fence != was.fence:
		return search.Wrong(ErrContract, "%d holds the lock, and its Fence changes from %d to %d", self, was.fence, fence)
	}
	for i, o := range out {
		same := func(other dmutex.Message) bool { return other.To == o.To && other.String() == o.String() }
		switch {
		case o.From != self || o.To == self:
			return search.Wrong(ErrContract, "%d sends %v: a message is from its sender to another node", self, o)
		case !slices.Contains(c.Members, o.To):
			return search.Wrong(ErrContract, "%v is not addressed to a member", o)
		case o.Kind == 0 || int(o.Kind) >= dmutex.Kinds:
			return search.Wrong(ErrContract, "%d sends %v: there is no such kind", self, o)
		case slices.ContainsFunc(out[:i], same):
			return search.Wrong(ErrContract, "%v of %d sends %v twice", do, self, o)
		}
	}
	return nil
}

// A local is a machine in one state, and what can be seen of it.
type local struct {
	self    dmutex.NodeID
	machine dmutex.Machine
	text    string
	phase   dmutex.Phase
	fence   uint64
	pending bool
	shared  bool // its request, pending or held, shares
	forgets bool // it may be forgotten
	clean   bool // it may be forgotten, or keeps something
	stirs   bool // a tick changes something
	waits   []dmutex.NodeID
	lends   dmutex.NodeID

	excludes []dmutex.NodeID // peers
	stamp    dmutex.Stamp    // of its request, if the machine tells it

	sharer  bool // it is a [dmutex.Sharer], and
	wanted  bool
	sharers []dmutex.NodeID
	alone   []dmutex.NodeID // peers that it excludes from holding the lock alone

	// Of a model.
	id    uint32
	taken []taken // the steps that are known from here

	before *local // the state from which this one was first reached, nil at birth, and the input
	by     verb
	in     uint32
}

// look makes a local of a machine.
func look(m dmutex.Machine, self dmutex.NodeID) *local {
	return &local{self: self, machine: m, text: text(m), phase: m.Phase(), fence: m.Fence(), pending: m.Pending(), shared: shares(m)}
}

// shares reports whether the request of a machine, pending or held, shares.
func shares(m dmutex.Machine) bool {
	s, ok := m.(dmutex.Sharer)
	return ok && s.Shared()
}

// conflict reports whether two requests or holds do.
func conflict(a, b *local) bool { return !a.shared || !b.shared }

// inspect makes a local of a machine. It checks what WaitsFor returns, and the law of
// Forget.
func (c *Config) inspect(m dmutex.Machine, self dmutex.NodeID) (*local, error) {
	l := look(m, self)
	waits := m.WaitsFor([]dmutex.NodeID{self})
	if len(waits) == 0 || waits[0] != self {
		return l, search.Wrong(ErrContract, "WaitsFor of %d returns %v for [%d]: it must append", self, waits, self)
	}
	l.waits = waits[1:]
	if b, _ := m.AppendText([]byte("> ")); !strings.HasPrefix(string(b), "> ") {
		return l, search.Wrong(errBlind, "AppendText of %d makes %q of \"> \": it must append %q", self, b, l.text)
	}
	if err := steady(l); err != nil {
		return l, err
	}
	if t := text(m.Clone()); t != l.text {
		return l, steadily(l, errBlind, "the clone of %q is %q: Clone must copy every field", l.text, t)
	}
	if _, ok := m.(dmutex.Ticker); ok {
		clone := m.Clone()
		out, err := clone.(dmutex.Ticker).Tick()
		l.stirs = err != nil || len(out) > 0 || text(clone) != l.text
	}
	if m, ok := m.(dmutex.Lender); ok {
		l.lends = m.Lends()
	}
	if m, ok := m.(dmutex.Excluder); ok {
		l.excludes = slices.DeleteFunc(slices.Clone(c.Members), func(id dmutex.NodeID) bool { return id == self || !m.Excludes(id) })
	}
	if m, ok := m.(dmutex.Sharer); ok {
		l.sharer, l.wanted, l.sharers = true, m.Wanted(), m.Sharers(nil)
		l.alone = slices.DeleteFunc(slices.Clone(c.Members), func(id dmutex.NodeID) bool { return id == self || !m.ExcludesAlone(id) })
	}
	if m, ok := m.(interface{ Stamp() dmutex.Stamp }); ok {
		l.stamp = m.Stamp()
	}
	keeper, ok := m.(dmutex.Keeper)
	keeps := ok && keeper.Keeps()
	_, _, l.forgets = m.Forget()
	l.clean = l.forgets || keeps

	if pending := l.phase == dmutex.Waiting || l.pending; !pending && len(l.waits) > 0 {
		return l, search.Wrong(ErrContract, "WaitsFor of %d returns %v, and no request of it is pending: it must return none then", self, l.waits)
	}
	for i, id := range l.waits {
		if id == self || !slices.Contains(c.Members, id) || slices.Contains(l.waits[:i], id) {
			return l, search.Wrong(ErrContract, "WaitsFor of %d returns %v, which are not distinct peers", self, l.waits)
		}
	}
	if !l.forgets {
		return l, nil
	}
	born, err := c.rebirth(m, self, 0)
	if err != nil || keeps { // what a Keeper keeps is lost: Config.Forgets shows whether it may be
		return l, err
	}
	if t := text(born); t != l.text {
		clock, known, _ := m.Forget()
		return l, steadily(l, ErrContract, "Forget lets %q be forgotten and returns clock %d and fence %d, and a new machine with these is %q:"+
			" Forget must return false while the machine has more to remember, and what need not be remembered must be reset, or stay out of AppendText", l.text, clock, known, t)
	}
	return l, nil
}

// steady checks that a machine writes the same text again.
func steady(l *local) error {
	if t := text(l.machine); t != l.text {
		return search.Wrong(errBlind, "AppendText of %d gives %q and then %q: it must depend on the state only, not on the order of a map, and no method that only asks may change the state", l.self, l.text, t)
	}
	return nil
}

// steadily is Wrong of what the text of a machine shows, unless the text is not steady: then that is wrong.
func steadily(l *local, kind error, format string, args ...any) error {
	for range 50 {
		if err := steady(l); err != nil {
			return err
		}
	}
	return search.Wrong(kind, format, args...)
}

func text(m dmutex.Machine) string {
	b, err := m.AppendText(nil)
	if err != nil {
		panic(fmt.Sprintf("dmutextest: %T.AppendText: %v", m, err))
	}
	return string(b)
}

// born checks a group at birth: the holder is Held, and all others are Idle.
func (w *world) born() error {
	var held *local
	for _, p := range w.places {
		switch {
		case p.phase != dmutex.Held:
		case held != nil && conflict(held, p.local):
			return search.Wrong(ErrMutualExclusion, "%d and %d both hold the lock at birth", held.self, p.self)
		default:
			held = p.local
		}
	}
	for _, p := range w.places {
		phase, fence, shared := dmutex.Idle, uint64(0), slices.Contains(w.Sharers, p.self)
		if p.self == w.Holder || shared {
			phase, fence = dmutex.Held, w.Fence
		}
		if p.phase != phase || p.fence != fence || p.shared != shared {
			return search.Wrong(ErrContract, "%d is born %v with fence %d, not %v with fence %d", p.self, p.phase, p.fence, phase, fence)
		}
	}
	return w.knows()
}

// enters checks the grant of node self. The grant before had the fence last. other is a
// node that is in the critical section already, or None.
func enters(self dmutex.NodeID, fence, last uint64, other dmutex.NodeID) error {
	if other != dmutex.None {
		return search.Wrong(ErrMutualExclusion, "%d and %d both hold the lock", min(self, other), max(self, other))
	}
	if fence <= last {
		return search.Wrong(ErrFenceOrder, "%d holds the lock with fence %d after a grant with fence %d", self, fence, last)
	}
	return nil
}

// knows checks what all nodes say of each holder: the first law of WaitsFor, for those
// that wait for it, and the laws of Excludes and ExcludesAlone. For these it is enough that no
// node excludes the holder, in any state: a stopped node looks to the others like a slow one. So a run with
// a stopped node is the beginning of a run that is explored anyway, with the machine of
// that node in the same state.
func (w *world) knows() error {
	for _, h := range w.places {
		if h.phase != dmutex.Held {
			continue
		}
		for _, p := range w.places {
			if err := w.knowsOf(p.local, h.local); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) knowsOf(l, holder *local) error {
	if l.phase != dmutex.Held || l.shared { // two holders that conflict are wrong anyway
		if slices.Contains(l.excludes, holder.self) {
			return search.Wrong(ErrExcluded, "Excludes of %d rules out %v, and %d holds the lock", l.self, l.excludes, holder.self)
		}
		if !holder.shared && slices.Contains(l.alone, holder.self) {
			return search.Wrong(ErrExcluded, "ExcludesAlone of %d rules out %v, and %d holds the lock alone", l.self, l.alone, holder.self)
		}
	}
	lent := func(l *local) bool { return l.lends == holder.self || slices.Contains(l.sharers, holder.self) }
	if l.phase != dmutex.Waiting || !conflict(l, holder) || lent(l) || slices.Contains(l.waits, holder.self) ||
		slices.ContainsFunc(w.places, func(n place) bool { return lent(n.local) && slices.Contains(l.waits, n.self) }) {
		return nil
	}
	return search.Wrong(ErrUnfound, "WaitsFor of %d returns %v, but none of these is the holder %d or lends to it: name the peers whose answer the request needs", l.self, l.waits, holder.self)
}

// waits returns the violation of a node that is Waiting when nothing will happen.
func waits(self dmutex.NodeID) error {
	return search.Wrong(ErrDeadlock, "%d waits, no node holds the lock and no message is in flight", self)
}
