package lease

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/kit/viewtest"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/carryover"
	"github.com/dmutex/dmutex/internal/search"
)

// A wake is one lock with the machines as shipped, while lives are excluded, join and go on: rules 3
// and 5a, without the record's store and without clocks. Any member but the last may be excluded at any
// moment. An excluded member goes on in the views that it knows, with all messages in flight, until its
// lease ends, if it ever does. Each member installs each view that has it, or skips it, at any time,
// and says VIEW then. Each other member hears that at any time. It sends its REPORT of the view then,
// or when it installs the view, if that is later.
type wake struct {
	wakeSetup
	views   []wakeView // the first is that of the founders
	nodes   []wakeNode
	wire    []wakeLetter // in the order in which they were sent
	reports []wakeReport
	last    [2]uint64 // the highest fences of the grants to hold it alone, and to share it
}

type wakeSetup struct {
	algorithm dmutex.Algorithm
	n         int // lives; the founders are the first ones
	founders  int
	requests  int    // of each
	shares    int    // requests of each to share
	modes     string // or what each life does once, by a letter: w requests, r asks to share
	changes   int    // of the record
	home      int    // place of the home among the members
	leases    bool   // those of the excluded end at some time
	partings  int    // of lives that close: they say a last word, which anybody may hear or not
	death     bool   // one dies while all act in the last view, and nobody else is excluded

	broken wakeRule
}

// A wakeRule is a rule that is broken.
type wakeRule int

const (
	noTable         wakeRule = iota + 1 // everybody requests every lock
	staleWord                           // a word counts for lives that were sent a REPORT since
	idleWord                            // a life speaks of a view in which it has not acted
	lateFreeze                          // the machines go on after the word was taken
	holderFresh                         // a holder that was reported is taken for no difference
	deafJoiner                          // a joining life takes nobody for a former
	noUnion                             // formers of earlier views are forgotten
	comersFree                          // a life that has come since the word is no former
	newcomerSays                        // a life that has never acted says that there is no former
	unknownFree                         // a former without a word about it is none
	unheard                             // REPORT goes to those that have not said VIEW
	readersFree                         // a former that does not hold the lock alone does not hold it
	readersExcluded                     // a life says so: that one that does not hold it alone is excluded
	writersFree                         // a request to share waits for nobody
	oneSharer                           // of the sharers that were reported one is carried
	goesOn                              // a life requests the lock after its last word
	forgetsLent                         // a last word leaves out what is held
)

type wakeView struct {
	membership.View
	unclean uint64 // the last exclusion
}

// A wakeNode is one life.
type wakeNode struct {
	memory
	view     int            // that it has installed, in views; -1 for none
	machine  dmutex.Machine // nil while it does not act
	acts     bool
	thawed   bool // of a broken rule: the machine is still that of the former view
	requests int  // that it will still make
	shares   int  // those to share
	waits    bool
	sharing  bool   // its caller waits to share the lock, or shares it
	asked    bool   // the machine has the request
	hold     uint64 // the fence by which its caller holds the lock, 0 if it does not
	reported bool   // it held the lock as it froze
	cleared  uint64
	out      uint64              // when it was excluded, 0 if it was not
	dead     bool                // it does nothing anymore
	ended    bool                // its lease has
	carried  []carryover.Holder  // that were reported in its view
	last     *membership.Parting // its last word; what it holds then is lent to a client
	heard    uint64              // who has heard that: a bit for each node
}

type wakeLetter struct {
	epoch uint64
	dmutex.Message
}

type wakeReport struct {
	epoch uint64
	from  dmutex.NodeID
	hold  membership.Hold // its Fence is 0 if there is none
	past  *membership.Past
	heard uint64 // who has heard VIEW of it: a bit for each node
	told  uint64 // likewise: who was sent it
}

