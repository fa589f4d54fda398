package election

import (
	"encoding"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dmutex/dmutex"
)

// A trial is a small group and what may happen to it. The explorer tries every
// order of it.
//
// The channels keep the order of messages, and lose those to a node that has
// crashed or is cut off. Detectors tell each node, some time after it happened,
// who has crashed or is cut off and who is back; a partition heals after it was
// noticed. Time passes, for all alike, when no message is on its way and no
// detector has news; a timeout fires before that only as often as early says.
type trial struct {
	algorithm func(Config) (Machine, error)
	nodes     int
	starts    []int // ranks of those that run at first, all at once; nil: all do, and what comes of it is over
	majority  bool

	prompt    bool // the detectors tell at once, and elections die out before their starter recovers
	forgetful bool // who recovers begins with epoch 0
	odds           // what may happen

	most      uint64 // highest epoch that is in order
	limit     int    // states; 0 is a million
	oneLeader bool   // never two leaders at an instant
	falls     bool   // epochs may fall
	counted   bool   // only whom a majority has let run leads; for Bully and Ring, without crashes
}

// odds says how often things may happen.
type odds struct{ crashes, recoveries, cuts, wrong, early, restarts int }

type explorable interface {
	Machine
	encoding.TextAppender
	Clone() Machine
	state() *site
}

func (s *site) state() *site { return s }

// A world is the state of a trial.
type world struct {
	*trial
	odds
	machines []explorable // nil if crashed
	channels [][]Message  // from*nodes + to
	told     []bool       // observer*nodes + target: the observer suspects it
	side     []bool       // of the partition
	kept     []uint64     // the epoch with which a crashed node comes back
	log      *strings.Builder
}

var errWrong = errors.New("wrong")

func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errWrong, fmt.Sprintf(format, args...))
}

func (t *trial) begin() (*world, error) {
	n := t.nodes
	w := &world{trial: t, odds: t.odds,
		machines: make([]explorable, n), channels: make([][]Message, n*n), told: make([]bool, n*n),
		side: make([]bool, n), kept: make([]uint64, n)}
	for i := range n {
		w.born(i, 0)
	}
	starts := t.starts
	if starts == nil {
		for i := range n {
			starts = append(starts, i)
		}
	}
	for _, i := range starts {
		if err := w.does(i, func() ([]Message, error) { return w.machines[i].Start(), nil }); err != nil {
			return nil, err
		}
	}
	w.odds = odds{}
	for t.starts == nil && !w.atRest() {
		if err := w.steps()[0].do(w); err != nil {
			return nil, err
		}
	}
	w.odds = t.odds
	return w, nil
}

func nodes(n int) (list []dmutex.NodeID) {
	for i := range n {
		list = append(list, dmutex.NodeID(i+1))
	}
	return list
}

func (w *world) born(i int, epoch uint64) {
	m, err := w.algorithm(Config{Self: dmutex.NodeID(i + 1), Members: nodes(w.nodes), Epoch: epoch,
		Majority: w.majority, Answer: 1, Outcome: 2})
	if err != nil {
		panic(err)
	}
	w.machines[i] = m.(explorable)
}

func (w *world) clone() *world {
	c := *w
	c.machines = slices.Clone(w.machines)
	for i, m := range c.machines {
		if m != nil {
			c.machines[i] = m.Clone().(explorable)
		}
	}
	c.channels = slices.Clone(w.channels)
	c.told, c.side = slices.Clone(w.told), slices.Clone(w.side)
	c.kept = slices.Clone(w.kept)
	return &c
}

func (w *world) text(b []byte) []byte {
	b = append(b, byte(w.odds.crashes), byte(w.odds.recoveries), byte(w.odds.cuts), byte(w.odds.wrong), byte(w.odds.early), byte(w.odds.restarts))
	for i, m := range w.machines {
		if m == nil {
			b = strconv.AppendUint(append(b, '-'), w.kept[i], 10)
		} else {
			b, _ = m.AppendText(b)
		}
		b = append(b, '\n')
	}
	for c, queue := range w.channels {
		for _, m := range queue {
			b = append(strconv.AppendInt(b, int64(c), 10), ' ')
			b = append(b, m.String()...)
		}
	}
	for _, set := range [][]bool{w.told, w.side} {
		for _, in := range set {
			if in {
				b = append(b, '1')
			} else {
				b = append(b, '0')
			}
		}
	}
	return b
}

// reach reports whether two nodes are alive and not cut off from each other.
func (w *world) reach(i, j int) bool {
	return w.machines[i] != nil && w.machines[j] != nil && w.side[i] == w.side[j]
}

