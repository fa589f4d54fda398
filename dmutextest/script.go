package dmutextest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/internal/search"
	"github.com/dmutex/dmutex/trace"
)

// RunScript runs a script and returns it with the output that it has now. It
// refuses a script that it cannot read with [dmutex.ErrMisuse]. What the machines
// do wrong is part of the output.
//
// A script is a conversation in blocks: commands, a line "----", and the output of
// the commands, up to an empty line. Lines that begin with # are comments.
//
//	group 1 2@7 3      the members; 2 is born with clock 7
//	holder 1           the lock is carried over: 1 holds it
//	home 3             where the lock begins
//	fence 4            the highest fence granted before
//	network unordered  see Network; fifo if not said
//
//	request 2
//	cancel 2
//	release 2
//	tick 2
//	forget 2                        2 forgets its machine; see Config.Forgets
//	deliver 2->1                    the oldest message from 2 to 1
//	deliver 2->1 REPLY              the oldest that begins like this
//	deliver 2->1 REPLY attempt=1    one exactly like this, if there is one
//	duplicate 2->1 ...              deliver, and keep in flight
//	lose 2->1 ...
//	deliver all                     the oldest message, until none is left; 10000 are a livelock
//	state                           the state of all machines, and the messages in flight
//	state 2                         the state of one
//
// The group comes first, then holder, home, fence and network. The output of a command
// is the phase of the node, if it has changed, and then what the node sends. A
// call that the machine refuses is written as "refused", and each check of
// [Explore] that fails as "violation".
func RunScript(algorithm dmutex.Algorithm, script string) (string, error) {
	return (&play{group: group{algorithm: algorithm}}).run(script)
}

// run is RunScript.
func (p *play) run(script string) (string, error) {
	var b strings.Builder
	output := false // between ---- and the next empty line
	for i, line := range strings.Split(strings.TrimSpace(script), "\n") {
		command := strings.TrimSpace(line)
		switch {
		case command == "":
			p.flush(&b)
			b.WriteByte('\n')
			output = false
		case output:
		case command == "----":
			output = true
		default:
			b.WriteString(line + "\n")
			if command[0] == '#' {
				continue
			}
			if err := p.do(strings.Fields(command)); err != nil {
				return "", fmt.Errorf("%w: line %d: %q: %v", dmutex.ErrMisuse, i+1, command, err)
			}
		}
	}
	p.flush(&b)
	return b.String(), nil
}

// A play is a script as it runs.
type play struct {
	group
	clocks   []uint64 // at birth, by member
	network  Network
	machines []dmutex.Machine // none before the first command that is not about the group
	wire     []trace.Message  // in flight, oldest first
	last     uint64           // the highest fence granted
	ran      bool             // this block has a command that has run
	output   []string         // of this block

	// For Trace.
	tracer *tracer
	begun  func() error // called when the group is known; may be nil
	now    int64
	acted  []dmutex.NodeID // nodes with a local input since time last passed
	failed *Violation
}

func (p *play) say(format string, args ...any) {
	p.output = append(p.output, fmt.Sprintf(format, args...))
}

// flush ends a block.
func (p *play) flush(b *strings.Builder) {
	if p.ran {
		b.WriteString("----\n")
	}
	for _, line := range p.output {
		b.WriteString(line + "\n")
	}
	p.ran, p.output = false, nil
}

func (p *play) do(words []string) error {
	name, rest := words[0], strings.Join(words[1:], " ")
	if slices.Contains([]string{"group", "holder", "home", "fence", "network"}, name) {
		return p.setup(name, rest)
	}
	if err := p.begin(); err != nil {
		return err
	}
	p.ran = true
	do := verb(max(0, slices.Index(verbs[:], name)))
	switch {
	case name == "state":
		return p.state(rest)
	case name != do.String():
		return errors.New("there is no such command")
	case do == forget:
		return p.forget(rest)
	case do < deliver:
		return p.local(do, rest)
	case do == deliver && rest == "all":
		p.all()
		return nil
	default:
		return p.message(do, rest)
	}
}

// setup reads a command that describes the group.
func (p *play) setup(name, rest string) (err error) {
	if p.machines != nil {
		return errors.New("the group is at work already")
	}
	switch name {
	case "group":
		for _, word := range strings.Fields(rest) {
			id, clock, given := strings.Cut(word, "@")
			if !given {
				clock = "0"
			}
			member, err1 := number(id)
			at, err2 := number(clock)
			p.members, p.clocks = append(p.members, dmutex.NodeID(member)), append(p.clocks, at)
			err = errors.Join(err, err1, err2)
		}
	case "network":
		p.network, err = ParseNetwork(rest)
	default:
		field := map[string]*uint64{"holder": (*uint64)(&p.holder), "home": (*uint64)(&p.home), "fence": &p.fence}[name]
		*field, err = number(rest)
	}
	return err
}

