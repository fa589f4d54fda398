package electiontest

import (
	"cmp"
	"fmt"
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
	wire  []election.Message // in flight, channel by channel
}

type node struct {
	election.Machine        // nil if it has crashed
	kept             uint64 // the epoch with which it comes back then
	met              uint64 // the highest number in any message that it has sent or handled
	aside            bool   // its side of the partition
	suspects         []bool // what its detector has told it of each node
}

func (t *Trial) begin() *world {
	w := &world{Trial: t, nodes: make([]node, t.Nodes)}
	starts := t.Starts
	for i := range w.nodes {
		w.nodes[i].suspects = make([]bool, t.Nodes)
		w.born(i)
		if t.Starts == nil {
			starts = append(starts, i)
		}
	}
	for _, i := range starts {
		w.send(i, w.nodes[i].Start())
	}
	for t.Starts == nil && !w.atRest() {
		must(w.Do(w.Steps(nil)[0]))
	}
	w.odds = t.Odds
	return w
}

func (w *world) born(i int) {
	m, err := w.Algorithm(election.Config{Self: id(i), Members: dmutextest.Nodes(w.Nodes), Epoch: w.nodes[i].kept,
		Majority: w.Majority, Answer: 1, Outcome: 2})
	must(err)
	w.nodes[i].Machine = m
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func id(i int) dmutex.NodeID { return dmutex.NodeID(i + 1) }

func ends(m election.Message) (from, to int) { return int(m.From) - 1, int(m.To) - 1 }

func (w *world) Clone(*world) *world {
	c := *w
	c.nodes, c.wire = slices.Clone(w.nodes), slices.Clone(w.wire)
	for i := range c.nodes {
		n := &c.nodes[i]
		if n.Machine != nil {
			n.Machine = n.Machine.Clone()
		}
		n.suspects = slices.Clone(n.suspects)
	}
	return &c
}

func (w *world) AppendState(b []byte) []byte {
	b = fmt.Append(b, w.odds)
	for _, n := range w.nodes {
		if n.Machine == nil {
			b = strconv.AppendUint(append(b, '-'), n.kept, 10)
		} else {
			b, _ = n.AppendText(b)
		}
		if w.Counted {
			b = strconv.AppendUint(append(b, " term "...), n.met/uint64(w.Nodes), 10)
		}
		b = strconv.AppendBool(append(b, '\n'), n.aside)
		for _, suspected := range n.suspects {
			b = strconv.AppendBool(b, suspected)
		}
	}
	for _, msg := range w.wire {
		b = append(append(b, '\n'), msg.String()...)
	}
	return b
}

// leader returns the leader of a node and the epoch; of a crashed node the epoch that it
// keeps.
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

func (w *world) send(i int, out []election.Message) {
	for _, msg := range out {
		w.nodes[i].met = max(w.nodes[i].met, msg.Ballot, msg.Epoch)
		if _, j := ends(msg); w.reach(i, j) {
			w.wire = append(w.wire, msg)
		}
	}
	slices.SortStableFunc(w.wire, func(a, b election.Message) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
}

// follows checks what must hold after each step: at each node, and between the nodes.
func (w *world) follows(before *world) error {
	for i := range w.nodes {
		was, last := before.leader(i)
		leader, epoch := w.leader(i)
		switch {
		case w.nodes[i].Machine == nil:
		case epoch < last && !w.Falls:
			return search.Wrong(ErrEpoch, "at %d the epoch falls from %d to %d", i+1, last, epoch)
		case w.Most > 0 && epoch > w.Most:
			return search.Wrong(ErrEpoch, "epoch %d: they outbid each other", epoch)
		case w.Counted && was != leader && leader == id(i) && !w.let(epoch):
			return search.Wrong(ErrNotLet, "%d leads, and no majority has let it run", i+1)
		}
	}
	for j := range w.nodes {
		for i := range j {
			one, e := w.leader(i)
			two, f := w.leader(j)
			switch {
			case one != id(i) || two != id(j):
			case e == f:
				return search.Wrong(ErrTwoLeaders, "%d and %d lead in epoch %d", i+1, j+1, e)
			case w.OneLeader, w.OneSide && w.nodes[i].aside != w.nodes[j].aside && len(w.news()) == 0:
				return search.Wrong(ErrTwoLeaders, "two leaders: %d in epoch %d and %d in epoch %d", i+1, e, j+1, f)
			}
		}
	}
	return nil
}

// let reports whether a majority has met an election of the term of an epoch.
func (w *world) let(epoch uint64) bool {
	met, n := 0, uint64(w.Nodes)
	for _, node := range w.nodes {
		if node.met/n >= epoch/n {
			met++
		}
	}
	return 2*met > w.Nodes
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

func (w *world) atRest() bool { return w.quiet() && len(w.timed()) == 0 }

// quiet reports whether no message is in flight and no detector has news.
func (w *world) quiet() bool { return len(w.wire) == 0 && len(w.news()) == 0 }

// timed returns the nodes with a running timeout.
func (w *world) timed() (list []int) {
	for i, n := range w.nodes {
		if n.Machine != nil && n.TicksLeft() > 0 {
			list = append(list, i)
		}
	}
	return list
}

// news returns the nodes i and j where the failure detector of i is out of date about j: i suspects
// j although it can reach it, or does not although it cannot.
func (w *world) news() (pairs [][2]int) {
	for i, n := range w.nodes {
		for j := range w.nodes {
			if i != j && n.Machine != nil && n.suspects[j] == w.reach(i, j) {
				pairs = append(pairs, [2]int{i, j})
			}
		}
	}
	return pairs
}

// tell lets the detector of i change its mind about j.
func (w *world) tell(i, j int) {
	n := &w.nodes[i]
	n.suspects[j] = !n.suspects[j]
	tell := n.Unsuspect
	if n.suspects[j] {
		tell = n.Suspect
	}
	out, err := tell(id(j))
	must(err)
	w.send(i, out)
}

// loose drops messages in flight to crashed nodes and across the partition. Prompt
// detectors tell of both at once. Messages of a crashed node still arrive.
func (w *world) loose() {
	w.wire = slices.DeleteFunc(w.wire, func(msg election.Message) bool {
		i, j := ends(msg)
		return w.nodes[j].Machine == nil || w.nodes[i].aside != w.nodes[j].aside
	})
	if w.Prompt {
		for _, pair := range w.news() {
			w.tell(pair[0], pair[1])
		}
	}
}

// lingers reports whether a message of a node, or of an election that it has begun, is in flight.
func (w *world) lingers(i int) bool {
	return slices.ContainsFunc(w.wire, func(msg election.Message) bool {
		return msg.From == id(i) || msg.Ballot > 0 && int(msg.Ballot)%w.Nodes == i
	})
}
