package check

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/election"
	"github.com/dmutex/dmutex/internal/electiontest"
)

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
	parts := []string{tool.Several(nodes, "node")}
	for _, n := range o.events() {
		switch {
		case n.times == 1:
			parts = append(parts, "1 "+n.one)
		case n.times > 1:
			parts = append(parts, fmt.Sprint(n.times, " ", n.more))
		}
	}
	for _, w := range []struct {
		said bool
		word string
	}{{o.Forgetful, "forgetful"}, {o.Prompt, "prompt"}, {o.Majority, "majority rule"}} {
		if w.said {
			parts = append(parts, w.word)
		}
	}
	return strings.Join(parts, ", ")
}

func (o *electionOptions) proved() string {
	said := "In every run of this group no epoch had two leaders, and at no node did an epoch fall"
	if o.Cuts > 0 {
		said += "; once all had noticed a partition, at most one side had a leader"
	}
	if o.Prompt {
		said += "; there were never two leaders at an instant"
	}
	said += "; and in the end all nodes that reached each other had the highest of them as the leader, in one epoch"
	if o.Majority {
		said += ", or none if they were no majority"
	}
	return said + "."
}

func (o *electionOptions) failing(kind error) string {
	if errors.Is(kind, electiontest.ErrTwoLeaders) && !o.Majority {
		return "Without the majority rule one node may begin to lead before another one stops: try --majority."
	}
	return ""
}