func newWake(s wakeSetup) *wake {
	w := &wake{wakeSetup: s, nodes: make([]wakeNode, s.n)}
	v := wakeView{View: membership.View{Epoch: 1}}
	for i := range s.founders {
		v.Members = append(v.Members, membership.Member{Node: dmutex.NodeID(i + 1), Life: 1})
	}
	w.views = []wakeView{v}
	for i := range w.nodes {
		w.nodes[i] = wakeNode{view: -1, requests: s.requests, shares: s.shares}
		if s.modes != "" {
			w.nodes[i].requests, w.nodes[i].shares = strings.Count(s.modes[i:i+1], "w"), strings.Count(s.modes[i:i+1], "r")
		}
	}
	for i := range s.founders {
		p := &w.nodes[i]
		p.view = 0
		p.meet(dmutex.NodeID(i+1), v.View, 0, false)
		must(w.born(i, nil))
	}
	return w
}

func (w *wake) start(v *membership.View, self dmutex.NodeID, carried []carryover.Holder) dmutex.Start {
	s := dmutex.Start{Self: self, Members: v.Nodes(), Home: v.Members[w.home%len(v.Members)].Node, Fence: epochs.First(v.Epoch), Limit: epochs.Last(v.Epoch)}
	for _, h := range carried {
		if h.Shared {
			s.Sharers = append(s.Sharers, h.Node)
		} else {
			s.Holder = h.Node
		}
	}
	return s
}

func (w *wake) born(i int, carried []carryover.Holder) (err error) {
	p := &w.nodes[i]
	p.carried = carried
	p.machine, err = w.algorithm(w.start(&w.views[p.view].View, dmutex.NodeID(i+1), carried))
	p.acts, p.thawed = true, false
	return err
}

// fresh returns what Excluding says of a new machine at the node of a word, if the lock is free.
func (w *wake) fresh(word *membership.Word) uint64 {
	for k := range w.views {
		if v := &w.views[k].View; v.Epoch == word.Epoch {
			m, err := w.algorithm(w.start(v, word.Node, nil))
			must(err)
			bits, _ := carryover.Excluding(m, word.Members)
			return bits
		}
	}
	panic("a word about no view")
}

// free reports whether node i may request the lock.
func (w *wake) free(i int) bool {
	p := &w.nodes[i]
	shares := p.sharing || w.broken == readersFree
	return w.broken == noTable || p.sharing && w.broken == writersFree || len(carryover.About(&p.past).Holders("x", shares, p.cleared, w.fresh)) == 0
}

func (w *wake) Clone(*wake) *wake {
	c := *w
	c.views, c.nodes, c.wire, c.reports = slices.Clone(w.views), slices.Clone(w.nodes), slices.Clone(w.wire), slices.Clone(w.reports)
	for i := range c.nodes {
		p := &c.nodes[i]
		if p.met = slices.Clone(p.met); p.machine != nil {
			p.machine = p.machine.Clone()
		}
	}
	return &c
}

func (w *wake) AppendState(b []byte) []byte {
	for _, v := range w.views {
		b = append(viewtest.AppendView(b, "", v.View), ' ')
	}
	for i := range w.nodes {
		p := &w.nodes[i]
		b = fmt.Appendf(b, "\n%d %v %v %d %d %v %v %v %d %v %d %d %v %v ", p.view, p.acts, p.thawed, p.requests, p.shares, p.waits, p.sharing, p.asked, p.hold, p.reported, p.cleared, p.out, p.dead, p.ended)
		if p.last != nil {
			b = fmt.Appendf(viewtest.AppendParting(b, p.last), " %b ", p.heard)
		}
		if p.machine != nil {
			b, _ = p.machine.AppendText(b)
		}
		if p.out == 0 || !p.acts {
			b = p.memory.append(b)
		}
	}
	channels := slices.Clone(w.wire)
	slices.SortStableFunc(channels, func(a, b wakeLetter) int {
		return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	for _, l := range channels {
		b = fmt.Appendf(b, "\n%d %v", l.epoch, l.Message)
	}
	reports := slices.Clone(w.reports)
	slices.SortFunc(reports, func(a, b wakeReport) int { return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.from, b.from)) })
	for _, r := range reports {
		b = viewtest.AppendReport(fmt.Appendf(b, "\n%d %d %d %v %b %b", r.epoch, r.from, r.hold.Fence, r.hold.Shared, r.heard, r.told), membership.Holding{Past: r.past})
	}
	return fmt.Append(b, w.last)
}

