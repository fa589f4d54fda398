package electiontest

import (
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
	odds     Odds
	machines []Machine            // nil if crashed
	channels [][]election.Message // from*nodes + to
	told     []bool               // observer*nodes + target: the observer suspects it
	side     []bool               // of the partition
	kept     []uint64             // the epoch with which a crashed node comes back
	met      []uint64             // the highest number in any message that a node has sent or handled
}

func (t *Trial) begin() (*world, error) {
	n := t.Nodes
	w := &world{Trial: t, odds: t.Odds,
		machines: make([]Machine, n), channels: make([][]election.Message, n*n), told: make([]bool, n*n),
		side: make([]bool, n), kept: make([]uint64, n), met: make([]uint64, n)}
	for i := range n {
		w.born(i, 0)
	}
	starts := t.Starts
	if starts == nil {
		for i := range n {
			starts = append(starts, i)
		}
	}
	for _, i := range starts {
		if err := w.does(i, func() ([]election.Message, error) { return w.machines[i].Start(), nil }); err != nil {
			return nil, err
		}
	}
	w.odds = Odds{}
	for t.Starts == nil && !w.atRest() {
		if err := w.Do(w.Steps(nil)[0]); err != nil {
			return nil, err
		}
	}
	w.odds = t.Odds
	return w, nil
}

func (w *world) born(i int, epoch uint64) {
	m, err := w.Algorithm(election.Config{Self: dmutex.NodeID(i + 1), Members: dmutextest.Nodes(w.Nodes), Epoch: epoch,
		Majority: w.Majority, Answer: 1, Outcome: 2})
	if err != nil {
		panic(err)
	}
	w.machines[i] = m.(Machine)
}

// Clone returns a copy.
func (w *world) Clone(*world) *world {
	c := *w
	c.machines = slices.Clone(w.machines)
	for i, m := range c.machines {
		if m != nil {
			c.machines[i] = m.Clone().(Machine)
		}
	}
	c.channels = slices.Clone(w.channels)
	c.told, c.side = slices.Clone(w.told), slices.Clone(w.side)
	c.kept, c.met = slices.Clone(w.kept), slices.Clone(w.met)
	return &c
}

// AppendState appends the canonical state.
func (w *world) AppendState(b []byte) []byte {
	b = append(b, byte(w.odds.Crashes), byte(w.odds.Recoveries), byte(w.odds.Cuts), byte(w.odds.Wrong), byte(w.odds.Early), byte(w.odds.Restarts))
	for i, m := range w.machines {
		if m == nil {
			b = strconv.AppendUint(append(b, '-'), w.kept[i], 10)
		} else {
			b, _ = m.AppendText(b)
		}
		if w.Counted {
			b = strconv.AppendUint(append(b, " term "...), w.met[i]/uint64(w.Nodes), 10)
		}
		b = append(b, '\n')
	}
	for c, queue := range w.channels {
		for _, m := range queue {
			b = append(strconv.AppendInt(b, int64(c), 10), ' ')
			b = append(b, m.String()...)
		}
	}
	return fmt.Append(b, w.told, w.side)
}

// leader returns the leader of a node and the epoch; of a crashed node the epoch with which
// it comes back.
func (w *world) leader(i int) (dmutex.NodeID, uint64) {
	if m := w.machines[i]; m != nil {
		return m.Leader()
	}
	return dmutex.None, w.kept[i]
}

// reach reports whether two nodes are alive and not cut off from each other.
func (w *world) reach(i, j int) bool {
	return w.machines[i] != nil && w.machines[j] != nil && w.side[i] == w.side[j]
}

