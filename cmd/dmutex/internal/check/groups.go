package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/election"
	"github.com/dmutex/dmutex/internal/deadlocktest"
	"github.com/dmutex/dmutex/internal/electiontest"
	"github.com/dmutex/dmutex/internal/search"
)

// A group is the check of machines that are not locks.
type group struct {
	Election string `json:"election,omitempty"`
	Deadlock string `json:"deadlock,omitempty"`
	Nodes    int    `json:"nodes"`
	Options  any    `json:"options"`
	finding
	Rests     int `json:"states_at_rest,omitempty"`    // of elections
	Deadlocks int `json:"states_deadlocked,omitempty"` // in which a deadlock is declared; of chases, in which there is a cycle

	name, what string                  // the same, for people
	proved     string                  // by a clean exploration
	some       string                  // what some of the states are, such as "%s of them at rest"
	failing    func(kind error) string // what a group that failed assumes
	most       int                     // states
	run        func(search.Limits) (search.Report, error)
}

func (g *group) title() string { return g.name }

func (g *group) explore(more func(string) bool) error {
	r, err := g.run(search.Limits{MaxStates: g.most, Progress: func(r search.Report) bool {
		return more(tool.Thousands(r.States) + " states")
	}})
	if g.Election != "" {
		g.Rests = r.Some
	} else {
		g.Deadlocks = r.Some
	}
	return g.judge(r.States, r.Complete, err)
}

func (g *group) text() string {
	some := ""
	if g.Verdict == clean {
		some = ", " + fmt.Sprintf(g.some, tool.Thousands(g.Rests+g.Deadlocks))
	}
	return fmt.Sprintf("%-14s %s: %s. %s%s, in %.1f s\n", g.name, g.what, g.Verdict, tool.Several(g.States, "state"), some, g.Seconds)
}

// closingOne is what stands below the verdict on a group: the script of its
// violation, and what it means.
func closingOne(all []subject) string {
	g := all[0].(*group)
	switch g.Verdict {
	case wrong:
		v := g.Violation
		return fmt.Sprintf("\n%s\n%s\n", v.Script, tool.Wrap(strings.TrimSpace(g.name+" failed. "+g.failing(v.kind))))
	case clean:
		return "\n" + tool.Wrap(g.proved) + "\n"
	}
	return ""
}

type electionOptions struct {
	Majority   bool `json:"majority" help:"With the majority rule: a node leads only if a majority lets it run."`
	Crashes    int  `json:"crashes" least:"0" most:"9" placeholder:"N" help:"Crashes in a run, 0 to 9."`
	Recoveries int  `json:"recoveries" least:"0" most:"9" placeholder:"N" help:"Nodes that come back, at most as many as crash. The default is one crash and one recovery, if no other event is asked for."`
	Cuts       int  `json:"cuts" least:"0" most:"9" placeholder:"N" help:"Times that the network parts in two, 0 to 9. A partition may heal."`
	Wrong      int  `json:"wrong" least:"0" most:"9" placeholder:"N" help:"Suspicions of nodes that are alive and can be reached, 0 to 9."`
	Early      int  `json:"early" least:"0" most:"9" placeholder:"N" help:"Timeouts that fire although messages are in flight, 0 to 9."`
	Starts     int  `json:"starts" least:"0" most:"9" placeholder:"N" help:"Elections that begin for no reason, 0 to 9."`
	Forgetful  bool `json:"forgetful" help:"A node that comes back has forgotten the epoch that it knew."`
	Prompt     bool `json:"prompt" help:"Suspicion is right and comes at once; then there must never be two leaders at an instant."`
}

const electionHelp = `With --election a group that has a leader is explored: what --crashes, --cuts and the others allow happens at any time. ` +
	`No epoch may have two leaders, or fall at a node. The two sides of a partition that all have noticed may not both have a leader. Every run ` +
	`must come to rest, with the highest node as the leader of all that can reach it (with --majority, only of a majority). ` +
	`So --cuts needs --majority: without it the check shows the shortest way to two leaders.`

var elections = map[string]election.Algorithm{
	"bully":         election.Bully,
	"ring":          election.Ring,
	"chang-roberts": election.ChangRoberts,
}

// An event is something that may happen a number of times in a run.
type event struct {
	flag      string
	times     int
	one, more string
}