type wakeStep = search.Event[*wake]

func (w *wake) Do(step wakeStep) error {
	err := step.Do(w)
	w.reports = slices.DeleteFunc(w.reports, func(r wakeReport) bool { return !w.needed(&r) })
	return err
}

// needed reports whether a REPORT may still be sent or used.
func (w *wake) needed(r *wakeReport) bool {
	k := slices.IndexFunc(w.views, func(v wakeView) bool { return v.Epoch == r.epoch })
	return slices.ContainsFunc(w.views[k].Members, func(m membership.Member) bool {
		p := &w.nodes[m.Node-1]
		return !p.ended && !p.dead && (p.view < k || p.view == k && (!p.acts || p.thawed))
	})
}

func (w *wake) Tell(b []byte, step wakeStep, after *wake) []byte {
	b = fmt.Appendln(b, step)
	for i := range after.nodes {
		if p := &after.nodes[i]; p.hold != 0 && w.nodes[i].hold == 0 {
			b = fmt.Appendf(b, "    %d holds the lock\n", i+1)
		}
	}
	return b
}

// Steps lists what may happen.
func (w *wake) Steps(steps []wakeStep) []wakeStep {
	add := func(do func(*wake) error, format string, args ...any) {
		steps = append(steps, search.NewEvent(do, format, args...))
	}
	for k, l := range w.wire {
		earlier := slices.ContainsFunc(w.wire[:k], func(e wakeLetter) bool { return e.From == l.From && e.To == l.To && e.epoch == l.epoch })
		if p := &w.nodes[l.To-1]; p.machine != nil && w.epoch(p) == l.epoch && !earlier {
			add(func(w *wake) error {
				w.wire = slices.Delete(w.wire, k, k+1)
				return w.input(int(l.To-1), func(m dmutex.Machine) ([]dmutex.Message, error) { return m.Handle(l.Clone()) })
			}, "deliver %v", l.Message)
		}
	}
	now := &w.views[len(w.views)-1]
	for i := range w.nodes {
		p, id := &w.nodes[i], dmutex.NodeID(i+1)
		if p.ended {
			continue
		}
		if !p.dead {
			w.live(add, i)
		}
		if now.Life(id) != 0 && len(w.views) <= w.changes {
			w.change(add, i)
		}
		if p.out != 0 && w.leases {
			add(func(w *wake) error { w.end(i); return nil }, "the lease of %d ends", id)
		}
		if u := w.over(); p.out == 0 && !p.dead && p.view >= 0 && u > p.cleared {
			add(func(w *wake) error {
				w.nodes[i].cleared = u
				return w.ask(i)
			}, "%d knows that the leases of all that were excluded until %d have ended", id, u)
		}
		if w.death && w.steady() {
			add(func(w *wake) error { w.die(i); return nil }, "%d dies", id)
		}
	}
	return steps
}

type wakeAdd = func(do func(*wake) error, format string, args ...any)