// does gives a node an input, sends what it returns, and checks what must
// always hold.
func (w *world) does(i int, input func() ([]election.Message, error)) error {
	before, was := w.leader(i)
	out, err := input()
	if err != nil {
		return search.Wrong(ErrRefused, "%v", err)
	}
	for _, msg := range out {
		w.met[i] = max(w.met[i], msg.Ballot, msg.Epoch)
		j := int(msg.To) - 1
		if w.reach(i, j) {
			c := i*w.Nodes + j
			w.channels[c] = append(slices.Clip(w.channels[c]), msg)
		}
	}
	leader, epoch := w.leader(i)
	w.met[i] = max(w.met[i], epoch)
	if epoch < was && !w.Falls {
		return search.Wrong(ErrEpoch, "at %d the epoch falls from %d to %d", i+1, was, epoch)
	}
	if w.Most > 0 && epoch > w.Most {
		return search.Wrong(ErrEpoch, "epoch %d: they outbid each other", epoch)
	}
	if w.Counted && before != leader && int(leader) == i+1 {
		let := 0 // the nodes that have met an election of this term
		for _, met := range w.met {
			if n := uint64(w.Nodes); met/n >= epoch/n {
				let++
			}
		}
		if 2*let <= w.Nodes {
			return search.Wrong(ErrNotLet, "%d leads, and no majority has let it run", i+1)
		}
	}
	return nil
}

// check checks what must hold between the nodes.
func (w *world) check() error {
	for j := range w.machines {
		for i := range j {
			one, e := w.leader(i)
			two, f := w.leader(j)
			switch {
			case int(one) != i+1 || int(two) != j+1:
			case e == f:
				return search.Wrong(ErrTwoLeaders, "%d and %d lead in epoch %d", i+1, j+1, e)
			case w.OneLeader, w.OneSide && w.side[i] != w.side[j] && !w.anyNews():
				return search.Wrong(ErrTwoLeaders, "two leaders: %d in epoch %d and %d in epoch %d", i+1, e, j+1, f)
			}
		}
	}
	return nil
}

// agree checks a world at rest: all nodes that reach each other have the highest of
// them as the leader, in one epoch, or no leader if they lack a majority.
func (w *world) agree() error {
	for i, m := range w.machines {
		if m == nil {
			continue
		}
		reached, highest := 0, 0
		for j := range w.machines {
			if w.reach(i, j) {
				reached, highest = reached+1, j
			}
		}
		want := dmutex.NodeID(highest + 1)
		_, epoch := w.leader(highest)
		leader, e := w.leader(i)
		if w.Majority && 2*reached <= w.Nodes {
			want, epoch = dmutex.None, e
		}
		if leader != want || e != epoch {
			return search.Wrong(ErrNoAgreement, "at rest %d has leader %d in epoch %d, not %d in epoch %d", i+1, leader, e, want, epoch)
		}
	}
	return nil
}

// tell updates the detector of i about j.
func (w *world) tell(i, j int) error {
	w.told[i*w.Nodes+j] = !w.reach(i, j)
	return w.does(i, func() ([]election.Message, error) {
		if w.reach(i, j) {
			return w.machines[i].Unsuspect(dmutex.NodeID(j + 1))
		}
		return w.machines[i].Suspect(dmutex.NodeID(j + 1))
	})
}

func (w *world) news(i, j int) bool {
	return i != j && w.machines[i] != nil && w.told[i*w.Nodes+j] == w.reach(i, j)
}

func (w *world) anyNews() bool {
	for i := range w.Nodes {
		for j := range w.Nodes {
			if w.news(i, j) {
				return true
			}
		}
	}
	return false
}

// loose drops messages in flight between nodes that do not reach each other, and
// informs every node if the detectors are prompt.
func (w *world) loose() error {
	for i := range w.Nodes {
		for j := range w.Nodes {
			// What a crashed node has sent still arrives.
			if i != j && (w.machines[j] == nil || w.side[i] != w.side[j]) {
				w.channels[i*w.Nodes+j] = nil
			}
		}
	}
	for i := range w.Nodes {
		for j := range w.Nodes {
			if w.Prompt && w.news(i, j) {
				if err := w.tell(i, j); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// lingers reports whether a message of a node is still in flight.
func (w *world) lingers(i int) bool {
	for c, queue := range w.channels {
		for _, m := range queue {
			if c/w.Nodes == i || m.Ballot > 0 && int(m.Ballot)%w.Nodes == i {
				return true
			}
		}
	}
	return false
}