func number(word string) (uint64, error) { return strconv.ParseUint(word, 10, 64) }

// begin makes the machines.
func (p *play) begin() error {
	if p.machines != nil {
		return nil
	}
	if len(p.members) == 0 {
		return errors.New("a script begins with a group, such as \"group 1 2 3\"")
	}
	p.last = p.fence
	if p.begun != nil {
		if err := p.begun(); err != nil {
			return err
		}
	}
	for i, self := range p.members {
		m, err := p.birth(self, p.clocks[i])
		if err != nil {
			return err
		}
		p.machines = append(p.machines, m)
		p.tracer.born(p.now, m, dmutex.Start{Self: self, Holder: p.holder, Home: p.home, Fence: p.fence, Clock: p.clocks[i]})
	}
	p.violation(p.born(p.look(everybody)))
	p.rest()
	return nil
}

func (p *play) node(word string) (int, error) {
	id, err := number(word)
	if err != nil {
		return 0, err
	}
	i := slices.Index(p.members, dmutex.NodeID(id))
	if i < 0 {
		return 0, errors.New("there is no such node")
	}
	return i, nil
}

func (p *play) state(rest string) error {
	for i, m := range p.machines {
		if rest == "" || rest == p.members[i].String() {
			p.say("%s", text(m))
		}
	}
	if rest != "" {
		_, err := p.node(rest)
		return err
	}
	for _, msg := range p.wire {
		p.say("on its way %v", msg)
	}
	return nil
}

// local is what a node does by itself.
func (p *play) local(do verb, rest string) error {
	i, err := p.node(rest)
	if err != nil {
		return err
	}
	m := p.machines[i]
	if _, ok := m.(dmutex.Ticker); do == tick && !ok {
		return errors.New("this machine has no Tick")
	}
	if do.lawful(m.Phase()) {
		p.passTime(p.members[i])
		p.step(i, do, trace.Message{})
		return nil
	}
	if _, err := input(m, do, dmutex.Message{}); err != nil {
		p.say("refused: %v", err)
	} else {
		p.violation(search.Wrong(ErrContract, "%d was not in the phase to %v", p.members[i], do))
	}
	return nil
}

// forget lets a node forget its machine.
func (p *play) forget(rest string) error {
	i, err := p.node(rest)
	if err != nil {
		return err
	}
	l, _ := p.inspect(p.machines[i], p.members[i])
	if !l.forgets {
		return errors.New("this machine does not let itself be forgotten")
	}
	clock, known, _ := p.machines[i].Forget()
	m, f := p.reborn(p.machines[i], p.members[i], 1)
	if f != nil {
		p.violation(f)
		return nil
	}
	p.machines[i] = m
	p.tracer.forget(p.now, p.members[i])
	p.tracer.born(p.now, m, dmutex.Start{Self: p.members[i], Home: p.home, Fence: p.fence, Clock: clock + 1, Known: known + 1})
	p.look(i)
	p.rest()
	return nil
}

// message is what happens to a message that begins like the words.
func (p *play) message(do verb, words string) error {
	k := slices.IndexFunc(p.wire, func(m trace.Message) bool { return m.String() == words })
	if k < 0 {
		k = slices.IndexFunc(p.wire, func(m trace.Message) bool { return strings.HasPrefix(m.String(), words+" ") })
	}
	if k < 0 {
		return errors.New("no such message is on its way")
	}
	for _, older := range p.wire[:k] {
		if m := p.wire[k]; !p.network.Unordered && older.From == m.From && older.To == m.To {
			return fmt.Errorf("the network is %v, and %v was sent before", p.network, older)
		}
	}
	if do == duplicate && p.network.Duplicates == 0 || do == lose && p.network.Losses == 0 {
		return fmt.Errorf("the network is %v", p.network)
	}
	p.take(do, k)
	return nil
}

// all delivers until no message is left. If the run does not end, that is a
// violation, and only the first hundred lines of output are kept.
func (p *play) all() {
	const plenty = 10_000
	said := len(p.output)
	for n := 0; len(p.wire) > 0; n++ {
		if n == plenty {
			p.output = p.output[:min(len(p.output), said+100)]
			p.violation(search.Wrong(ErrLivelock, "the run has not ended after %d messages", n))
			return
		}
		p.take(deliver, 0)
	}
}

// take does it to the message at place k.
func (p *play) take(do verb, k int) {
	msg := p.wire[k]
	switch do {
	case duplicate:
		p.network.Duplicates--
	case lose:
		p.network.Losses--
		p.wire = slices.Delete(p.wire, k, k+1)
		p.rest()
		return
	default:
		p.wire = slices.Delete(p.wire, k, k+1)
	}
	p.passTime(dmutex.None)
	p.step(slices.Index(p.members, msg.To), deliver, msg)
}