// live lets node i do something.
func (w *wake) live(add wakeAdd, i int) {
	p, id := &w.nodes[i], dmutex.NodeID(i+1)
	if p.hold == 0 && !p.waits && p.acts {
		if p.requests > 0 {
			add(func(w *wake) error {
				w.nodes[i].requests--
				w.nodes[i].waits, w.nodes[i].sharing = true, false
				return w.ask(i)
			}, "%d requests", id)
		}
		if p.shares > 0 {
			add(func(w *wake) error {
				w.nodes[i].shares--
				w.nodes[i].waits, w.nodes[i].sharing = true, true
				return w.ask(i)
			}, "%d asks to share", id)
		}
	}
	w.partings(add, i)
	if p.hold != 0 {
		add(func(w *wake) error {
			if w.nodes[i].hold = 0; p.machine == nil || p.thawed {
				return nil
			}
			return w.input(i, dmutex.Machine.Release)
		}, "%d releases", id)
	}
	for k := p.view + 1; k < len(w.views); k++ {
		if w.views[k].Life(id) != 0 && !p.thawed {
			add(func(w *wake) error { w.install(i, k); return nil }, "%d installs %v", id, viewtest.View(w.views[k].View))
		}
	}
	if p.thawed {
		add(func(w *wake) error { w.freeze(i); return nil }, "%d freezes", id)
	}
	for k, r := range w.reports {
		if w.hears(i, &r) {
			add(func(w *wake) error {
				w.reports[k].heard |= 1 << id
				w.tell(i)
				return nil
			}, "%d hears that %d has installed %d", id, r.from, r.epoch)
		}
	}
	if p.view >= 0 && !p.acts && w.complete(i) {
		if c := w.Clone(nil); c.recalled(i) {
			add(func(w *wake) error { w.recalled(i); return w.act(i) }, "%d acts", id)
		}
	}
}

// partings lets node i say its last word, and hear those of others.
func (w *wake) partings(add wakeAdd, i int) {
	p, id := &w.nodes[i], dmutex.NodeID(i+1)
	said := 0
	for j := range w.nodes {
		other := &w.nodes[j]
		if other.last == nil {
			continue
		}
		said++
		if i != j && p.view >= 0 && w.views[p.view].Life(dmutex.NodeID(j+1)) != 0 && other.heard>>id&1 == 0 {
			add(func(w *wake) error {
				w.nodes[j].heard |= 1 << id
				w.nodes[i].parts(dmutex.NodeID(j+1), w.nodes[j].last)
				return nil
			}, "%d hears the last word of %d", id, j+1)
		}
	}
	if said < w.wakeSetup.partings && p.last == nil && p.view >= 0 && !p.thawed {
		add(func(w *wake) error { return w.part(i) }, "%d says its last word", id)
	}
}

// part lets node i withdraw its request, and say its last word.
func (w *wake) part(i int) error {
	p := &w.nodes[i]
	if p.last = new(membership.Parting); p.hold != 0 && w.broken != forgetsLent {
		p.last.Lent = []membership.Loan{{Lock: "x", Key: "k"}}
	}
	if w.broken == goesOn {
		return nil
	}
	asked := p.asked && p.machine.Phase() == dmutex.Waiting
	p.waits, p.asked, p.requests, p.shares = false, false, 0, 0
	if asked {
		return w.input(i, dmutex.Machine.Cancel)
	}
	return nil
}

// hears reports whether node i may hear VIEW of another: of the view that it has installed, or
// of a later one.
func (w *wake) hears(i int, r *wakeReport) bool {
	k := slices.IndexFunc(w.views, func(v wakeView) bool { return v.Epoch == r.epoch })
	id := dmutex.NodeID(i + 1)
	return r.from != id && r.heard>>id&1 == 0 && w.views[k].Life(id) != 0 && w.nodes[i].view <= k
}

// tell lets node i send the REPORT of its view to those that have said VIEW.
func (w *wake) tell(i int) {
	p, id := &w.nodes[i], dmutex.NodeID(i+1)
	if p.view < 0 || p.thawed {
		return
	}
	v := &w.views[p.view]
	own := w.report(v.Epoch, id)
	if own == nil { // of the founders' view
		return
	}
	for _, m := range v.Members {
		if r := w.report(v.Epoch, m.Node); r != nil && r.heard>>id&1 != 0 || m.Node != id && w.broken == unheard {
			own.told |= 1 << m.Node
			p.told(m.Node, v.Epoch)
		}
	}
}

