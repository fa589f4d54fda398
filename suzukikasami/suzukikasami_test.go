package suzukikasami

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/machinetest"
)

var _ = flag.Bool("update", false, "rewrite the golden files")

func TestMachine(t *testing.T) { dmutextest.TestMachine(t, New) }

func FuzzMachine(f *testing.F) { dmutextest.FuzzMachine(f, New) }

func BenchmarkMachine(b *testing.B) { dmutextest.BenchmarkMachine(b, New) }

// lawful checks what should hold of a machine after each step.
var lawful = machinetest.Probe[*machine]{
	After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
		switch {
		case m.token && m.Pending():
			return nil, dmutex.Misuse("a node waits for the token that it has")
		case m.Phase() == dmutex.Held && !m.token:
			return nil, dmutex.Misuse("a node is in without the token")
		case m.token && m.ln[m.Place()] != m.rn[m.Place()]:
			return nil, dmutex.Misuse("the holder's own request is not in LN")
		case m.token && m.Phase() == dmutex.Idle && len(m.q) > 0:
			return nil, dmutex.Misuse("an idle token is wanted")
		}
		return out, nil
	},
}

// An entry costs N messages or none. The channels may reorder and repeat
// messages. The long rows take 20 seconds.
func TestExplore(t *testing.T) {
	fifo, unordered := dmutextest.FIFO, dmutextest.Unordered
	repeats := dmutextest.Network{Unordered: true, Duplicates: 2}
	const short, long = false, true
	for _, tt := range []struct {
		name              string
		network           dmutextest.Network
		requests, cancels []int // by node
		first, holder     dmutex.NodeID
		long              bool
		states            int
		least, greatest   int // messages
	}{
		{"2x3", fifo, []int{3, 3}, []int{0}, 1, 0, short, 272, 2, 12},
		{"2x3 cancelled", fifo, []int{3, 3}, []int{3}, 1, 0, short, 4_397, 2, 12},
		{"2x3 cancelled", unordered, []int{3, 3}, []int{3}, 1, 0, short, 4_825, 2, 12},
		{"2x3 cancelled", repeats, []int{3, 3}, []int{3}, 1, 0, short, 168_358, 2, 12},
		{"2x3 carried over", unordered, []int{3, 3}, []int{1}, 1, 2, short, 2_040, 2, 12},
		{"3x1 cancelled", unordered, []int{1, 1, 1}, []int{1}, 2, 0, short, 3_745, 6, 9},
		{"3x1 carried over", repeats, []int{1, 1, 1}, []int{1}, 2, 3, short, 106_489, 6, 9},
		{"3x2", fifo, []int{2, 2, 2}, []int{0}, 1, 0, short, 21_764, 6, 18},
		{"3x2", unordered, []int{2, 2, 2}, []int{0}, 1, 0, short, 107_366, 6, 18},
		{"3x2 cancelled", fifo, []int{2, 2, 2}, []int{1}, 1, 0, short, 326_299, 6, 18},
		{"3x3", fifo, []int{3, 3, 3}, []int{0}, 1, 0, long, 500_010, 6, 27},
		{"3x2 cancelled", unordered, []int{2, 2, 2}, []int{2}, 1, 0, long, 3_553_185, 6, 18},
		{"3x2", repeats, []int{2, 2, 2}, []int{0}, 1, 0, long, 8_991_372, 6, 18},
		{"4x1", fifo, []int{1, 1, 1, 1}, []int{0}, 1, 0, short, 79_019, 12, 16},
		{"4x1 cancelled", fifo, []int{1, 1, 1, 1}, []int{1}, 3, 0, long, 805_102, 12, 16},
	} {
		t.Run(tt.name+", "+tt.network.String(), func(t *testing.T) {
			if tt.long {
				machinetest.Long(t)
			}
			r := machinetest.Explore(t, dmutextest.Config{
				Algorithm: lawful.Of(At(tt.first)),
				Members:   dmutextest.Nodes(len(tt.requests)),
				Network:   tt.network,
				Requests:  tt.requests,
				Cancels:   tt.cancels,
				Holder:    tt.holder,
			})
			require.Equal(t, []int{tt.states, tt.least, tt.greatest}, []int{r.States, r.Least, r.Greatest})
		})
	}
}

