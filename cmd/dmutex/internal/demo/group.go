package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/child"
)

// A group is the processes of one run, from start to end.
type group struct {
	task    task // of every process, apart from its number and address
	timeout time.Duration
	heard   func(p *process, r report) bool // takes a report that is not awaited; false if it is out of turn
	sofar   func() string                   // the progress, for the error when nothing happens anymore

	processes []*process    // by number
	began     time.Time     // when they were told to begin
	news      chan news     // what they report
	over      chan struct{} // closed when no more news is read
	reading   sync.WaitGroup
}

// news is what a process reports. Its last news, with the word leave, is that it has ended.
type news struct {
	from   *process
	report report
	err    error // why it ended
}

func (g *group) begin(ctx context.Context) error {
	var all []*process
	for id := range dmutex.NodeID(g.task.Nodes) {
		all = append(all, g.newcomer(id+1))
	}
	err := g.join(ctx, all...)
	g.began = time.Now()
	return err
}

// finish waits until all are done, counts their messages and lets them leave.
func (g *group) finish(ctx context.Context, done func(p *process, r report)) (counted []counts, took time.Duration, err error) {
	if err := g.await(ctx, wordDone, done); err != nil {
		return nil, 0, err
	}
	took = time.Since(g.began)
	if counted, err = g.count(ctx); err != nil {
		return nil, 0, err
	}
	return counted, took, g.ask(ctx, order{Word: wordLeave}, wordLeave, nil)
}

func (g *group) newcomer(id dmutex.NodeID) *process {
	return &process{id: id, trade: g.task.Trade, at: "127.0.0.1:0"}
}

// meet starts some processes, for the first time or again, and waits until their nodes
// have met all others.
func (g *group) meet(ctx context.Context, some ...*process) error {
	for _, p := range some {
		if err := g.start(p); err != nil {
			return err
		}
	}
	if err := g.await(ctx, wordAddress, func(p *process, r report) { p.at = r.Address }, some...); err != nil {
		return err
	}
	peers := make(map[dmutex.NodeID]string)
	for _, p := range g.processes {
		peers[p.id] = p.at
	}
	return g.ask(ctx, order{Word: wordOpen, Peers: peers}, wordReady, nil, some...)
}

// join lets some processes meet the others and begin.
func (g *group) join(ctx context.Context, some ...*process) error {
	if err := g.meet(ctx, some...); err != nil {
		return err
	}
	g.tell(order{Word: wordBegin}, some...)
	return nil
}

// start starts a process, for the first time or again, and gives it its task.
func (g *group) start(p *process) (err error) {
	if p.child, err = child.Start("demo", p.trade); err != nil {
		return fmt.Errorf("start %s: %w", p.name(), err)
	}
	p.killed = false
	if !slices.Contains(g.processes, p) {
		g.processes = append(g.processes, p)
	}
	g.reading.Go(func() {
		for n := (news{from: p}); n.report.Word != wordLeave; {
			n.report = report{}
			switch err := p.child.Hear(&n.report); {
			case err == io.EOF:
				n.report = report{Word: wordLeave}
			case err != nil:
				n.report, n.err = report{Word: wordLeave}, fmt.Errorf("%s: %w", p.name(), err)
			}
			select {
			case g.news <- n:
			case <-g.over:
			}
		}
	})
	t := g.task
	t.Self, t.Listen = p.id, p.at
	g.tell(order{Word: wordTask, Task: &t}, p)
	return nil
}

// end kills the processes that have not ended yet, and waits until they have.
func (g *group) end() {
	close(g.over)
	for _, p := range g.processes {
		_ = p.child.Signal(os.Kill) // it may have ended
	}
	g.reading.Wait()
}

// tell sends an order to some processes, or to all if none is given. If a process has ended the
// order is lost, and its last news says why.
func (g *group) tell(o order, some ...*process) {
	if some == nil {
		some = g.processes
	}
	for _, p := range some {
		_ = p.child.Tell(o)
	}
}

// ask sends an order, and awaits the answers with the given word.
func (g *group) ask(ctx context.Context, o order, word string, hear func(p *process, r report), some ...*process) error {
	g.tell(o, some...)
	return g.await(ctx, word, hear, some...)
}