// steady reports whether nobody has died, and all act in the last view.
func (w *wake) steady() bool {
	last := len(w.views) - 1
	return !slices.ContainsFunc(w.nodes, func(p wakeNode) bool { return p.dead }) &&
		!slices.ContainsFunc(w.views[last].Members, func(m membership.Member) bool {
			p := &w.nodes[m.Node-1]
			return p.view < last || !p.acts || p.thawed
		})
}

// die ends node i. It may hold the lock: another gets it after the lease of node i.
func (w *wake) die(i int) {
	w.nodes[i].dead = true
	w.wire = slices.DeleteFunc(w.wire, func(l wakeLetter) bool { return l.To == dmutex.NodeID(i+1) })
}

// change lets the record be changed: node i is excluded, others join, or both.
func (w *wake) change(add wakeAdd, i int) {
	now := &w.views[len(w.views)-1]
	out := dmutex.NodeID(i + 1)
	next := now.Members[len(now.Members)-1].Node + 1 // that joins
	for _, w2 := range w.views {
		next = max(next, w2.Members[len(w2.Members)-1].Node+1)
	}
	for _, joins := range []bool{false, true} {
		if joins && int(next) > w.n || !joins && len(now.Members) == 1 || w.death && !w.nodes[i].dead {
			continue
		}
		add(func(w *wake) error {
			v := wakeView{membership.View{Epoch: now.Epoch + 1}, now.Epoch + 1}
			for _, m := range now.Members {
				if m.Node != out {
					v.Members = append(v.Members, m)
				}
			}
			if joins {
				v.Members = append(v.Members, membership.Member{Node: next, Life: 1})
			}
			w.views = append(w.views, v)
			w.nodes[i].out = v.Epoch
			return nil
		}, "%d is excluded, %d joins: %v", out, next, joins)
	}
	if i == 0 && int(next) <= w.n {
		add(func(w *wake) error {
			v := wakeView{membership.View{Epoch: now.Epoch + 1, Members: append(slices.Clone(now.Members), membership.Member{Node: next, Life: 1})}, now.unclean}
			w.views = append(w.views, v)
			return nil
		}, "%d joins", next)
	}
}

// over returns the last exclusion up to which the leases of all excluded lives have ended.
func (w *wake) over() (epoch uint64) {
	for _, v := range w.views {
		if v.unclean == v.Epoch {
			if slices.ContainsFunc(w.nodes, func(p wakeNode) bool { return p.out != 0 && p.out <= v.Epoch && !p.ended }) {
				return epoch
			}
			epoch = v.Epoch
		}
	}
	return epoch
}

func (w *wake) epoch(p *wakeNode) uint64 {
	if p.thawed {
		return p.own.Epoch
	}
	return w.views[p.view].Epoch
}

func (w *wake) report(epoch uint64, from dmutex.NodeID) *wakeReport {
	i := slices.IndexFunc(w.reports, func(r wakeReport) bool { return r.epoch == epoch && r.from == from })
	if i < 0 {
		return nil
	}
	return &w.reports[i]
}

// end ends the lease of node i, and with it all that it does.
func (w *wake) end(i int) {
	w.nodes[i] = wakeNode{view: w.nodes[i].view, out: w.nodes[i].out, dead: w.nodes[i].dead, ended: true}
	w.wire = slices.DeleteFunc(w.wire, func(l wakeLetter) bool { return l.To == dmutex.NodeID(i+1) })
}

