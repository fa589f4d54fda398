package electiontest

import (
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/election"
	"github.com/dmutex/dmutex/internal/search"
)

// A world is the state of a trial.
type world struct {
	*Trial
	odds  Odds
	nodes []node
}

// A node is the state of one node.
type node struct {
	Machine                       // nil if it has crashed
	kept     uint64               // the epoch with which it comes back then
	met      uint64               // the highest number in any message that it has sent or handled
	aside    bool                 // its side of the partition
	suspects []bool               // what its detector has told it of each node
	sent     [][]election.Message // in flight to each node
}

func (t *Trial) begin() (*world, error) {
	w := &world{Trial: t, nodes: make([]node, t.Nodes)}
	starts := t.Starts
	for i := range w.nodes {
		w.nodes[i] = node{suspects: make([]bool, t.Nodes), sent: make([][]election.Message, t.Nodes)}
		w.born(i)
		if t.Starts == nil {
			starts = append(starts, i)
		}
	}
	for _, i := range starts {
		if err := w.does(i, start); err != nil {
			return nil, err
		}
	}
	for t.Starts == nil && !w.atRest() {
		if err := w.Do(w.Steps(nil)[0]); err != nil {
			return nil, err
		}
	}
	w.odds = t.Odds
	return w, nil
}

func (w *world) born(i int) {
	m, err := w.Algorithm(election.Config{Self: id(i), Members: dmutextest.Nodes(w.Nodes), Epoch: w.nodes[i].kept,
		Majority: w.Majority, Answer: 1, Outcome: 2})
	if err != nil {
		panic(err)
	}
	w.nodes[i].Machine = m.(Machine)
}

func id(i int) dmutex.NodeID { return dmutex.NodeID(i + 1) }

// Clone returns a copy.
func (w *world) Clone(*world) *world {
	c := *w
	c.nodes = slices.Clone(w.nodes)
	for i := range c.nodes {
		n := &c.nodes[i]
		if n.Machine != nil {
			n.Machine = n.Machine.Clone().(Machine)
		}
		n.suspects, n.sent = slices.Clone(n.suspects), slices.Clone(n.sent)
	}
	return &c
}

// AppendState appends the canonical state.
func (w *world) AppendState(b []byte) []byte {
	b = fmt.Append(b, w.odds)
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.Machine == nil {
			b = strconv.AppendUint(append(b, '-'), n.kept, 10)
		} else {
			b, _ = n.AppendText(b)
		}
		if w.Counted {
			b = strconv.AppendUint(append(b, " term "...), n.met/uint64(w.Nodes), 10)
		}
		b = strconv.AppendBool(append(b, '\n'), n.aside)
		for j, queue := range n.sent {
			b = strconv.AppendBool(b, n.suspects[j])
			for _, msg := range queue {
				b = append(b, msg.String()...)
			}
		}
	}
	return b
}

// leader returns the leader of a node and the epoch; of a crashed node the epoch with which
// it comes back.
func (w *world) leader(i int) (dmutex.NodeID, uint64) {
	if n := &w.nodes[i]; n.Machine == nil {
		return dmutex.None, n.kept
	}
	return w.nodes[i].Leader()
}

// reach reports whether two nodes are alive and not cut off from each other.
func (w *world) reach(i, j int) bool {
	return w.nodes[i].Machine != nil && w.nodes[j].Machine != nil && w.nodes[i].aside == w.nodes[j].aside
}

func start(m Machine) ([]election.Message, error) { return m.Start(), nil }

// does gives a node an input, sends what it returns, and checks what must
// always hold.
func (w *world) does(i int, input func(Machine) ([]election.Message, error)) error {
	n := &w.nodes[i]
	before, was := w.leader(i)
	out, err := input(n.Machine)
	if err != nil {
		return search.Wrong(ErrRefused, "%v", err)
	}
	for _, msg := range out {
		n.met = max(n.met, msg.Ballot, msg.Epoch)
		if j := int(msg.To) - 1; w.reach(i, j) {
			n.sent[j] = append(slices.Clip(n.sent[j]), msg)
		}
	}
	leader, epoch := w.leader(i)
	n.met = max(n.met, epoch)
	switch {
	case epoch < was && !w.Falls:
		return search.Wrong(ErrEpoch, "at %d the epoch falls from %d to %d", i+1, was, epoch)
	case w.Most > 0 && epoch > w.Most:
		return search.Wrong(ErrEpoch, "epoch %d: they outbid each other", epoch)
	case w.Counted && before != leader && leader == id(i) && !w.let(epoch):
		return search.Wrong(ErrNotLet, "%d leads, and no majority has let it run", i+1)
	}
	return nil
}

