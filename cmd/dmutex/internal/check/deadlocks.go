package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/deadlocktest"
	"github.com/dmutex/dmutex/internal/search"
)

type deadlockOptions struct {
	Waits     int  `json:"waits" default:"1" least:"1" most:"9" help:"Times that each node waits in a run, 1 to 9; under chase it takes one lock more, one after another."`
	Width     int  `json:"width" default:"1" help:"Most nodes that a node waits for at a time: 1 or more."`
	AtOnce    bool `json:"at_once" help:"Each node looks for a deadlock when it begins to wait, and at no time later: fewer states."`
	Withdraw  int  `json:"withdraw" least:"0" most:"9" placeholder:"N" help:"Waits that are given up in a run, 0 to 9. The papers' models exclude that, chase allows it."`
	Unordered bool `json:"unordered" help:"Messages may overtake each other, which the papers' models exclude."`
}

const deadlockHelp = `With --deadlock the nodes wait for each other in every possible way, which changes while probes travel, and each node looks for a deadlock ` +
	`once in each wait. Every deadlock must be declared by a node in it, and none that does not exist. With --withdraw and --unordered ` +
	`the check shows the shortest way to a deadlock that is declared but does not exist, or is missed. --deadlock=chase is what node.Config.Deadlock runs: there a wait may be given up.`

// models are those of package deadlock that have a machine at each node.
var models = map[string]deadlocktest.Model{"and": deadlocktest.And, "or": deadlocktest.Or}

func (o *deadlockOptions) validate(name string, nodes int, given map[string]bool) error {
	_, known := models[name]
	for _, flag := range []string{"width", "at-once", "unordered"} {
		if name == chase && given[flag] {
			return fmt.Errorf("--%s is about the papers' models: leave it out with --deadlock=%s", flag, chase)
		}
	}
	switch {
	case !known && name != chase:
		return fmt.Errorf("--deadlock=%s: choose \"and\", \"or\" or \"%s\"", name, chase)
	case nodes < 2:
		return fmt.Errorf("--nodes=%d: no node waits for itself: choose 2 to 9 nodes", nodes)
	case o.Width < 1 || o.Width >= nodes:
		return fmt.Errorf("--width=%d: each of %d nodes can wait for 1 to %d others", o.Width, nodes, nodes-1)
	}
	return nil
}

const chase = "chase"

// subject is the group to explore: of one of the papers' models, or of transactions, one
// at each node, with as many locks.
func (o *deadlockOptions) subject(c *Cmd) subject {
	g := &group{
		Deadlock: c.Deadlock, Nodes: c.Nodes, Options: o, most: c.MaxStates,
		name: strings.ToUpper(c.Deadlock) + " model",
		what: o.what(c),
		proved: "In every run of this group each deadlock was declared by a node in it once all waiting nodes had looked, " +
			"and none was declared that did not exist.",
		some:    "%s of them with a deadlock declared",
		failing: o.failing,
	}
	if c.Deadlock != chase {
		t := deadlocktest.Trial{
			Model: models[c.Deadlock], Waits: slices.Repeat([]int{o.Waits}, c.Nodes), Widest: slices.Repeat([]int{o.Width}, c.Nodes),
			AtOnce: o.AtOnce, Unordered: o.Unordered, Withdraws: o.Withdraw,
		}
		g.run = t.Explore
		return g
	}
	t := deadlocktest.Chases{
		At: dmutextest.Nodes(c.Nodes), Locks: c.Nodes, Acquires: []int{o.Waits + 1}, Chases: 1, Withdrawals: o.Withdraw,
	}
	g.name, g.some = chase, "%s of them with a cycle"
	g.proved = "In every run of this group each victim was in a cycle of transactions that waited for each other, no cycle had two victims, " +
		"and every cycle that stays is found by its youngest member."
	g.failing = func(error) string { return "" }
	g.run = func(limits search.Limits) (search.Report, error) {
		r, _, err := t.Explore(limits)
		return r, err
	}
	return g
}

func (o *deadlockOptions) what(c *Cmd) string {
	said := fmt.Sprintf("%s x %s", tool.Several(c.Nodes, "node"), tool.Several(o.Waits, "wait"))
	if c.Deadlock == chase {
		said = fmt.Sprintf("%s, each takes %s", tool.Several(c.Nodes, "node"), tool.Several(o.Waits+1, "lock"))
	}
	if o.Width > 1 {
		said += fmt.Sprintf(" for up to %d", o.Width)
	}
	if o.Withdraw > 0 {
		said += fmt.Sprintf(", %d withdrawn", o.Withdraw)
	}
	if o.Unordered {
		said += ", unordered"
	}
	if o.AtOnce {
		said += ", looking at once"
	}
	return said
}

func (o *deadlockOptions) failing(kind error) string {
	switch {
	case o.Unordered:
		return "A probe must not overtake the request that it follows, nor a reply a grant: they need one channel that keeps their order."
	case errors.Is(kind, deadlocktest.ErrPhantom) && o.Withdraw > 0:
		return "By the time the probe was back, a wait had been given up. Where that can happen a declaration is only a hint: look again before acting on it."
	}
	return ""
}
