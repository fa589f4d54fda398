package search

import (
	"cmp"
	"container/heap"
)

// An Agenda has the plans of a simulation in order of time. Plans for the same time are
// taken in the order in which they were made. It is a heap, because a large simulation has
// tens of thousands of plans.
type Agenda[T any] struct {
	plans plans[T]
	count int // plans that were ever made
}

type plan[T any] struct {
	at    int64
	order int
	what  T
}

// Len returns the number of plans.
func (a *Agenda[T]) Len() int { return len(a.plans) }

// Plan adds a plan.
func (a *Agenda[T]) Plan(at int64, what T) {
	a.count++
	heap.Push(&a.plans, &plan[T]{at, a.count, what})
}

// Next returns the time of the next plan. There must be one.
func (a *Agenda[T]) Next() int64 { return a.plans[0].at }

// Take removes and returns the next plan.
func (a *Agenda[T]) Take() (at int64, what T) {
	p := heap.Pop(&a.plans).(*plan[T])
	return p.at, p.what
}

type plans[T any] []*plan[T]

func (p plans[T]) Len() int      { return len(p) }
func (p plans[T]) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *plans[T]) Push(x any)   { *p = append(*p, x.(*plan[T])) }

func (p plans[T]) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(p[i].at, p[j].at), cmp.Compare(p[i].order, p[j].order)) < 0
}

func (p *plans[T]) Pop() any {
	last := len(*p) - 1
	x := (*p)[last]
	*p = (*p)[:last]
	return x
}
