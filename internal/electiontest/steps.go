package electiontest

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/election"
	"github.com/dmutex/dmutex/internal/search"
)

type event = search.Event[*world]

// Do takes a step.
func (w *world) Do(step event) error { return step.Do(w) }

// Steps lists what may happen.
func (w *world) Steps(steps []event) []event {
	add := func(do func(*world) error, format string, args ...any) {
		steps = append(steps, search.NewEvent(do, format, args...))
	}
	quiet, news := true, w.anyNews()
	for c, queue := range w.channels {
		if len(queue) > 0 {
			quiet = false
			add(func(w *world) error {
				msg, i := w.channels[c][0], c%w.Nodes
				w.channels[c] = w.channels[c][1:]
				w.met[i] = max(w.met[i], msg.Ballot, msg.Epoch)
				return w.does(i, func() ([]election.Message, error) { return w.machines[i].Handle(msg) })
			}, "deliver %v", queue[0])
		}
	}
	for i := range w.Nodes {
		for j := range w.Nodes {
			if w.news(i, j) {
				verb := "suspects"
				if w.told[i*w.Nodes+j] {
					verb = "suspects no more"
				}
				add(func(w *world) error { return w.tell(i, j) }, "%d %s %d", i+1, verb, j+1)
			}
		}
	}
	runs := false
	for i, m := range w.machines {
		if m == nil || m.TicksLeft() == 0 {
			continue
		}
		runs = true
		if w.odds.Early > 0 {
			add(func(w *world) error {
				w.odds.Early--
				return w.does(i, func() (out []election.Message, _ error) {
					for range w.machines[i].TicksLeft() {
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
				if err := w.does(i, func() ([]election.Message, error) { return m.Tick(), nil }); err != nil {
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
	for i, m := range w.machines {
		switch {
		case m == nil && w.odds.Recoveries > 0 && !(w.Prompt && w.lingers(i)):
			add(func(w *world) error {
				w.odds.Recoveries--
				w.born(i, w.kept[i])
				if err := w.loose(); err != nil {
					return err
				}
				return w.does(i, func() ([]election.Message, error) { return w.machines[i].Start(), nil })
			}, "%d recovers", i+1)
		case m != nil && w.odds.Crashes > 0:
			add(func(w *world) error {
				w.odds.Crashes--
				if !w.Forgetful {
					_, w.kept[i] = w.machines[i].Leader()
				}
				w.machines[i] = nil
				for j := range w.Nodes {
					w.told[i*w.Nodes+j] = false
				}
				return w.loose()
			}, "%d crashes", i+1)
		}
		if m != nil && w.odds.Restarts > 0 && m.TicksLeft() == 0 {
			add(func(w *world) error {
				w.odds.Restarts--
				return w.does(i, func() ([]election.Message, error) { return w.machines[i].Start(), nil })
			}, "%d starts", i+1)
		}
		for j := range w.machines {
			if w.odds.Wrong > 0 && i != j && w.reach(i, j) && !w.told[i*w.Nodes+j] {
				add(func(w *world) error {
					w.odds.Wrong--
					w.told[i*w.Nodes+j] = true
					return w.does(i, func() ([]election.Message, error) { return w.machines[i].Suspect(dmutex.NodeID(j + 1)) })
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
	} else if w.odds.Cuts > 0 {
		for set := 1; set < 1<<(w.Nodes-1); set++ { // node n is never on it: each cut once
			name := ""
			for i := range w.Nodes {
				if set>>i&1 == 1 {
					name += " " + strconv.Itoa(i+1)
				}
			}
			add(func(w *world) error {
				w.odds.Cuts--
				for i := range w.side {
					w.side[i] = set>>i&1 == 1
				}
				return w.loose()
			}, "cut off:%s", name)
		}
	}
}