// let reports whether a majority has met an election of the term of an epoch.
func (w *world) let(epoch uint64) bool {
	met, n := 0, uint64(w.Nodes)
	for i := range w.nodes {
		if w.nodes[i].met/n >= epoch/n {
			met++
		}
	}
	return 2*met > w.Nodes
}

// check checks what must hold between the nodes.
func (w *world) check() error {
	for j := range w.nodes {
		for i := range j {
			one, e := w.leader(i)
			two, f := w.leader(j)
			switch {
			case one != id(i) || two != id(j):
			case e == f:
				return search.Wrong(ErrTwoLeaders, "%d and %d lead in epoch %d", i+1, j+1, e)
			case w.OneLeader, w.OneSide && w.nodes[i].aside != w.nodes[j].aside && !w.anyNews():
				return search.Wrong(ErrTwoLeaders, "two leaders: %d in epoch %d and %d in epoch %d", i+1, e, j+1, f)
			}
		}
	}
	return nil
}

func (w *world) atRest() bool {
	return !w.anyNews() && !slices.ContainsFunc(w.nodes, func(n node) bool {
		return n.Machine != nil && n.TicksLeft() > 0 || slices.ContainsFunc(n.sent, func(queue []election.Message) bool { return len(queue) > 0 })
	})
}

// agree checks that at rest all nodes that reach each other have the highest of
// them as the leader, in one epoch, or no leader if they lack a majority.
func (w *world) agree() error {
	if !w.atRest() {
		return nil
	}
	for i := range w.nodes {
		reached, highest := 0, 0
		for j := range w.nodes {
			if w.reach(i, j) {
				reached, highest = reached+1, j
			}
		}
		_, epoch := w.leader(highest)
		leader, e := w.leader(i)
		want := id(highest)
		if w.Majority && 2*reached <= w.Nodes {
			want, epoch = dmutex.None, e
		}
		if reached > 0 && (leader != want || e != epoch) {
			return search.Wrong(ErrNoAgreement, "at rest %d has leader %d in epoch %d, not %d in epoch %d", i+1, leader, e, want, epoch)
		}
	}
	return nil
}

// news yields the nodes i and j where the failure detector of i is out of date about j: i suspects
// j although it can reach it, or does not although it cannot.
func (w *world) news() iter.Seq2[int, int] {
	return func(yield func(i, j int) bool) {
		for i := range w.nodes {
			for j := range w.nodes {
				if i != j && w.nodes[i].Machine != nil && w.nodes[i].suspects[j] == w.reach(i, j) && !yield(i, j) {
					return
				}
			}
		}
	}
}

func (w *world) anyNews() bool {
	for range w.news() {
		return true
	}
	return false
}

// tell lets the detector of i be right about j, or wrong about a node that is there.
func (w *world) tell(i, j int) error {
	suspects := !w.nodes[i].suspects[j]
	w.nodes[i].suspects[j] = suspects
	return w.does(i, func(m Machine) ([]election.Message, error) {
		if suspects {
			return m.Suspect(id(j))
		}
		return m.Unsuspect(id(j))
	})
}

// loose drops messages in flight to nodes that are not reached, and lets the detectors
// tell of them if they are prompt. What a crashed node has sent still arrives.
func (w *world) loose() error {
	for i := range w.nodes {
		for j := range w.nodes {
			if i != j && (w.nodes[j].Machine == nil || w.nodes[i].aside != w.nodes[j].aside) {
				w.nodes[i].sent[j] = nil
			}
		}
	}
	if w.Prompt {
		for i, j := range w.news() {
			if err := w.tell(i, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// lingers reports whether a message of a node, or of an election that it has begun, is in flight.
func (w *world) lingers(i int) bool {
	for k := range w.nodes {
		for _, queue := range w.nodes[k].sent {
			for _, msg := range queue {
				if k == i || msg.Ballot > 0 && int(msg.Ballot)%w.Nodes == i {
					return true
				}
			}
		}
	}
	return false
}
