package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dmutex/dmutex"
)

// A crew is the processes of one run, from the first day to the last.
type crew struct {
	task    task // of everybody, but for Self
	timeout time.Duration
	passing func(i int, r report) bool // hears what is said on the way; false if it is out of place
	sofar   func() string              // what has come of it, for when nothing happens any more

	workers []*process
	news    chan news     // what they report
	over    chan struct{} // closed when nobody reads news any more
	reading sync.WaitGroup
}

// news is a report, or the end of a process.
type news struct {
	from   *process
	report report
	gone   bool
	err    error
}

// open hires everybody and waits until they have all met.
func (c *crew) open(ctx context.Context) error {
	c.news, c.over = make(chan news), make(chan struct{})
	for i := range c.task.Nodes {
		t := c.task
		t.Self = dmutex.NodeID(i + 1)
		p, err := startWorker(t.Trade, t.Self)
		if err != nil {
			return err
		}
		c.workers = append(c.workers, p)
		c.reading.Go(func() { c.listen(p) })
		p.order(order{Word: wordHire, Task: &t})
	}
	peers := make(map[dmutex.NodeID]string)
	err := c.await(ctx, wordAddress, func(i int, r report) { peers[c.workers[i].id] = r.Address })
	if err != nil {
		return err
	}
	c.tell(order{Word: wordOpen, Peers: peers})
	return c.await(ctx, wordReady, func(int, report) {})
}

// dismiss ends every process that has not ended yet, and waits for that.
func (c *crew) dismiss() {
	close(c.over)
	for _, p := range c.workers {
		p.kill()
	}
	c.reading.Wait()
}

func (c *crew) tell(o order) {
	for _, p := range c.workers {
		p.order(o)
	}
}

// listen makes the reports of one of them news.
func (c *crew) listen(p *process) {
	pass := func(n news) {
		select {
		case c.news <- n:
		case <-c.over:
		}
	}
	err := p.listen(func(r report) { pass(news{from: p, report: r}) })
	pass(news{from: p, gone: true, err: err})
}

// await waits until everybody has reported with the word given.
func (c *crew) await(ctx context.Context, word string, hear func(i int, r report)) error {
	return c.gather(ctx, word, func(n news) (wanted bool, err error) {
		i := slices.Index(c.workers, n.from)
		switch {
		case n.gone && n.err == nil:
			return false, fmt.Errorf("%s left in the middle of the day", n.from.name)
		case n.gone:
			return false, n.err
		case n.report.Word == word:
			hear(i, n.report)
			return true, nil
		case !c.passing(i, n.report):
			return false, fmt.Errorf("%s reports %q, not %q", n.from.name, n.report.Word, word)
		}
		return false, nil
	})
}

// awaitEnd waits until every process has ended well.
func (c *crew) awaitEnd(ctx context.Context) error {
	return c.gather(ctx, wordLeave, func(n news) (wanted bool, err error) {
		if !n.gone {
			return false, fmt.Errorf("%s reports %q when it should leave", n.from.name, n.report.Word)
		}
		return true, n.err
	})
}

// watch hears what is reported for a while.
func (c *crew) watch(ctx context.Context, d time.Duration, hear func(i int, r report)) error {
	over := time.NewTimer(d)
	defer over.Stop()
	for {
		select {
		case n := <-c.news:
			if n.gone {
				return cmp.Or(n.err, fmt.Errorf("%s left in the middle of the day", n.from.name))
			}
			hear(slices.Index(c.workers, n.from), n.report)
		case <-over.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// gather hears news until everybody has given what is wanted. It gives up when
// no news at all come for the timeout.
func (c *crew) gather(ctx context.Context, what string, hear func(news) (wanted bool, err error)) error {
	missing := slices.Clone(c.workers)
	stalled := time.NewTimer(c.timeout)
	defer stalled.Stop()
	for len(missing) > 0 {
		select {
		case n := <-c.news:
			stalled.Reset(c.timeout)
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
			return fmt.Errorf("nothing has happened for %v: %ss %v have not said %q; %s", c.timeout, c.task.Trade, ids, what, c.sofar())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// errUnderWay: some message was sent and not received, or the other way round.
var errUnderWay = errors.New("they do not agree how many messages they have exchanged")

// count asks for the message counters until no message is under way: until two
// rounds find the same counts, as many received as sent. (Mattern, "Algorithms
// for Distributed Termination Detection", 1987: the four counters.)
func (c *crew) count(ctx context.Context) ([]counts, error) {
	deadline := time.Now().Add(c.timeout)
	var last []counts
	for time.Now().Before(deadline) {
		now := make([]counts, len(c.workers))
		c.tell(order{Word: wordCount})
		if err := c.await(ctx, wordCounts, func(i int, r report) { now[i] = *r.Counts }); err != nil {
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
