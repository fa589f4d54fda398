package electiontest

import (
	"fmt"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/search"
)

// Explore visits every state of a trial, shortest runs first. It returns a
// [*search.Violation] with a shortest run to the first state that is wrong, and in any case
// how far it came. Report.Some counts the states at rest, where nothing happens unless
// something fails.
//
// Besides what the trial asks for, it checks that no epoch has two leaders, that
// epochs never fall at a node, and that every run comes to rest. At rest, all nodes
// that reach each other have the highest of them as the leader, in one epoch. If the
// majority rule is on and they are no majority, they have no leader.
func (t *Trial) Explore(limits search.Limits) (search.Report, error) {
	first := t.begin()
	return search.Search[*world, event]{
		Limits: limits,
		First:  first,
		State:  (*world).agree,
		Some:   (*world).atRest,
		Step:   func(before, after *world) error { return after.follows(before) },
		Ends:   ErrNoAgreement,
		Script: func(told string, _ *world, v *search.Violation) string {
			return fmt.Sprintf("%s\n%s\nwrong: %s\n", first.title(), told, v.Why)
		},
	}.Run()
}

type event = search.Event[*world]

func (w *world) Do(step event) error { return step.Do(w) }

func (w *world) Steps(steps []event) []event {
	add := func(do func(*world), format string, args ...any) {
		steps = append(steps, search.NewEvent(func(w *world) error { do(w); return nil }, format, args...))
	}
	for k, msg := range w.wire {
		if k == 0 || w.wire[k-1].From != msg.From || w.wire[k-1].To != msg.To { // it is the first of its channel
			steps = append(steps, search.NewEvent(func(w *world) error { return w.deliver(k) }, "deliver %v", msg))
		}
	}
	for _, pair := range w.news() {
		i, j := pair[0], pair[1]
		verb := "suspects"
		if w.nodes[i].suspects[j] {
			verb = "suspects no more"
		}
		add(func(w *world) { w.tell(i, j) }, "%d %s %d", i+1, verb, j+1)
	}
	timed := w.timed()
	for _, i := range timed {
		if w.odds.Early > 0 {
			add(func(w *world) {
				w.odds.Early--
				for range w.nodes[i].TicksLeft() {
					w.send(i, w.nodes[i].Tick())
				}
			}, "%d has waited long enough, it thinks", i+1)
		}
	}
	if len(timed) > 0 && w.quiet() {
		add(func(w *world) {
			for i, n := range w.nodes {
				if n.Machine != nil {
					w.send(i, n.Tick())
				}
			}
		}, "a tick passes")
	}
	for i, n := range w.nodes {
		switch {
		case n.Machine == nil && w.odds.Recoveries > 0 && !(w.Prompt && w.lingers(i)):
			add(func(w *world) {
				w.odds.Recoveries--
				w.born(i)
				w.loose()
				w.send(i, w.nodes[i].Start())
			}, "%d recovers", i+1)
		case n.Machine != nil && w.odds.Crashes > 0:
			add(func(w *world) { w.odds.Crashes--; w.crash(i) }, "%d crashes", i+1)
		}
		if n.Machine != nil && w.odds.Restarts > 0 && n.TicksLeft() == 0 {
			add(func(w *world) { w.odds.Restarts--; w.send(i, w.nodes[i].Start()) }, "%d starts", i+1)
		}
		for j := range w.nodes {
			if w.odds.Wrong > 0 && i != j && w.reach(i, j) && !n.suspects[j] {
				add(func(w *world) { w.odds.Wrong--; w.tell(i, j) }, "%d suspects %d, which is alive", i+1, j+1)
			}
		}
	}
	switch parted := slices.ContainsFunc(w.nodes, func(n node) bool { return n.aside }); {
	case parted && len(w.news()) == 0:
		add(func(w *world) { w.cut(0) }, "the partition heals")
	case !parted && w.odds.Cuts > 0:
		for set := 1; set < 1<<(w.Nodes-1); set++ { // node n is never in it: each cut once
			name := ""
			for i := range w.nodes {
				if set>>i&1 == 1 {
					name += fmt.Sprint(" ", i+1)
				}
			}
			add(func(w *world) { w.odds.Cuts--; w.cut(set) }, "cut off:%s", name)
		}
	}
	return steps
}

func (w *world) deliver(k int) error {
	msg := w.wire[k]
	w.wire = slices.Delete(w.wire, k, k+1)
	_, to := ends(msg)
	n := &w.nodes[to]
	n.met = max(n.met, msg.Ballot, msg.Epoch)
	out, err := n.Handle(msg)
	if err != nil {
		return search.Wrong(ErrRefused, "%v", err)
	}
	w.send(to, out)
	return nil
}

func (w *world) crash(i int) {
	n := &w.nodes[i]
	if !w.Forgetful {
		_, n.kept = n.Leader()
	}
	n.Machine = nil
	clear(n.suspects)
	w.loose()
}

func (w *world) cut(set int) {
	for i := range w.nodes {
		w.nodes[i].aside = set>>i&1 == 1
	}
	w.loose()
}

func (w *world) title() string {
	b := fmt.Appendf(nil, "%d nodes; majority rule: %v; ", w.Nodes, w.Majority)
	if w.Starts == nil {
		leader, epoch := w.leader(0)
		b = fmt.Appendf(b, "%d leads in epoch %d", leader, epoch)
	} else {
		b = append(b, "they run at first:"...)
	}
	for _, i := range w.Starts {
		b = fmt.Appendf(b, " %d", i+1)
	}
	return string(append(b, '\n'))
}

// Tell writes a step, and each node's new leader or epoch after it.
func (w *world) Tell(b []byte, step event, after *world) []byte {
	b = fmt.Appendln(b, step)
	for i, n := range after.nodes {
		before, last := w.leader(i)
		leader, epoch := after.leader(i)
		if n.Machine == nil || leader == before && epoch == last {
			continue
		}
		who := "nobody leads"
		if leader != dmutex.None {
			who = leader.String() + " leads"
		}
		b = fmt.Appendf(b, "    at %d: %s in epoch %d\n", i+1, who, epoch)
	}
	return b
}