// does gives a node an input, sends what it returns, and checks what must
// always hold.
func (w *world) does(i int, input func() ([]Message, error)) error {
	m := w.machines[i]
	before, was := m.Leader()
	out, err := input()
	if err != nil {
		return wrong("%v", err)
	}
	for _, msg := range out {
		j := int(msg.To) - 1
		if w.reach(i, j) {
			c := i*w.nodes + j
			w.channels[c] = append(slices.Clip(w.channels[c]), msg.Clone())
		}
	}
	leader, epoch := m.Leader()
	if w.log != nil && (leader != before || epoch != was) {
		who := "nobody leads"
		if leader != 0 {
			who = leader.String() + " leads"
		}
		fmt.Fprintf(w.log, "    to %d %s, epoch %d\n", i+1, who, epoch)
	}
	if epoch < was && !w.falls {
		return wrong("at %d the epoch falls from %d to %d", i+1, was, epoch)
	}
	if w.most > 0 && epoch > w.most {
		return wrong("epoch %d: they outbid each other", epoch)
	}
	if w.counted && before != leader && int(leader) == i+1 {
		let := 0 // who has met an election of this term
		for _, m := range w.machines {
			if n := uint64(w.nodes); m.state().met/n >= epoch/n {
				let++
			}
		}
		if 2*let <= w.nodes {
			return wrong("%d leads, and no majority has let it run", i+1)
		}
	}
	return nil
}

// check checks what must hold between the nodes.
func (w *world) check() error {
	var leads []int
	for i, m := range w.machines {
		if m == nil {
			continue
		}
		if leader, _ := m.Leader(); int(leader) == i+1 {
			leads = append(leads, i)
		}
	}
	for a, i := range leads {
		for _, j := range leads[a+1:] {
			_, e := w.machines[i].Leader()
			_, f := w.machines[j].Leader()
			if e == f {
				return wrong("%d and %d lead in epoch %d", i+1, j+1, e)
			}
			if w.oneLeader || w.majority && w.side[i] != w.side[j] && !w.anyNews() {
				return wrong("two leaders: %d in epoch %d and %d in epoch %d", i+1, e, j+1, f)
			}
		}
	}
	return nil
}

// agree checks that in a world at rest all that reach each other have the
// highest of them as the leader, in one epoch; or none, for want of a majority.
func (w *world) agree() error {
	for i, m := range w.machines {
		if m == nil {
			continue
		}
		reached, highest := 0, 0
		for j := range w.machines {
			if w.reach(i, j) {
				reached, highest = reached+1, j
			}
		}
		want, epoch := dmutex.NodeID(highest+1), uint64(0)
		if w.majority && 2*reached <= w.nodes {
			want = dmutex.None
			_, epoch = m.Leader()
		} else {
			_, epoch = w.machines[highest].Leader()
		}
		if leader, e := m.Leader(); leader != want || e != epoch {
			return wrong("at rest %d has leader %d in epoch %d, not %d in epoch %d", i+1, leader, e, want, epoch)
		}
	}
	return nil
}

// tell brings the detector of i up to date about j.
func (w *world) tell(i, j int) error {
	w.told[i*w.nodes+j] = !w.reach(i, j)
	return w.does(i, func() ([]Message, error) {
		if w.reach(i, j) {
			return w.machines[i].Unsuspect(dmutex.NodeID(j + 1))
		}
		return w.machines[i].Suspect(dmutex.NodeID(j + 1))
	})
}

func (w *world) news(i, j int) bool {
	return i != j && w.machines[i] != nil && w.told[i*w.nodes+j] == w.reach(i, j)
}

func (w *world) anyNews() bool {
	for i := range w.nodes {
		for j := range w.nodes {
			if w.news(i, j) {
				return true
			}
		}
	}
	return false
}

