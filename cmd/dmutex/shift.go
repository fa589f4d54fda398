package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dmutex/dmutex"
)

// A shift is one run: tellers that work under one algorithm, from the first
// day to the last.
type shift struct {
	task     task // of every teller, but for Self
	timeout  time.Duration
	progress func(made int) // deposits of all tellers so far

	tellers []*process
	news    chan news     // what tellers report
	over    chan struct{} // closed when nobody reads news any more
	reading sync.WaitGroup
	made    []int // deposits, by teller
}

// news is a report, or the end of a teller's process.
type news struct {
	from   *process
	report report
	gone   bool
	err    error
}

// work is a shift's outcome, by teller.
type work struct {
	records [][]record
	counts  []counts
	took    time.Duration // from the first deposit to the last
}

// run does the whole shift. When it returns no process of it is left.
func (s *shift) run(ctx context.Context) (w work, err error) {
	s.news, s.over = make(chan news), make(chan struct{})
	s.made = make([]int, s.task.Nodes)
	defer s.dismiss()
	if err := s.open(ctx); err != nil {
		return w, err
	}
	w.records = make([][]record, s.task.Nodes)
	began := time.Now()
	s.tell(order{Word: wordBegin})
	if err := s.await(ctx, wordDone, func(i int, r report) { w.records[i] = r.Records }); err != nil {
		return w, err
	}
	w.took = time.Since(began)
	if w.counts, err = s.count(ctx); err != nil {
		return w, err
	}
	s.tell(order{Word: wordLeave})
	return w, s.awaitEnd(ctx)
}

// open hires the tellers and waits until they have all met.
func (s *shift) open(ctx context.Context) error {
	for i := range s.task.Nodes {
		t := s.task
		t.Self = dmutex.NodeID(i + 1)
		p, err := startTeller(t.Self)
		if err != nil {
			return err
		}
		s.tellers = append(s.tellers, p)
		s.reading.Go(func() { s.listen(p) })
		p.order(order{Word: wordHire, Task: &t})
	}
	peers := make(map[dmutex.NodeID]string)
	err := s.await(ctx, wordAddress, func(i int, r report) { peers[s.tellers[i].id] = r.Address })
	if err != nil {
		return err
	}
	s.tell(order{Word: wordOpen, Peers: peers})
	return s.await(ctx, wordReady, func(int, report) {})
}

// dismiss ends every process that has not ended yet, and waits for that.
func (s *shift) dismiss() {
	close(s.over)
	for _, p := range s.tellers {
		p.kill()
	}
	s.reading.Wait()
}

func (s *shift) tell(o order) {
	for _, p := range s.tellers {
		p.order(o)
	}
}

// listen makes one teller's reports news.
func (s *shift) listen(p *process) {
	pass := func(n news) {
		select {
		case s.news <- n:
		case <-s.over:
		}
	}
	err := p.listen(func(r report) { pass(news{from: p, report: r}) })
	pass(news{from: p, gone: true, err: err})
}

// await waits until every teller has reported with the word given.
func (s *shift) await(ctx context.Context, word string, hear func(i int, r report)) error {
	return s.gather(ctx, word, func(n news) (wanted bool, err error) {
		i := slices.Index(s.tellers, n.from)
		switch {
		case n.gone && n.err == nil:
			return false, fmt.Errorf("teller %d left in the middle of the day", n.from.id)
		case n.gone:
			return false, n.err
		case n.report.Word == wordProgress:
			s.advance(i, n.report.Made)
			return false, nil
		case n.report.Word == wordDone:
			s.advance(i, len(n.report.Records))
		}
		if n.report.Word != word {
			return false, fmt.Errorf("teller %d reports %q, not %q", n.from.id, n.report.Word, word)
		}
		hear(i, n.report)
		return true, nil
	})
}

// awaitEnd waits until every teller has ended well.
func (s *shift) awaitEnd(ctx context.Context) error {
	return s.gather(ctx, wordLeave, func(n news) (wanted bool, err error) {
		if !n.gone {
			return false, fmt.Errorf("teller %d reports %q when it should leave", n.from.id, n.report.Word)
		}
		return true, n.err
	})
}

// gather hears news until each teller has given what is wanted. It gives up
// when no news at all come for the shift's timeout.
func (s *shift) gather(ctx context.Context, what string, hear func(news) (wanted bool, err error)) error {
	missing := slices.Clone(s.tellers)
	stalled := time.NewTimer(s.timeout)
	defer stalled.Stop()
	for len(missing) > 0 {
		select {
		case n := <-s.news:
			stalled.Reset(s.timeout)
			wanted, err := hear(n)
			if err != nil {
				return err
			}
			if wanted {
				missing = slices.DeleteFunc(missing, func(p *process) bool { return p == n.from })
			}
		case <-stalled.C:
			var ids []dmutex.NodeID
			for _, p := range missing {
				ids = append(ids, p.id)
			}
			return fmt.Errorf("nothing has happened for %v: tellers %v have not said %q; deposits made by each: %v", s.timeout, ids, what, s.made)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (s *shift) advance(i, made int) {
	s.made[i] = made
	sum := 0
	for _, m := range s.made {
		sum += m
	}
	s.progress(sum)
}

// errUnderWay: some message was sent and not received, or the other way round.
var errUnderWay = errors.New("the tellers do not agree how many messages they have exchanged")

// count asks for the message counters until no message is under way: until two
// rounds find the same counts, as many received as sent. (Mattern, "Algorithms
// for Distributed Termination Detection", 1987: the four counters.)
func (s *shift) count(ctx context.Context) ([]counts, error) {
	deadline := time.Now().Add(s.timeout)
	var last []counts
	for time.Now().Before(deadline) {
		now := make([]counts, len(s.tellers))
		s.tell(order{Word: wordCount})
		if err := s.await(ctx, wordCounts, func(i int, r report) { now[i] = *r.Counts }); err != nil {
			return nil, err
		}
		if slices.Equal(last, now) && balanced(now) {
			return now, nil
		}
		last = now
	}
	return nil, errUnderWay
}

// balanced reports whether as many messages of each kind were received as sent.
func balanced(all []counts) bool {
	var sum counts
	for _, c := range all {
		for k := range dmutex.Kinds {
			sum.Sent[k] += c.Sent[k]
			sum.Received[k] += c.Received[k]
		}
	}
	return sum.Sent == sum.Received
}
