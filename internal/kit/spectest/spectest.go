// Package spectest compares machines with a published specification, action by action.
package spectest

import "fmt"

// A Spec is the module: its first states, the states that follow one, and the bound of the model.
type Spec[S comparable] struct {
	First  []S
	Next   func(b []S, s S) []S // appends
	Within func(s *S) bool
}

// A Count is what TLC prints: the states that were generated include those that were known, and those beyond the bound.
type Count struct{ Distinct, Generated, Depth int }

// Explore visits all states.
func (m Spec[S]) Explore() (c Count, states map[S]struct{}) {
	states = make(map[S]struct{})
	var list []S
	for level := m.First; len(level) > 0; c.Depth++ {
		var found []S
		for _, s := range level {
			if c.Depth == 0 {
				list = append(list[:0], s)
			} else {
				list = m.Next(list[:0], s)
			}
			c.Generated += len(list)
			for _, n := range list {
				if _, known := states[n]; !known && m.Within(&n) {
					states[n] = struct{}{}
					found = append(found, n)
				}
			}
		}
		level = found
	}
	c.Distinct, c.Depth = len(states), c.Depth-1
	return c, states
}

// A Group is our machines, with the messages in flight.
type Group[S comparable] interface {
	Text() string // the whole state
	Spec() S      // its projection to the variables of the module
}

// A Step is what can happen to a group, and the same action of the module on its projection.
type Step[S comparable, G Group[S]] struct {
	Action  string
	To      G
	Same    S
	Enabled bool
	Extra   bool // the module has no such action, and the projection stays
}

// Compare compares every step of the group, in every state that it reaches within the bound, with the module: both can do
// the same, it leads to the same projection, and so both reach the same states. It returns how many those are, and the
// first difference.
func Compare[S comparable, G Group[S]](first []G, steps func(G) []Step[S, G], m Spec[S]) (ours, theirs int, err error) {
	seen, projected := make(map[string]struct{}), make(map[S]struct{})
	visit := func(to G, s S) bool {
		text := to.Text()
		if _, known := seen[text]; known || !m.Within(&s) {
			return false
		}
		seen[text], projected[s] = struct{}{}, struct{}{}
		return true
	}
	for _, g := range first {
		visit(g, g.Spec())
	}
	var list []S
	for level := first; len(level) > 0; {
		var found []G
		for _, g := range level {
			s, actions := g.Spec(), 0
			for _, step := range steps(g) {
				is, same := step.To.Spec(), s
				if !step.Extra {
					same = step.Same
					actions++
				}
				switch {
				case !step.Extra && !step.Enabled:
					return 0, 0, fmt.Errorf("%s: the module cannot do it in %+v, which is\n%s", step.Action, s, g.Text())
				case is != same:
					return 0, 0, fmt.Errorf("%s: ours leads to %+v, the module's to %+v, in\n%s", step.Action, is, same, g.Text())
				}
				if visit(step.To, is) {
					found = append(found, step.To)
				}
			}
			if list = m.Next(list[:0], s); len(list) != actions {
				return 0, 0, fmt.Errorf("the module can do %d things, and ours %d, in\n%s", len(list), actions, g.Text())
			}
		}
		level = found
	}
	_, states := m.Explore()
	if len(states) != len(projected) {
		return 0, 0, fmt.Errorf("the module reaches %d states, and ours %d of them", len(states), len(projected))
	}
	return len(seen), len(projected), nil
}
