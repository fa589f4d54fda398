package sim

import (
	"encoding/csv"
	"encoding/json"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/ricart"
)

type grammar struct {
	Sim Cmd `cmd:""`
}

func TestMain(m *testing.M) { tooltest.Main(m, new(grammar)) }

func invoke(args ...string) (status int, stdout, stderr string) {
	return tooltest.Run(new(grammar), "", args...)
}

// The table of all algorithms: the same seed makes the same figures.
func TestSimTable(t *testing.T) {
	status, stdout, stderr := invoke("sim", "--nodes=2,9", "--requests=900", "--seed=7")
	require.Equal(t, tool.StatusOK, status, stderr)
	require.Empty(t, stderr)
	goldentest.Compare(t, filepath.Join("testdata", "sim.txt"), stdout)
}

func TestSimJSON(t *testing.T) {
	status, stdout, stderr := invoke("sim", "--algorithm=central", "--nodes=4", "--load=saturated,8", "--requests=400", "--json")
	require.Equal(t, tool.StatusOK, status, stderr)
	var got []measurement
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Len(t, got, 2)
	m := got[0]
	require.Equal(t, "central", m.Algorithm)
	require.Equal(t, "saturated", m.Load)
	require.Equal(t, 400, m.Entries)
	require.Equal(t, 300, m.Messages.Entries)
	require.EqualValues(t, 900, m.Messages.Sent, "the coordinator's own hundred entries are free")
	require.Equal(t, 3.0, m.Messages.PerEntry)
	require.True(t, m.Fits)
	require.Equal(t, 2.0, m.Next.Greatest)
	require.Equal(t, 1.0, m.Fairness)
	require.Equal(t, "8", got[1].Load)
	require.Less(t, got[1].Throughput, m.Throughput)
}

func TestSimCSV(t *testing.T) {
	status, stdout, stderr := invoke("sim", "--algorithm=ring", "--nodes=2..4,6", "--load=rare,saturated", "--requests=60", "--csv")
	require.Equal(t, tool.StatusOK, status, stderr)
	rows, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 1+2*4)
	require.Equal(t, []string{"algorithm", "load", "nodes", "entries", "counted_entries"}, rows[0][:5])
	require.Equal(t, []string{"ring", "rare", "2", "60", "60"}, rows[1][:5])
	require.Equal(t, []string{"ring", "saturated", "6", "60"}, rows[8][:4])
	next := 14
	require.Equal(t, "release_to_next_entry_T", rows[0][next])
	require.Equal(t, "", rows[1][next], "no node waited")
	require.Equal(t, "1", rows[8][next])
}

// Random delays do not change the number of messages.
func TestSimDelay(t *testing.T) {
	for _, delay := range []string{"constant", "uniform", "exponential"} {
		status, stdout, stderr := invoke("sim", "--algorithm=ricart", "--nodes=5", "--load=3", "--requests=100", "--delay="+delay, "--json")
		require.Equal(t, tool.StatusOK, status, stderr)
		require.Contains(t, stdout, `"sent": 800`)
	}
}

// With --shares the algorithms that share run, and nodes that share are in together.
func TestSimShares(t *testing.T) {
	args := []string{"sim", "--nodes=2,9", "--requests=900", "--seed=7", "--load=saturated,20", "--shares=0.9"}
	status, stdout, stderr := invoke(args...)
	require.Equal(t, tool.StatusOK, status, stderr)
	require.NotContains(t, stdout, "maekawa")
	goldentest.Compare(t, filepath.Join("testdata", "sim-shares.txt"), stdout)
	status, stdout, stderr = invoke(append(args, "--json", "--algorithm=ricart")...)
	require.Equal(t, tool.StatusOK, status, stderr)
	var got []measurement
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Equal(t, 0.9, got[1].Shares)
	require.Equal(t, "2(N-1)..3(N-1)", got[1].Messages.Formula)
	require.Greater(t, int(got[1].Messages.Sent), 900*16, "a node that shares sends an INQUIRE to one that waits for it")
	require.Less(t, int(got[1].Messages.Sent), 900*24)
}

// A formula that does not hold, and a machine that is wrong, end in status 1.
func TestSimFailures(t *testing.T) {
	before := catalog.All
	t.Cleanup(func() { catalog.All = before })

	catalog.All = []catalog.Algorithm{{Name: "wishful", New: ricart.New, Formula: "N", Messages: func(n int) (int, int) { return n, n }}}
	status, stdout, stderr := invoke("sim", "--nodes=5", "--load=rare", "--requests=10")
	require.Equal(t, tool.StatusFailed, status)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "NOT 5")

	catalog.All = []catalog.Algorithm{{Name: "stuck", New: func(s dmutex.Start) (dmutex.Machine, error) {
		m, err := ricart.New(s)
		return stuck{m}, err
	}, Formula: "0", Messages: func(int) (int, int) { return 0, 0 }}}
	status, stdout, stderr = invoke("sim", "--nodes=5", "--requests=10", "--seed=3")
	require.Equal(t, tool.StatusFailed, status)
	require.Empty(t, stdout)
	require.Regexp(t, `^dmutex: stuck, 5 nodes, load rare: dmutextest: deadlock: \d waits, .*\(seed 3, after 0 entries, at 0 T\)\n$`, stderr)
}

// stuck sends nothing.
type stuck struct{ dmutex.Machine }

func (s stuck) Request() ([]dmutex.Message, error) {
	_, err := s.Machine.Request()
	return nil, err
}

func (s stuck) Clone() dmutex.Machine { return stuck{s.Machine.Clone()} }

func TestSimUsage(t *testing.T) {
	tooltest.Refused(t, invoke, [][2]string{
		{"sim --algorithm=peterson", "choose all or one of central, "},
		{"sim --nodes=0", "from 1 to 1000"},
		{"sim --nodes=5..2", "from 1 to 1000"},
		{"sim --nodes=1001", "from 1 to 1000"},
		{"sim --nodes=5,", "such as 2..10,25"},
		{"sim --load=heavy", "choose rare, saturated or a time"},
		{"sim --load=-1", "choose rare, saturated or a time"},
		{"sim --load=NaN", "choose rare, saturated or a time"},
		{"sim --requests=-1", "choose 1 to 10000000"},
		{"sim --shares=2", "choose 0 to 1"},
		{"sim --shares=0.5 --algorithm=ring", "ring lets one node in at a time"},
		{"sim --hold=-1", "choose 0 to 1e6"},
		{"sim --hold=NaN", "choose 0 to 1e6"},
		{"sim --delay=long", `must be one of "constant","uniform","exponential"`},
		{"sim --nodes=65 --trace=x", "up to 64"},
		{"sim --json --csv", "can't be used together"},
	})
}

func TestParseSizes(t *testing.T) {
	var s sizes
	require.NoError(t, s.UnmarshalText([]byte("9,2..4, 3,1000")))
	require.Equal(t, sizes{2, 3, 4, 9, 1000}, s)
}
