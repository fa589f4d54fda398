package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dmutex/dmutex/dmutextest"
)

// A subject is a group of machines that are no locks, and all that may happen
// to it.
type subject struct {
	explored                            // what it is
	name, group string                  // the same, for people
	proved      string                  // by a clean exploration
	some        string                  // what some of the states are, such as "%s of them at rest"
	failing     func(kind error) string // what a group that failed misses
	explore     func(progress func(states int) bool) (extent, error)
}

// An extent is how far an exploration came.
type extent struct {
	states, rests, deadlocks int
	complete                 bool
}

// explored is what came of a subject, as JSON.
type explored struct {
	Election  string     `json:"election,omitempty"`
	Deadlock  string     `json:"deadlock,omitempty"`
	Nodes     int        `json:"nodes"`
	Options   any        `json:"options"`
	Verdict   string     `json:"verdict"`
	States    int        `json:"states"`
	Rests     int        `json:"states_at_rest,omitempty"`    // of elections
	Deadlocks int        `json:"states_deadlocked,omitempty"` // in which a deadlock is declared; of chases, in which there is a circle
	Seconds   float64    `json:"seconds"`
	Violation *violation `json:"violation,omitempty"`
}

// runSubject explores a subject until ctx ends, and reports.
func (c *checkCmd) runSubject(ctx context.Context, con *console, s subject) error {
	p, began := newProgress(con.err, 1), time.Now()
	x, err := s.explore(func(states int) bool {
		p.live(fmt.Sprintf("%-14s %s states in %.0f s", s.name, thousands(states), time.Since(began).Seconds()))
		return ctx.Err() == nil
	})
	p.clear()
	s.States, s.Seconds = x.states, time.Since(began).Seconds()
	s.Rests, s.Deadlocks = x.rests, x.deadlocks
	var v *dmutextest.Violation
	switch {
	case errors.As(err, &v):
		s.Verdict, s.Violation = wrong, &violation{v.Kind.Error(), v.Why, v.Script}
	case err != nil:
		return err
	case x.complete:
		s.Verdict = clean
	default:
		s.Verdict = stopped
	}
	if c.JSON {
		err = printJSON(con.out, struct {
			OK     bool       `json:"ok"`
			Checks []explored `json:"checks"`
		}{s.Verdict == clean, []explored{s.explored}})
	} else {
		_, err = fmt.Fprint(con.out, s.text(v))
	}
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil && s.Verdict == stopped:
		return fmt.Errorf("interrupted: %s stopped after %s states", s.name, thousands(s.States))
	case s.Verdict == wrong:
		return errFailed
	case s.Verdict == stopped:
		return fmt.Errorf("%s: stopped after %s states with nothing wrong; --max-states=0 goes to the end", s.name, thousands(s.States))
	}
	return nil
}

// text is the verdict on a line, and below it what it means.
func (s *subject) text(v *dmutextest.Violation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-14s %s: %s. %s", s.name, s.group, s.Verdict, several(s.States, "state"))
	said := s.proved
	switch s.Verdict {
	case wrong:
		said = strings.TrimSpace(s.name + " failed. " + s.failing(v.Kind))
		fmt.Fprintf(&b, ", in %.1f s\n\n%s", s.Seconds, v.Script)
	case clean:
		fmt.Fprintf(&b, ", "+s.some+", in %.1f s\n", thousands(s.Rests+s.Deadlocks), s.Seconds)
	default:
		fmt.Fprintf(&b, ", in %.1f s\n", s.Seconds)
		return b.String()
	}
	fmt.Fprintf(&b, "\n%s\n", wrap(said, 96))
	return b.String()
}