func (g *group) kill(ctx context.Context, some ...*process) error {
	for _, p := range some {
		p.killed = true
		_ = p.child.Signal(os.Kill) // it may have ended
	}
	return g.await(ctx, wordLeave, nil, some...)
}

// await waits until each of some processes, or of all if none is given, has sent a report
// with the given word, and passes each to hear, unless that is nil. A process that ends
// must end with status 0, unless it was killed. await gives up when no news arrives for
// the timeout.
func (g *group) await(ctx context.Context, word string, hear func(p *process, r report), some ...*process) error {
	if some == nil {
		some = g.processes
	}
	missing := slices.Clone(some)
	for len(missing) > 0 {
		select {
		case n := <-g.news:
			if n.report.Word != word || !slices.Contains(some, n.from) {
				if err := g.aside(n); err != nil {
					return err
				}
				continue
			}
			if n.err != nil && !n.from.killed {
				return n.err
			}
			if hear != nil {
				hear(n.from, n.report)
			}
			missing = slices.DeleteFunc(missing, func(p *process) bool { return p == n.from })
		case <-time.After(g.timeout):
			var ids []dmutex.NodeID
			for _, p := range missing {
				ids = append(ids, p.id)
			}
			return fmt.Errorf("nothing has happened for %v: %ss %v have not said %q; %s", g.timeout, g.task.Trade, ids, word, g.sofar())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (g *group) watch(ctx context.Context, d time.Duration) error {
	for over := time.After(d); ; {
		select {
		case n := <-g.news:
			if err := g.aside(n); err != nil {
				return err
			}
		case <-over:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// aside handles news that nothing waits for.
func (g *group) aside(n news) error {
	switch {
	case n.report.Word == wordLeave:
		return cmp.Or(n.err, fmt.Errorf("%s left before the end", n.from.name()))
	case !g.heard(n.from, n.report):
		return fmt.Errorf("%s reports %q out of turn", n.from.name(), n.report.Word)
	}
	return nil
}

// count asks for the message counters until no message is in flight: until two
// rounds find the same counts, with as many received as sent. (Mattern,
// "Algorithms for Distributed Termination Detection", 1987: the four counters.)
func (g *group) count(ctx context.Context) ([]counts, error) {
	deadline := time.Now().Add(g.timeout)
	var last []counts
	for time.Now().Before(deadline) {
		now := make([]counts, len(g.processes))
		if err := g.ask(ctx, order{Word: wordCount}, wordCounts, func(p *process, r report) { now[p.id-1] = *r.Counts }); err != nil {
			return nil, err
		}
		if slices.Equal(last, now) && balanced(now) {
			return now, nil
		}
		last = now
	}
	return nil, errors.New("some message was sent and not received, or received and not sent")
}

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

// progressed notes how much a process has done, and returns the sum of all.
func progressed(made []int, p *process, now int) int {
	made[p.id-1] = now
	return sum(made)
}

func sum(all []int) (n int) {
	for _, m := range all {
		n += m
	}
	return n
}

// A process is a member of a group. Once it has ended it can be started again,
// with the same number and, over TCP, at the same address.
type process struct {
	id    dmutex.NodeID
	trade string
	at    string // where it listens, as soon as it has said so
	child *child.Process

	killed bool // by the demo, since it was started last
}

func (p *process) name() string { return fmt.Sprint(p.trade, " ", p.id) }

// A group and its processes talk in lines of JSON: orders to a process's
// standard input, reports from its standard output. A run goes
//
//	task      ->   what to do
//	          <-   address     where the link listens
//	open      ->   the addresses of all
//	          <-   ready       all have met
//	begin     ->
//	          <-   progress    again and again
//	          <-   done        with the records of all deposits
//	count     ->               again, until no message is in flight
//	          <-   counts
//	leave     ->               the process closes its node and exits
//
// Tellers that are to be killed have no last deposit: they work until they leave, and
// report their views. Tellers with a lease find the addresses in the record of the members.
// Before such a teller is killed it takes no more locks, except that it may hold that of
// the account.
//
//	          <-   view        again and again
//	rest      ->
//	          <-   resting
//
// Philosophers have more words for each meal, so that each has one fork before any wants
// the second. They report progress when they have eaten.
//
//	sit       ->               all have eaten; after the last meal the answer is done
//	          <-   seated      with the left fork
//	reach     ->               for the right one
//	          <-   cycle      a deadlock that ended a wait of this process
//
// Until it is told to leave, a process keeps answering the messages of the others. When
// its standard input ends it exits, so a demo that dies leaves no processes behind.
type order struct {
	Word  string                   `json:"word"`
	Task  *task                    `json:"task,omitempty"`
	Peers map[dmutex.NodeID]string `json:"peers,omitempty"`
	Hold  bool                     `json:"hold,omitempty"` // the lock of the account, while it rests
}

type report struct {
	Word     string   `json:"word"`
	Address  string   `json:"address,omitempty"`
	Made     int      `json:"made,omitempty"` // deposits or meals so far
	Records  []record `json:"records,omitempty"`
	Counts   *counts  `json:"counts,omitempty"`
	Cycle    cycle    `json:"cycle,omitempty"`
	Overlaps int      `json:"overlaps,omitempty"` // forks that were taken while in another hand
	View     *view    `json:"view,omitempty"`

	// Of a teller with a lease.
	Self  dmutex.NodeID   `json:"self,omitempty"`  // the number of its node
	Turns map[string]turn `json:"turns,omitempty"` // the locks granted to it since its last report
}

// The words of orders and of reports.
const (
	wordTask     = "task"
	wordAddress  = "address"
	wordOpen     = "open"
	wordReady    = "ready"
	wordBegin    = "begin"
	wordProgress = "progress"
	wordDone     = "done"
	wordCount    = "count"
	wordCounts   = "counts"
	wordLeave    = "leave"
	wordView     = "view"
	wordRest     = "rest"
	wordResting  = "resting"

	wordSit    = "sit"
	wordSeated = "seated"
	wordReach  = "reach"
	wordCycle  = "cycle"
)

// A task is what a process has to do.
type task struct {
	Trade     string        `json:"trade"` // what the process is: the name of its command
	Self      dmutex.NodeID `json:"self"`
	Nodes     int           `json:"nodes"` // numbered from 1
	Algorithm string        `json:"algorithm"`
	Link      string        `json:"link"`
	Listen    string        `json:"listen,omitempty"` // over TCP
	NatsURL   string        `json:"nats_url,omitempty"`
	Prefix    string        `json:"prefix"`          // of NATS subjects; each run has its own
	Dir       string        `json:"dir"`             // where the account is
	Trace     string        `json:"trace,omitempty"` // the directory for traces, if any are recorded
	Think     time.Duration `json:"think"`

	// Of a teller.
	Deposits int  `json:"deposits,omitempty"` // 0 for as many as it can until it is told to leave
	Views    bool `json:"views,omitempty"`    // report them

	// Lease, if not 0, is that of tellers who come and go. The record of the members is a
	// file in Dir. Their nodes ignore Self and Nodes. If Remote, the record proves
	// no process dead, like one on another machine.
	Lease  time.Duration `json:"lease,omitempty"`
	Remote bool          `json:"remote,omitempty"`

	// Of a philosopher.
	Meals  int           `json:"meals,omitempty"`
	Detect time.Duration `json:"detect,omitempty"` // how long to wait before looking for a cycle; 0 never looks
}

// A record is one deposit. Its times are nanoseconds of the wall clock, which
// the processes of one machine share.
type record struct {
	Fence   uint64 `json:"fence,omitempty"`
	Called  int64  `json:"called"`  // Acquire was called,
	Granted int64  `json:"granted"` // it returned,
	Left    int64  `json:"left"`    // and Release was called
}

// A turn is the last grant of a lock since the last report, and the longest wait for a
// grant since then.
type turn struct {
	Granted int64         `json:"granted"` // as in a record
	Wait    time.Duration `json:"wait"`
	Home    dmutex.NodeID `json:"home"`
}

// A view is a view that acts at a node, and how long nothing was granted there before.
type view struct {
	Epoch uint64        `json:"epoch"`
	Took  time.Duration `json:"took"`
}

// counts are the messages of the algorithm at one node, by kind, and the locks
// that the node holds or waits for.
type counts struct {
	Sent     [dmutex.Kinds]uint64 `json:"sent"`
	Received [dmutex.Kinds]uint64 `json:"received"`
	Busy     int                  `json:"busy"`
}