func (o *electionOptions) events() []event {
	return []event{
		{"crashes", o.Crashes, "crash", "crashes"},
		{"recoveries", o.Recoveries, "recovery", "recoveries"},
		{"cuts", o.Cuts, "cut", "cuts"},
		{"wrong", o.Wrong, "wrong suspicion", "wrong suspicions"},
		{"early", o.Early, "early timeout", "early timeouts"},
		{"starts", o.Starts, "start", "starts"},
	}
}

func (o *electionOptions) validate(name string, given map[string]bool) error {
	if elections[name] == nil {
		return fmt.Errorf("--election=%s: choose bully, ring or chang-roberts", name)
	}
	happens := false
	for _, n := range o.events() {
		happens = happens || given[n.flag]
	}
	if !happens {
		o.Crashes, o.Recoveries = 1, 1
	}
	switch {
	case o.Recoveries > o.Crashes:
		return fmt.Errorf("--recoveries=%d: only a node that has crashed comes back: choose --crashes=%d or more", o.Recoveries, o.Recoveries)
	case o.Forgetful && o.Recoveries == 0:
		return errors.New("--forgetful is about nodes that come back: choose --crashes=1 --recoveries=1 or more")
	case o.Prompt && o.Wrong+o.Early > 0:
		return errors.New("--prompt says that suspicion is right and in time: leave --wrong and --early out")
	}
	return nil
}

func (o *electionOptions) subject(c *Cmd) subject {
	t := electiontest.Trial{
		Algorithm: elections[c.Election], Nodes: c.Nodes, Majority: o.Majority,
		OneSide: true, OneLeader: o.Prompt, Prompt: o.Prompt, Forgetful: o.Forgetful,
		Odds: electiontest.Odds{
			Crashes: o.Crashes, Recoveries: o.Recoveries, Cuts: o.Cuts,
			Wrong: o.Wrong, Early: o.Early, Restarts: o.Starts,
		},
	}
	return &group{
		Election: c.Election, Nodes: c.Nodes, Options: o, most: c.MaxStates,
		name:    c.Election,
		what:    o.what(c.Nodes),
		proved:  o.proved(),
		some:    "%s of them at rest",
		failing: o.failing,
		run:     t.Explore,
	}
}

func (o *electionOptions) what(nodes int) string {
	said := tool.Phrases{tool.Several(nodes, "node")}
	for _, n := range o.events() {
		said.Add(n.times == 1, "1 %s", n.one)
		said.Add(n.times > 1, "%d %s", n.times, n.more)
	}
	said.Add(o.Forgetful, "forgetful")
	said.Add(o.Prompt, "prompt")
	said.Add(o.Majority, "majority rule")
	return strings.Join(said, ", ")
}

func (o *electionOptions) proved() string {
	said := tool.Phrases{"In every run of this group no epoch had two leaders, and at no node did an epoch fall"}
	said.Add(o.Cuts > 0, "once all had noticed a partition, at most one side had a leader")
	said.Add(o.Prompt, "there were never two leaders at an instant")
	said.Add(true, "and in the end all nodes that reached each other had the highest of them as the leader, in one epoch")
	none := ""
	if o.Majority {
		none = ", or none if they were no majority"
	}
	return strings.Join(said, "; ") + none + "."
}

func (o *electionOptions) failing(kind error) string {
	if errors.Is(kind, electiontest.ErrTwoLeaders) && !o.Majority {
		return "Without the majority rule one node may begin to lead before another one stops: try --majority."
	}
	return ""
}

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
	var said tool.Phrases
	nodes, waits := tool.Several(c.Nodes, "node"), tool.Several(o.Waits, "wait")
	said.Add(c.Deadlock == chase, "%s, each takes %s", nodes, tool.Several(o.Waits+1, "lock"))
	said.Add(c.Deadlock != chase && o.Width == 1, "%s x %s", nodes, waits)
	said.Add(o.Width > 1, "%s x %s for up to %d", nodes, waits, o.Width) // not of a chase
	said.Add(o.Withdraw > 0, "%d withdrawn", o.Withdraw)
	said.Add(o.Unordered, "unordered")
	said.Add(o.AtOnce, "looking at once")
	return strings.Join(said, ", ")
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
