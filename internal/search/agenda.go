package search

import "slices"

// An Agenda has what is to happen in a simulation, in order of time. What is planned for the
// same time happens in the order in which it was planned.
type Agenda[T any] struct{ plans []*plan[T] }

type plan[T any] struct {
	at   int64
	what T
}

// Len returns how many things are to happen.
func (a *Agenda[T]) Len() int { return len(a.plans) }

// Plan adds something.
func (a *Agenda[T]) Plan(at int64, what T) {
	i, _ := slices.BinarySearchFunc(a.plans, at, func(p *plan[T], at int64) int {
		if p.at <= at {
			return -1
		}
		return 1
	})
	a.plans = slices.Insert(a.plans, i, &plan[T]{at, what})
}

// Next returns when the next thing happens. There must be one.
func (a *Agenda[T]) Next() int64 { return a.plans[0].at }

// Take removes and returns the next thing.
func (a *Agenda[T]) Take() (at int64, what T) {
	next := a.plans[0]
	a.plans = a.plans[1:]
	return next.at, next.what
}
