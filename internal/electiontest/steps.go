package electiontest

import (
	"fmt"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/election"
	"github.com/dmutex/dmutex/internal/search"
)

// Explore visits every state of a trial, shortest runs first. It returns a
// [*search.Violation] with a shortest run to the first state that is wrong, and
// in any case how far it came. Some states are at rest: nothing is left to happen
// unless something fails.
//
// Besides what the trial asks for, it checks that no epoch has two leaders, that
// epochs never fall at a node, and that every run comes to rest. At rest, all nodes
// that reach each other have the highest of them as the leader, in one epoch. If the
// majority rule is on and they are no majority, they have no leader.
func (t *Trial) Explore(limits search.Limits) (search.Report, error) {
	first, err := t.begin()
	if err != nil {
		return search.Report{}, err
	}
	return search.Search[*world, event]{
		Limits: limits,
		First:  first,
		State:  (*world).agree,
		Some:   (*world).atRest,
		Step:   func(_, after *world) error { return after.check() },
		Ends:   ErrNoAgreement,
		Script: func(told string, _ *world, v *search.Violation) string {
			return fmt.Sprintf("%s\n%s\nwrong: %s\n", first.title(), told, v.Why)
		},
	}.Run()
}

type event = search.Event[*world]

// Do takes a step.
func (w *world) Do(step event) error { return step.Do(w) }

// Steps lists what may happen.
func (w *world) Steps(steps []event) []event {
	add := func(do func(*world) error, format string, args ...any) {
		steps = append(steps, search.NewEvent(do, format, args...))
	}
	quiet, runs := !w.anyNews(), false
	for i := range w.nodes {
		for j, queue := range w.nodes[i].sent {
			if len(queue) > 0 {
				quiet = false
				add(func(w *world) error {
					w.nodes[i].sent[j] = queue[1:]
					w.nodes[j].met = max(w.nodes[j].met, queue[0].Ballot, queue[0].Epoch)
					return w.does(j, func(m Machine) ([]election.Message, error) { return m.Handle(queue[0]) })
				}, "deliver %v", queue[0])
			}
		}
	}
	for i, j := range w.news() {
		verb := "suspects"
		if w.nodes[i].suspects[j] {
			verb = "suspects no more"
		}
		add(func(w *world) error { return w.tell(i, j) }, "%d %s %d", i+1, verb, j+1)
	}
	for i := range w.nodes {
		if n := &w.nodes[i]; n.Machine == nil || n.TicksLeft() == 0 {
			continue
		}
		runs = true
		if w.odds.Early > 0 {
			add(func(w *world) error {
				w.odds.Early--
				return w.does(i, func(m Machine) (out []election.Message, _ error) {
					for range m.TicksLeft() {
						out = m.Tick()
					}
					return out, nil
				})
			}, "%d has waited long enough, it thinks", i+1)
		}
	}
	if runs && quiet {
		add(func(w *world) error {
			for i := range w.nodes {
				if w.nodes[i].Machine == nil {
					continue
				}
				if err := w.does(i, func(m Machine) ([]election.Message, error) { return m.Tick(), nil }); err != nil {
					return err
				}
			}
			return nil
		}, "a tick passes")
	}
	w.mishaps(add)
	return steps
}

// mishaps adds what the odds allow.
func (w *world) mishaps(add func(do func(*world) error, format string, args ...any)) {
	for i := range w.nodes {
		n := &w.nodes[i]
		switch {
		case n.Machine == nil && w.odds.Recoveries > 0 && !(w.Prompt && w.lingers(i)):
			add(func(w *world) error {
				w.odds.Recoveries--
				w.born(i)
				if err := w.loose(); err != nil {
					return err
				}
				return w.does(i, start)
			}, "%d recovers", i+1)
		case n.Machine != nil && w.odds.Crashes > 0:
			add(func(w *world) error {
				w.odds.Crashes--
				n := &w.nodes[i]
				if !w.Forgetful {
					_, n.kept = n.Leader()
				}
				n.Machine = nil
				clear(n.suspects)
				return w.loose()
			}, "%d crashes", i+1)
		}
		if n.Machine != nil && w.odds.Restarts > 0 && n.TicksLeft() == 0 {
			add(func(w *world) error {
				w.odds.Restarts--
				return w.does(i, start)
			}, "%d starts", i+1)
		}
		for j := range w.nodes {
			if w.odds.Wrong > 0 && i != j && w.reach(i, j) && !n.suspects[j] {
				add(func(w *world) error {
					w.odds.Wrong--
					return w.tell(i, j)
				}, "%d suspects %d, which is alive", i+1, j+1)
			}
		}
	}
	if slices.ContainsFunc(w.nodes, func(n node) bool { return n.aside }) {
		if !w.anyNews() {
			add(func(w *world) error { return w.cut(0) }, "the partition heals")
		}
	} else if w.odds.Cuts > 0 {
		for set := 1; set < 1<<(w.Nodes-1); set++ { // node n is never in it: each cut once
			name := ""
			for i := range w.nodes {
				if set>>i&1 == 1 {
					name += fmt.Sprint(" ", i+1)
				}
			}
			add(func(w *world) error {
				w.odds.Cuts--
				return w.cut(set)
			}, "cut off:%s", name)
		}
	}
}

// cut cuts a set of nodes off from the others.
func (w *world) cut(set int) error {
	for i := range w.nodes {
		w.nodes[i].aside = set>>i&1 == 1
	}
	return w.loose()
}

// title says how the group begins.
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

// Tell writes a step, and where another node leads then.
func (w *world) Tell(b []byte, step event, after *world) []byte {
	b = fmt.Appendln(b, step)
	for i := range after.nodes {
		before, last := w.leader(i)
		leader, epoch := after.leader(i)
		if after.nodes[i].Machine == nil || leader == before && epoch == last {
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
