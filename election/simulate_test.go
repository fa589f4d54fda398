package election

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/internal/search"
)

// A simulation is a large group in virtual time, which counts ticks. Messages
// take 1 to hop ticks; a detector tells within 3 hops. What is in flight to a
// node that crashes is lost.
type simulation struct {
	rng      *rand.Rand
	now      int
	events   search.Agenda[func()]
	birth    func(node int, epoch uint64) Machine
	machines []Machine // nil if crashed
	lives    []int     // of each node
	epochs   []uint64
	last     [][]int // when the last message of a channel arrives: it keeps the order
	told     [][]bool
	messages int
	leaders  map[uint64]dmutex.NodeID
}

const hop = 10

func (s *simulation) at(at int, do func()) { s.events.Plan(int64(at), do) }

// does sends what a machine returns, and looks at its leader.
func (s *simulation) does(t *testing.T, i int, out []Message, err error) {
	if err != nil {
		require.NoError(t, err)
	}
	for _, msg := range out {
		j, life := int(msg.To)-1, s.lives[int(msg.To)-1]
		s.messages++
		s.last[i][j] = max(s.last[i][j], s.now+1+s.rng.IntN(hop))
		s.at(s.last[i][j], func() {
			if s.machines[j] != nil && s.lives[j] == life {
				out, err := s.machines[j].Handle(msg)
				s.does(t, j, out, err)
			}
		})
	}
	leader, epoch := s.machines[i].Leader()
	if epoch < s.epochs[i] {
		require.Fail(t, "an epoch falls", "at %d from %d to %d", i+1, s.epochs[i], epoch)
	}
	s.epochs[i] = epoch
	if leader != dmutex.None {
		if was, ok := s.leaders[epoch]; ok && was != leader {
			require.Fail(t, "two leaders", "%d and %d in epoch %d", was, leader, epoch)
		}
		s.leaders[epoch] = leader
	}
}

// look lets the detectors of all nodes notice the state of one node, and the detector of
// that node the states of all.
func (s *simulation) look(t *testing.T, node int) {
	for i := range s.machines {
		for _, pair := range [][2]int{{i, node}, {node, i}} {
			s.at(s.now+1+s.rng.IntN(3*hop), func() { s.tell(t, pair[0], pair[1]) })
		}
	}
}

func (s *simulation) tell(t *testing.T, i, j int) {
	dead := s.machines[j] == nil
	if i == j || s.machines[i] == nil || s.told[i][j] == dead {
		return
	}
	s.told[i][j] = dead
	tell := s.machines[i].Unsuspect
	if dead {
		tell = s.machines[i].Suspect
	}
	out, err := tell(dmutex.NodeID(j + 1))
	s.does(t, i, out, err)
}

func (s *simulation) crash(t *testing.T, i int) {
	s.machines[i] = nil
	clear(s.told[i])
	s.look(t, i)
}

func (s *simulation) recover(t *testing.T, i int) {
	if s.rng.IntN(2) == 0 {
		s.epochs[i] = 0 // it has forgotten
	}
	s.lives[i]++
	s.machines[i] = s.birth(i, s.epochs[i])
	s.does(t, i, s.machines[i].Start(), nil)
	s.look(t, i)
}

// run runs until a time, or with 0 until nothing more happens.
func (s *simulation) run(t *testing.T, until int) {
	for {
		switch {
		case s.events.Len() > 0 && s.events.Next() == int64(s.now):
			_, do := s.events.Take()
			do()
		case s.now == until && until > 0, until == 0 && s.quiet():
			return
		default:
			s.now++
			for i, m := range s.machines {
				if m != nil && m.TicksLeft() > 0 {
					s.does(t, i, m.Tick(), nil)
				}
			}
		}
		require.Less(t, s.now, 10_000_000, "it does not come to rest")
	}
}

func (s *simulation) quiet() bool {
	return s.events.Len() == 0 && !slices.ContainsFunc(s.machines, func(m Machine) bool {
		return m != nil && m.TicksLeft() > 0
	})
}

// Groups of up to 100 nodes, with crashes and recoveries of up to half of them,
// alone and in the middle of elections. Once these stop, all living nodes have
// the highest of them as the leader, in one epoch. Before that, no epoch has two
// leaders, and no node's epoch falls.
func TestSimulate(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	seeds := 1
	if os.Getenv("DMUTEX_LONG") != "" {
		seeds = 20
	}
	for _, f := range families {
		for _, majority := range []bool{false, true} {
			for _, n := range []int{1, 2, 5, 20, 100} {
				t.Run(fmt.Sprint(f.name, " majority ", majority, " ", n), func(t *testing.T) {
					if n > 20 { // most of the time is theirs
						machinetest.Thorough(t)
					}
					for seed := range seeds {
						t.Log("seed", seed)
						simulate(t, f.algorithm, majority, n, uint64(seed))
					}
				})
			}
		}
	}
}

func simulate(t *testing.T, algorithm Algorithm, majority bool, n int, seed uint64) {
	s := &simulation{
		rng:      rand.New(rand.NewPCG(uint64(n), seed)),
		machines: make([]Machine, n), lives: make([]int, n), epochs: make([]uint64, n),
		leaders: map[uint64]dmutex.NodeID{},
	}
	s.birth = func(i int, epoch uint64) Machine {
		m, err := algorithm(Config{Self: dmutex.NodeID(i + 1), Members: dmutextest.Nodes(n), Epoch: epoch, Majority: majority,
			Answer: 3 * hop, Outcome: max(3*n, 7) * hop})
		require.NoError(t, err)
		return m
	}
	for i := range n {
		s.last, s.told = append(s.last, make([]int, n)), append(s.told, make([]bool, n))
		s.machines[i] = s.birth(i, 0)
	}
	for i := range n {
		if s.rng.IntN(4) == 0 || i == 0 {
			s.does(t, i, s.machines[i].Start(), nil)
		}
	}
	down := 0
	for k := range 12 {
		s.run(t, s.now+1+s.rng.IntN([]int{8, 4 * n}[k%2]*hop))
		i := s.rng.IntN(n)
		if m := s.machines[i]; m != nil && s.rng.IntN(2) == 0 {
			if leader, _ := m.Leader(); leader != dmutex.None {
				i = int(leader) - 1
			}
		}
		switch {
		case s.machines[i] == nil:
			down--
			s.recover(t, i)
		case 2*(n-down-1) > n:
			down++
			s.crash(t, i)
		}
	}
	s.run(t, 0)

	highest := n - 1
	for s.machines[highest] == nil {
		highest--
	}
	_, want := s.machines[highest].Leader()
	for i, m := range s.machines {
		if m != nil {
			leader, epoch := m.Leader()
			require.Equal(t, dmutex.NodeID(highest+1), leader, "at %d", i+1)
			require.Equal(t, want, epoch, "at %d", i+1)
		}
	}
	t.Log(n, "nodes:", s.messages, "messages,", len(s.leaders), "epochs, at rest at", s.now)
}
