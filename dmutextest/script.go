package dmutextest

import (
	"cmp"
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
//	sharers 1 3        or these share it
//	home 3             where the lock begins
//	fence 4            the highest fence granted before
//	network unordered  see Network; fifo if not said
//
//	request 2
//	share 2                         2 asks to share the lock
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
// The group comes first, then holder or sharers, home, fence and network. The output of a command
// is the phase of the node, if it has changed, and then what the node sends. A
// call that the machine refuses is written as "refused", and the first check of
// [Explore] that fails after a step as "violation". Of the kinds other than [ErrMutualExclusion],
// [ErrFenceOrder] and [ErrDeadlock] each is written once.
func RunScript(algorithm dmutex.Algorithm, script string) (string, error) {
	return (&play{config: Config{Algorithm: algorithm}}).run(script)
}

// A play is a script as it runs.
type play struct {
	config Config   // as the script describes it
	world  *world   // nil before the first command that is not about the group
	output []string // of this block; nil before its first command
	failed *Violation
	said   []error // the kinds of the violations so far

	wire   []trace.Message // in flight, oldest first
	tracer tracer
	now    int64
	acted  []dmutex.NodeID // nodes with a local input since time last passed
}

// run is RunScript.
func (p *play) run(script string) (string, error) {
	var b strings.Builder
	flush := func() {
		for _, line := range p.output {
			b.WriteString(line + "\n")
		}
		p.output = nil
	}
	output := false // between ---- and the next empty line
	for i, line := range strings.Split(strings.TrimSpace(script), "\n") {
		command := strings.TrimSpace(line)
		switch {
		case command == "":
			flush()
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
			name, rest, _ := strings.Cut(strings.Join(strings.Fields(command), " "), " ")
			if err := p.do(name, rest); err != nil {
				return "", fmt.Errorf("%w: line %d: %q: %v", dmutex.ErrMisuse, i+1, command, err)
			}
		}
	}
	flush()
	return b.String(), nil
}

func (p *play) say(format string, args ...any) {
	p.output = append(p.output, fmt.Sprintf(format, args...))
}

func (p *play) violation(err error) {
	if v, ok := wrongly(err); ok {
		if p.failed == nil || isGrave(v) {
			p.failed = v
		}
		if !isGrave(v) && slices.Contains(p.said, v.Kind) {
			return
		}
		p.said = append(p.said, v.Kind)
		p.say("violation: %s", brief(v))
	}
}

func (p *play) do(name, rest string) error {
	if slices.Contains([]string{"group", "holder", "sharers", "home", "fence", "network"}, name) {
		return p.setup(name, rest)
	}
	if p.output == nil {
		p.say("----")
	}
	if p.world == nil {
		if err := p.begin(); err != nil {
			return err
		}
	}
	do := slices.Index(verbs[:], name)
	switch {
	case name == "state":
		return p.state(rest)
	case do < 0:
		return errors.New("there is no such command")
	case verb(do).local():
		return p.local(verb(do), rest)
	case verb(do) == deliver && rest == "all":
		p.all()
		return nil
	default:
		return p.message(verb(do), rest)
	}
}

// setup reads a command that describes the group.
func (p *play) setup(name, rest string) (err error) {
	c := &p.config
	if p.world != nil {
		return errors.New("the group is at work already")
	}
	switch name {
	case "group":
		for _, word := range strings.Fields(rest) {
			id, clock, _ := strings.Cut(word, "@")
			member, err1 := number(id)
			at, err2 := number(cmp.Or(clock, "0"))
			c.Members, c.clocks = append(c.Members, dmutex.NodeID(member)), append(c.clocks, at)
			err = errors.Join(err, err1, err2)
		}
	case "sharers":
		for _, word := range strings.Fields(rest) {
			sharer, err1 := number(word)
			c.Sharers, err = append(c.Sharers, dmutex.NodeID(sharer)), errors.Join(err, err1)
		}
	case "network":
		c.Network, err = ParseNetwork(rest)
	default:
		field := map[string]*uint64{"holder": (*uint64)(&c.Holder), "home": (*uint64)(&c.Home), "fence": &c.Fence}[name]
		*field, err = number(rest)
	}
	return err
}

func number(word string) (uint64, error) { return strconv.ParseUint(word, 10, 64) }

// begin makes the machines.
func (p *play) begin() error {
	if len(p.config.Members) == 0 {
		return errors.New("a script begins with a group, such as \"group 1 2 3\"")
	}
	w, err := newWorld(p.config)
	if w == nil {
		return err
	}
	p.world, w.apart = w, true
	for i := range w.places {
		p.tracer.born(p.now, w.start(i), w.places[i].machine)
	}
	p.violation(worst(err, w.rests(), w.lives()))
	return nil
}

func (p *play) node(word string) (int, error) {
	id, err := number(word)
	if err != nil {
		return 0, err
	}
	i := slices.Index(p.config.Members, dmutex.NodeID(id))
	if i < 0 {
		return 0, errors.New("there is no such node")
	}
	return i, nil
}

func (p *play) state(rest string) error {
	if rest != "" {
		i, err := p.node(rest)
		if err == nil {
			p.say("%s", p.world.places[i].text)
		}
		return err
	}
	for _, node := range p.world.places {
		p.say("%s", node.text)
	}
	for _, msg := range p.wire {
		p.say("on its way %v", msg)
	}
	return nil
}

// local gives a node an input of its own.
func (p *play) local(do verb, rest string) error {
	i, err := p.node(rest)
	if err != nil {
		return err
	}
	l := p.world.places[i]
	_, ticks := l.machine.(dmutex.Ticker)
	switch {
	case do == tick && !ticks:
		return errors.New("this machine has no Tick")
	case do == share && !l.sharer:
		return errors.New("this machine does not share")
	case do == forget && !l.forgets:
		return errors.New("this machine does not let itself be forgotten")
	case do.lawful(l.local):
		p.step(do, i)
		return nil
	}
	if _, err := input(l.machine.Clone(), do, dmutex.Message{}); err != nil {
		p.say("refused: %v", err)
	} else {
		p.violation(search.Wrong(ErrContract, "%d was not in the phase to %v", l.self, do))
	}
	return nil
}

// message does something to the message that begins with the words.
func (p *play) message(do verb, words string) error {
	k := slices.IndexFunc(p.wire, func(m trace.Message) bool { return m.String() == words })
	if k < 0 {
		k = slices.IndexFunc(p.wire, func(m trace.Message) bool { return strings.HasPrefix(m.String(), words+" ") })
	}
	if k < 0 {
		return errors.New("no such message is on its way")
	}
	network := p.config.Network
	network.Duplicates, network.Losses = int(p.world.duplicates), int(p.world.losses)
	for _, older := range p.wire[:k] {
		if m := p.wire[k]; !network.Unordered && older.From == m.From && older.To == m.To {
			return fmt.Errorf("the network is %v, and %v was sent before", network, older)
		}
	}
	if do == duplicate && network.Duplicates == 0 || do == lose && network.Losses == 0 {
		return fmt.Errorf("the network is %v", network)
	}
	p.step(do, k)
	return nil
}

// all delivers until no message is left. If the run does not end, that is a
// violation, and only the first hundred lines of output are kept.
func (p *play) all() {
	const most = 10_000
	said := len(p.output)
	for n := 0; len(p.wire) > 0; n++ {
		if n == most {
			p.output = p.output[:min(len(p.output), said+100)]
			p.violation(search.Wrong(ErrLivelock, "the run has not ended after %d messages", n))
			return
		}
		p.step(deliver, 0)
	}
}

// step takes a step at a node, or with the k-th oldest message, and writes the result.
func (p *play) step(do verb, k int) {
	w, i, a, in := p.world, k, action{do, k}, trace.Message{}
	if !do.local() {
		in = p.wire[k]
		id := w.flightID[in.String()]
		i, a.at = w.flights[id].to, slices.Index(w.wire, id)
		if do.consumes() {
			p.wire = slices.Delete(p.wire, k, k+1)
		}
	}
	was := w.places[i]
	taken, wrong := w.take(a)
	if do == lose {
		p.tracer.lost(p.now, was.self, in)
		p.violation(w.rests())
		return
	}
	p.passTime(do, was.self)
	is := w.places[i]
	switch {
	case is.phase == was.phase:
	case is.phase == dmutex.Held && is.shared:
		p.say("%d shares fence=%d", is.self, is.fence)
	case is.phase == dmutex.Held:
		p.say("%d held fence=%d", is.self, is.fence)
	default:
		p.say("%d %v", is.self, is.phase)
	}
	for _, id := range taken.sent {
		m := p.tracer.send(w.flights[id].Message)
		p.wire = append(p.wire, m)
		p.say("%v", m)
	}
	p.tracer.did(p.now, is.self, do, in, is.machine)
	if do == forget {
		p.tracer.born(p.now, w.again(was.machine, is.self, 1), is.machine)
	}
	if taken.fault == nil { // else nothing could follow
		wrong = worst(wrong, w.rests())
	}
	p.violation(wrong)
}

// passTime lets the time of a step pass before a delivery and before a local input; but
// local inputs of different nodes in a row happen at the same time.
func (p *play) passTime(do verb, self dmutex.NodeID) {
	if !do.local() || len(p.acted) == 0 || slices.Contains(p.acted, self) {
		p.now += second
		p.acted = p.acted[:0]
	}
	if do.local() {
		p.acted = append(p.acted, self)
	}
}

// script writes a run as a script. commands are its commands, each as a block.
func (c *Config) script(commands string, v *Violation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\ngroup %s\n", brief(v), strings.Trim(fmt.Sprint(c.Members), "[]"))
	for _, carried := range []struct {
		what string
		over uint64
	}{{"holder", uint64(c.Holder)}, {"home", uint64(c.Home)}, {"fence", c.Fence}} {
		if carried.over != 0 {
			fmt.Fprintln(&b, carried.what, carried.over)
		}
	}
	if len(c.Sharers) > 0 {
		fmt.Fprintf(&b, "sharers %s\n", strings.Trim(fmt.Sprint(c.Sharers), "[]"))
	}
	fmt.Fprintf(&b, "network %v\n%s", c.Network, cmp.Or(commands, "\nstate\n")) // so that the machines are born
	script, err := RunScript(c.Algorithm, b.String())
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