// passTime lets the time of a step pass before a delivery, for which self is None, and
// before a local input; but local inputs of different nodes in a row happen at the
// same time.
func (p *play) passTime(self dmutex.NodeID) {
	if self == dmutex.None || len(p.acted) == 0 || slices.Contains(p.acted, self) {
		p.now += tracedTime
		p.acted = p.acted[:0]
	}
	if self != dmutex.None {
		p.acted = append(p.acted, self)
	}
}

// step does one thing to the machine of node i, writes the result, and checks all
// that Explore checks.
func (p *play) step(i int, do verb, msg trace.Message) {
	m, self := p.machines[i], p.members[i]
	was := m.Phase()
	out, f := p.act(m, self, do, msg.Message.Clone())
	if f != nil {
		p.violation(f)
		return
	}
	sent := make([]trace.Message, len(out))
	for k, o := range out {
		sent[k] = p.tracer.send(o.Clone())
	}
	p.tracer.did(p.now, m, self, do, msg)
	p.wire = append(p.wire, sent...)
	switch is := m.Phase(); {
	case is == was:
	case is == dmutex.Held:
		p.say("%d held fence=%d", self, m.Fence())
	default:
		p.say("%d %v", self, is)
	}
	for _, o := range sent {
		p.say("%v", o)
	}
	nodes := p.look(i)
	if was != dmutex.Held && m.Phase() == dmutex.Held {
		p.violation(enters(nodes, i, p.last))
		p.last = max(p.last, m.Fence())
	}
	p.violation(knows(nodes))
	for _, o := range sent {
		n := 0
		for _, other := range p.wire {
			if other.From == o.From && other.To == o.To {
				n++
			}
		}
		p.violation(crowds(p.network, o.Message, n))
	}
	p.rest()
}

// What look checks if not one node.
const nobody, everybody = -1, -2

// look inspects all machines, and checks the one that has just taken a step.
func (p *play) look(moved int) []*local {
	nodes := make([]*local, len(p.machines))
	for i, m := range p.machines {
		l, f := p.inspect(m, p.members[i])
		nodes[i] = &l
		if i == moved || moved == everybody {
			p.violation(f)
		}
	}
	return nodes
}

func (p *play) rest() {
	if len(p.wire) == 0 {
		p.violation(rests(p.look(nobody)))
	}
}

func (p *play) violation(err error) {
	if v, ok := errors.AsType[*Violation](err); ok {
		p.failed = v
		p.say("violation: %s", brief(v))
	}
}

// script writes a run as a script. commands are its commands, each as a block.
func (m *model) script(commands string, v *Violation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\ngroup", brief(v))
	for _, id := range m.members {
		fmt.Fprintf(&b, " %d", id)
	}
	b.WriteByte('\n')
	if m.holder != dmutex.None {
		fmt.Fprintf(&b, "holder %d\n", m.holder)
	}
	if m.home != dmutex.None {
		fmt.Fprintf(&b, "home %d\n", m.home)
	}
	if m.fence != 0 {
		fmt.Fprintf(&b, "fence %d\n", m.fence)
	}
	fmt.Fprintf(&b, "network %v\n", m.cfg.Network)
	if commands == "" {
		commands = "\nstate\n" // so that they are born
	}
	b.WriteString(commands)
	script, err := RunScript(m.algorithm, b.String())
	switch {
	case err != nil:
		script = fmt.Sprintf("%s\n# it does not run again: %v\n", b.String(), err)
	case v.Kind != ErrLivelock && !strings.Contains(script, "violation: "+name(v.Kind)):
		script += "\n# Replayed, it does no harm: machines of equal text behave differently,\n# or one shares something with its clone.\n"
	}
	return script
}

// TestScript runs the script in a file and compares its output with that in the file.
// If the tests run with a flag -update, it writes the output into the file instead; the
// test package defines the flag:
//
//	var _ = flag.Bool("update", false, "rewrite the golden files")
func TestScript(t testing.TB, algorithm dmutex.Algorithm, file string) {
	t.Helper()
	script, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := RunScript(algorithm, string(script))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	goldentest.Compare(t, file, got)
}

// Refute explores a group in which a rule is weakened. The test fails unless the
// exploration finds a violation of the given kind. The file holds the shortest run
// to it, which a flag -update rewrites, as in [TestScript].
func Refute(t testing.TB, c Config, kind error, file string) {
	t.Helper()
	r, err := Explore(c)
	t.Log(r)
	goldentest.Violation(t, file, err, kind)
	v, _ := errors.AsType[*Violation](err)
	if again, err := RunScript(c.Algorithm, v.Script); err != nil || again != v.Script {
		t.Errorf("the script of the violation runs differently: %v\n%s", err, again)
	}
}
