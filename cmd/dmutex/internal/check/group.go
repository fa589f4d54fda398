package check

import (
	"fmt"
	"strings"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
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