// install lets node i install a view: it freezes the former one and writes its REPORT.
func (w *wake) install(i, k int) {
	p, id, v := &w.nodes[i], dmutex.NodeID(i+1), &w.views[k]
	var word *membership.Word
	former := membership.View{}
	if p.view >= 0 {
		former = w.views[p.view].View
	}
	if p.acts {
		word = &membership.Word{Node: id, Epoch: former.Epoch, Members: former.Nodes()}
		if w.broken != holderFresh || !w.untouched(i) {
			m := p.machine
			if s, ok := m.(dmutex.Sharer); ok && w.broken == readersExcluded {
				m = aloneOnly{m, s}
			}
			carryover.Note(word, "x", m, w.fresh(word))
		}
	} else if w.broken == idleWord && p.view >= 0 && p.earlier != nil {
		word = &membership.Word{Node: id, Epoch: former.Epoch, Members: former.Nodes()}
	}
	excludes := p.view >= 0 && v.unclean > w.views[p.view].unclean
	p.meet(id, v.View, v.unclean, excludes)
	if word != nil {
		p.remember(*word)
	}
	if w.broken == staleWord {
		for k := range p.met {
			p.met[k].told = 0
		}
	}
	if w.broken == comersFree {
		p.met = slices.DeleteFunc(p.met, func(a acquaintance) bool { return a.gone != 0 && !slices.Contains(p.own.Members, a.node) })
	}
	if w.broken == noUnion && p.earlier != nil {
		p.earlier = &membership.Past{}
	}
	p.reported = p.hold != 0
	w.reports = append(w.reports, wakeReport{epoch: v.Epoch, from: id, hold: membership.Hold{Lock: "x", Fence: p.hold, Shared: p.hold != 0 && p.sharing}, past: p.tell(p.cleared), told: 1 << id})
	if w.broken == newcomerSays && w.reports[len(w.reports)-1].past == nil {
		w.reports[len(w.reports)-1].past = &membership.Past{}
	}
	p.view, p.past, p.blind, p.acts = k, membership.Past{}, 0, false
	if w.broken == lateFreeze && word != nil {
		p.thawed, p.acts = true, true
		return
	}
	w.freeze(i)
}

// An aloneOnly is a machine with a broken rule: it forgets those that share.
type aloneOnly struct {
	dmutex.Machine
	dmutex.Sharer
}

func (m aloneOnly) Excludes(id dmutex.NodeID) bool { return m.ExcludesAlone(id) }

// untouched reports whether the machine of node i is as it began.
func (w *wake) untouched(i int) bool {
	p := &w.nodes[i]
	a, _ := p.machine.AppendText(nil)
	m, err := w.algorithm(w.start(&w.views[p.view].View, dmutex.NodeID(i+1), p.carried))
	must(err)
	b, _ := m.AppendText(nil)
	return string(a) == string(b)
}

// freeze ends the machine of the former view of node i. Messages to it are dropped.
func (w *wake) freeze(i int) {
	p := &w.nodes[i]
	p.machine, p.asked, p.acts, p.thawed = nil, false, false, false
	w.wire = slices.DeleteFunc(w.wire, func(l wakeLetter) bool { return l.To == dmutex.NodeID(i+1) && l.epoch < w.views[p.view].Epoch })
	w.tell(i)
}

// complete reports whether node i has the REPORTs of all members of its view.
func (w *wake) complete(i int) bool {
	v := &w.views[w.nodes[i].view]
	return !slices.ContainsFunc(v.Members, func(m membership.Member) bool {
		r := w.report(v.Epoch, m.Node)
		return r == nil || r.told>>(i+1)&1 == 0
	})
}

// recalled lets node i take in the REPORTs of its view, and reports whether it may act.
func (w *wake) recalled(i int) bool {
	p := &w.nodes[i]
	v := &w.views[p.view]
	var told []*membership.Past
	for _, m := range v.Members {
		told = append(told, w.report(v.Epoch, m.Node).past)
	}
	veteran := slices.ContainsFunc(told, func(p *membership.Past) bool { return p != nil })
	p.recall(told, v.unclean, p.cleared)
	if w.broken == unknownFree {
		p.blind = 0
	}
	if w.broken == deafJoiner && p.earlier == nil && veteran {
		p.past, p.blind = membership.Past{}, 0
	}
	return p.cleared >= p.blind
}