// N messages an entry at most: N-1 REQUEST and a TOKEN, or none for the node
// that has the token.
func TestPaperCount(t *testing.T) {
	const requests = 5
	for n := 1; n <= 12; n++ {
		for seed := range uint64(20) {
			r, err := dmutextest.Walk(dmutextest.Config{
				Algorithm: New,
				Members:   dmutextest.Nodes(n),
				Requests:  []int{requests},
				Network:   dmutextest.Unordered,
			}, seed, 1)
			require.NoError(t, err)
			require.Zero(t, r.Least%n, "%d nodes", n)
			require.LessOrEqual(t, r.Greatest, n*requests*n, "%d nodes", n)
		}
	}
}

func TestConversations(t *testing.T) {
	dmutextest.TestScript(t, New, "testdata/conversation.txt")
	dmutextest.TestScript(t, At(3), "testdata/token-elsewhere.txt")
	dmutextest.TestScript(t, New, "testdata/cancel.txt")
}

// The token begins with the named member, unless the lock is carried over.
func TestAt(t *testing.T) {
	for _, tt := range []struct {
		at, holder, want dmutex.NodeID
	}{
		{dmutex.None, dmutex.None, 1},
		{2, dmutex.None, 2},
		{dmutex.None, 3, 3},
		{2, 3, 3},
	} {
		for _, self := range dmutextest.Nodes(3) {
			algorithm := New
			if tt.at != dmutex.None {
				algorithm = At(tt.at)
			}
			m, err := algorithm(dmutex.Start{Self: self, Members: dmutextest.Nodes(3), Holder: tt.holder})
			require.NoError(t, err)
			require.Equal(t, self == tt.want, m.(*machine).token)
		}
	}
	_, err := At(4)(dmutex.Start{Self: 1, Members: dmutextest.Nodes(3)})
	require.ErrorIs(t, err, dmutex.ErrMisuse)
}

// A TOKEN that no correct peer sends is refused, one that comes again is
// dropped, and neither changes anything.
func TestRefuses(t *testing.T) {
	for _, tt := range []struct {
		attempt uint64
		numbers []uint64
		nodes   []dmutex.NodeID
		why     string // "" for one that is dropped
	}{
		{6, []uint64{6, 0, 0}, []dmutex.NodeID{2}, "never made"},
		{0, []uint64{0, 0, 0}, nil, "names no request"},
		{5, nil, nil, "one number for each"},
		{5, []uint64{5, 0}, nil, "one number for each"},
		{5, []uint64{5, 0, 0, 0}, nil, "one number for each"},
		{5, []uint64{4, 0, 0}, nil, "another request"},
		{5, []uint64{5, 0, 1<<61 + 1}, nil, "beyond"},
		{5, []uint64{5, 0, 0}, []dmutex.NodeID{3, 4}, "different other members"},
		{5, []uint64{5, 0, 0}, []dmutex.NodeID{3, 3}, "different other members"},
		{5, []uint64{5, 0, 0}, []dmutex.NodeID{1}, "different other members"},
		{4, []uint64{4, 0, 0}, nil, ""},
	} {
		born, err := At(2)(dmutex.Start{Self: 1, Members: dmutextest.Nodes(3), Clock: 4})
		require.NoError(t, err)
		_, err = born.Request() // number 5
		require.NoError(t, err)
		m := born.(*machine)
		before, _ := m.AppendText(nil)
		_, err = m.Handle(dmutex.Message{
			Kind: dmutex.Token, From: 2, To: 1, Attempt: tt.attempt, Numbers: tt.numbers, Nodes: tt.nodes,
		})
		if tt.why == "" {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, dmutex.ErrPeer)
			require.ErrorContains(t, err, tt.why)
		}
		after, _ := m.AppendText(nil)
		require.Equal(t, string(before), string(after))
	}
}
