package main

import (
	"context"
	"fmt"
	"time"
)

// A shift is one run of tellers, who work under one algorithm.
type shift struct {
	crew
	progress func(made int) // deposits of all tellers so far
	made     []int          // deposits, by teller
}

// work is a shift's outcome, by teller.
type work struct {
	records [][]record
	counts  []counts
	took    time.Duration // from the first deposit to the last
}

// run does the whole shift. When it returns no process of it is left.
func (s *shift) run(ctx context.Context) (w work, err error) {
	s.made = make([]int, s.task.Nodes)
	s.passing = s.hear
	s.sofar = func() string { return fmt.Sprint("deposits made by each: ", s.made) }
	defer s.dismiss()
	if err := s.open(ctx); err != nil {
		return w, err
	}
	w.records = make([][]record, s.task.Nodes)
	began := time.Now()
	s.tell(order{Word: wordBegin})
	err = s.await(ctx, wordDone, func(i int, r report) {
		w.records[i] = r.Records
		s.advance(i, len(r.Records))
	})
	if err != nil {
		return w, err
	}
	w.took = time.Since(began)
	if w.counts, err = s.count(ctx); err != nil {
		return w, err
	}
	s.tell(order{Word: wordLeave})
	return w, s.awaitEnd(ctx)
}

// hear takes reports of progress.
func (s *shift) hear(i int, r report) bool {
	if r.Word != wordProgress {
		return false
	}
	s.advance(i, r.Made)
	return true
}

func (s *shift) advance(i, made int) {
	s.made[i] = made
	sum := 0
	for _, m := range s.made {
		sum += m
	}
	s.progress(sum)
}