// loose drops what is on its way between those who do not reach each other,
// and tells everybody if the detectors are prompt.
func (w *world) loose() error {
	for i := range w.nodes {
		for j := range w.nodes {
			// What a crashed node has sent still arrives.
			if i != j && (w.machines[j] == nil || w.side[i] != w.side[j]) {
				w.channels[i*w.nodes+j] = nil
			}
		}
	}
	for i := range w.nodes {
		for j := range w.nodes {
			if w.prompt && w.news(i, j) {
				if err := w.tell(i, j); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// lingers reports whether something of a node is still on its way.
func (w *world) lingers(i int) bool {
	for c, queue := range w.channels {
		for _, m := range queue {
			if c/w.nodes == i || m.Ballot > 0 && int(m.Ballot)%w.nodes == i {
				return true
			}
		}
	}
	return false
}

// A step is something that may happen next.
type step struct {
	name string
	do   func(*world) error
}

func (w *world) steps() (steps []step) {
	add := func(do func(*world) error, format string, args ...any) {
		steps = append(steps, step{fmt.Sprintf(format, args...), do})
	}
	quiet, news := true, w.anyNews()
	for c, queue := range w.channels {
		if len(queue) > 0 {
			quiet = false
			add(func(w *world) error {
				msg, i := w.channels[c][0], c%w.nodes
				w.channels[c] = w.channels[c][1:]
				return w.does(i, func() ([]Message, error) { return w.machines[i].Handle(msg) })
			}, "deliver %v", queue[0])
		}
	}
	for i := range w.nodes {
		for j := range w.nodes {
			if w.news(i, j) {
				verb := "suspects"
				if w.told[i*w.nodes+j] {
					verb = "suspects no more"
				}
				add(func(w *world) error { return w.tell(i, j) }, "%d %s %d", i+1, verb, j+1)
			}
		}
	}
	runs := false
	for i, m := range w.machines {
		if m == nil || m.state().left == 0 {
			continue
		}
		runs = true
		if w.odds.early > 0 {
			add(func(w *world) error {
				w.odds.early--
				return w.does(i, func() (out []Message, _ error) {
					for n := w.machines[i].state().left; n > 0; n-- {
						out = w.machines[i].Tick()
					}
					return out, nil
				})
			}, "%d has waited long enough, it thinks", i+1)
		}
	}
	if runs && quiet && !news {
		add(func(w *world) error {
			for i, m := range w.machines {
				if m == nil {
					continue
				}
				if err := w.does(i, func() ([]Message, error) { return m.Tick(), nil }); err != nil {
					return err
				}
			}
			return nil
		}, "a tick passes")
	}
	return w.mishaps(steps)
}

// mishaps adds what the odds allow.
func (w *world) mishaps(steps []step) []step {
	add := func(do func(*world) error, format string, args ...any) {
		steps = append(steps, step{fmt.Sprintf(format, args...), do})
	}
	for i, m := range w.machines {
		switch {
		case m == nil && w.odds.recoveries > 0 && !(w.prompt && w.lingers(i)):
			add(func(w *world) error {
				w.odds.recoveries--
				w.born(i, w.kept[i])
				if err := w.loose(); err != nil {
					return err
				}
				return w.does(i, func() ([]Message, error) { return w.machines[i].Start(), nil })
			}, "%d recovers", i+1)
		case m != nil && w.odds.crashes > 0:
			add(func(w *world) error {
				w.odds.crashes--
				if !w.forgetful {
					_, w.kept[i] = w.machines[i].Leader()
				}
				w.machines[i] = nil
				for j := range w.nodes {
					w.told[i*w.nodes+j] = false
				}
				return w.loose()
			}, "%d crashes", i+1)
		}
		if m != nil && w.odds.restarts > 0 && m.state().phase == idle {
			add(func(w *world) error {
				w.odds.restarts--
				return w.does(i, func() ([]Message, error) { return w.machines[i].Start(), nil })
			}, "%d starts", i+1)
		}
		for j := range w.machines {
			if w.odds.wrong > 0 && i != j && w.reach(i, j) && !w.told[i*w.nodes+j] {
				add(func(w *world) error {
					w.odds.wrong--
					w.told[i*w.nodes+j] = true
					return w.does(i, func() ([]Message, error) { return w.machines[i].Suspect(dmutex.NodeID(j + 1)) })
				}, "%d suspects %d, which is alive", i+1, j+1)
			}
		}
	}
	if slices.Contains(w.side, true) {
		if !w.anyNews() {
			add(func(w *world) error {
				clear(w.side)
				return w.loose()
			}, "the partition heals")
		}
	} else if w.odds.cuts > 0 {
		for set := 1; set < 1<<(w.nodes-1); set++ { // node n is never on it: each cut once
			name := ""
			for i := range w.nodes {
				if set>>i&1 == 1 {
					name += " " + strconv.Itoa(i+1)
				}
			}
			add(func(w *world) error {
				w.odds.cuts--
				for i := range w.side {
					w.side[i] = set>>i&1 == 1
				}
				return w.loose()
			}, "cut off:%s", name)
		}
	}
	return steps
}

var families = []struct {
	name      string
	algorithm Algorithm
}{
	{"bully", Bully},
	{"ring", Ring},
	{"changroberts", ChangRoberts},
}
