package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A dinner is one run of philosophers.
type dinner struct {
	crew
	watched  time.Duration   // how long, if no circle is looked for
	progress func(meals int) // of all so far

	evening
}

// An evening is what a dinner came to.
type evening struct {
	Meals    []int         `json:"meals"`    // by philosopher
	Victims  int           `json:"victims"`  // how often one put its fork back
	Overlaps int           `json:"overlaps"` // forks that were taken while in another hand
	Busy     int           `json:"busy"`     // forks held or waited for in the end
	Circles  []circle      `json:"circles"`  // as they were found
	Took     time.Duration `json:"took_ns"`
}

// run does the whole dinner. When it returns no process of it is left.
func (d *dinner) run(ctx context.Context) error {
	d.Meals, d.Circles = make([]int, d.task.Nodes), []circle{}
	d.passing = d.hear
	d.sofar = func() string { return fmt.Sprint("meals eaten by each: ", d.Meals) }
	defer d.dismiss()
	if err := d.open(ctx); err != nil {
		return err
	}
	began := time.Now()
	d.tell(order{Word: wordBegin})
	for range d.task.Meals {
		d.tell(order{Word: wordSit})
		if err := d.await(ctx, wordSeated, func(int, report) {}); err != nil {
			return err
		}
		d.tell(order{Word: wordReach})
		if d.task.Detect == 0 {
			return d.watch(ctx, d.watched, d.advance)
		}
		if err := d.await(ctx, wordProgress, d.advance); err != nil {
			return err
		}
	}
	return d.finish(ctx, began)
}

// finish waits until everybody has eaten and left.
func (d *dinner) finish(ctx context.Context, began time.Time) error {
	d.tell(order{Word: wordRise})
	err := d.await(ctx, wordDone, func(_ int, r report) {
		d.Victims += r.Supper.Victim
		d.Overlaps += r.Supper.Overlaps
	})
	if err != nil {
		return err
	}
	d.Took = time.Since(began)
	counted, err := d.count(ctx)
	if err != nil {
		return err
	}
	for _, c := range counted {
		d.Busy += c.Busy
	}
	d.tell(order{Word: wordLeave})
	return d.awaitEnd(ctx)
}

// hear takes what victims say.
func (d *dinner) hear(_ int, r report) bool {
	if r.Word != wordCircle {
		return false
	}
	d.Circles = append(d.Circles, r.Circle)
	return true
}

func (d *dinner) advance(i int, r report) {
	d.Meals[i] = r.Made
	d.progress(d.eaten())
}

// eaten returns the meals of all.
func (e *evening) eaten() (sum int) {
	for _, n := range e.Meals {
		sum += n
	}
	return sum
}

// faults says what was wrong at a table where circles were looked for and each
// was to eat so many meals.
func (e *evening) faults(meals int) (f []string) {
	if i := slices.IndexFunc(e.Meals, func(n int) bool { return n != meals }); i >= 0 {
		f = append(f, fmt.Sprintf("philosopher %d ate %d times instead of %d", i+1, e.Meals[i], meals))
	}
	if len(e.Circles) != meals || e.Victims != meals {
		f = append(f, fmt.Sprintf("%d circles were found and had %d victims, where there was one at each of %d meals", len(e.Circles), e.Victims, meals))
	}
	for i, c := range e.Circles {
		if !c.around(len(e.Meals)) {
			f = append(f, fmt.Sprintf("circle %d does not go around the table: %v", i+1, c))
		}
	}
	if e.Overlaps > 0 {
		f = append(f, fmt.Sprintf("%d forks were in two hands", e.Overlaps))
	}
	if e.Busy > 0 {
		f = append(f, fmt.Sprintf("%d forks were not given back", e.Busy))
	}
	return f
}