// act lets the machine of node i begin, with the holder that was reported.
func (w *wake) act(i int) error {
	p := &w.nodes[i]
	v := &w.views[p.view]
	var holdings []membership.Holding
	for _, m := range v.Members {
		if r := w.report(v.Epoch, m.Node); r.hold.Fence > 0 {
			holdings = append(holdings, membership.Holding{Node: m.Node, Holds: []membership.Hold{r.hold}})
		}
	}
	holders := viewtest.Carried(holdings...)
	if w.broken == oneSharer && len(holders) > 1 {
		holders = holders[:1]
	}
	if err := w.born(i, holders); err != nil {
		return err
	}
	if p.reported && p.hold == 0 {
		if err := w.input(i, dmutex.Machine.Release); err != nil {
			return err
		}
	}
	return w.ask(i)
}

// ask lets node i request the lock for its caller, if it waits and the lock is free.
func (w *wake) ask(i int) error {
	p := &w.nodes[i]
	if !p.waits || p.asked || p.machine == nil || p.thawed || p.machine.Phase() != dmutex.Idle || !w.free(i) {
		return nil
	}
	p.asked = true
	if p.sharing {
		return w.input(i, func(m dmutex.Machine) ([]dmutex.Message, error) { return m.(dmutex.Sharer).Share() })
	}
	return w.input(i, dmutex.Machine.Request)
}

// input lets the machine of node i do something.
func (w *wake) input(i int, do func(dmutex.Machine) ([]dmutex.Message, error)) error {
	p := &w.nodes[i]
	out, err := do(p.machine)
	if err != nil {
		return search.Wrong(dmutextest.ErrRefused, "node %d: %v", i+1, err)
	}
	epoch := w.epoch(p)
	for _, m := range out {
		if to := &w.nodes[m.To-1]; !to.ended && !to.dead && (to.view < 0 || w.epoch(to) <= epoch) {
			w.wire = append(w.wire, wakeLetter{epoch, m.Clone()})
		}
	}
	if !p.asked || p.machine.Phase() != dmutex.Held || p.thawed {
		return w.ask(i)
	}
	p.waits, p.asked, p.hold = false, false, p.machine.Fence()
	for j, other := range w.nodes {
		if j != i && other.hold != 0 && !(p.sharing && other.sharing) {
			return search.Wrong(dmutextest.ErrMutualExclusion, "%d and %d hold the lock", i+1, j+1)
		}
	}
	mode, last := 0, max(w.last[0], w.last[1])
	if p.sharing {
		mode, last = 1, w.last[0]
	}
	if p.hold <= last {
		return search.Wrong(dmutextest.ErrFenceOrder, "%d is granted by %d, after %d", i+1, p.hold, last)
	}
	w.last[mode] = max(w.last[mode], p.hold)
	return nil
}

// rests checks a state in which nothing happens anymore: no member waits, except for leases that never
// end. After a death all live members act: they know what the dead member may hold.
func (w *wake) rests() error {
	if len(w.Steps(nil)) > 0 {
		return nil
	}
	for i := range w.nodes {
		p := &w.nodes[i]
		if p.waits && p.out == 0 && (p.acts && w.free(i) || w.leases) {
			return search.Wrong(dmutextest.ErrDeadlock, "%d waits forever", i+1)
		}
		for j := range w.nodes {
			if last := w.nodes[j].last; last != nil && len(last.Lent) == 0 && w.nodes[j].heard>>(i+1)&1 != 0 && p.earlier != nil &&
				slices.ContainsFunc(p.past.Former, func(f membership.Former) bool { return int(f.Node) == j+1 }) {
				return search.Wrong(dmutextest.ErrDeadlock, "%d waits for %d, which has said that it holds nothing", i+1, j+1)
			}
		}
		if w.death && !p.acts && p.view >= 0 && p.out == 0 && slices.ContainsFunc(w.nodes, func(p wakeNode) bool { return p.out != 0 }) {
			return search.Wrong(dmutextest.ErrDeadlock, "%d does not act: nobody knows what the dead may hold", i+1)
		}
	}
	return nil
}
