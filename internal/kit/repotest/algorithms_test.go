package repotest

import (
	"flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/quicktest"
	"github.com/dmutex/dmutex/ring"
)

func perEntry(r dmutextest.SimReport) float64 { return float64(r.Messages) / float64(r.Entries) }

// The two loads of the tables; see dmutextest.SimConfig.
var rarely, saturated = math.Inf(1), 0.0

var update = flag.Bool("update", false, "rewrite the tables of docs/algorithms.md")

// A claim is what an algorithm promises in a group of n nodes: in words, and as bounds
// that measurements must meet. If both ends of a bound are the same, it is exact.
type claim struct {
	name, paper string
	make        dmutex.Algorithm
	tick        float64 // time between ticks, for the algorithm that has them

	messages     string // of an entry
	rare, busy   bounds // the same as bounds: if one node requests at a time, and if all always do
	delay, next  string // from request to entry if nobody else is interested; from a release to the next entry
	waits, hands bounds // the same in T, the second if all request always
	late         bounds // the bounds of next if requests come at any time, also just before the release
	channels     string // what they must keep, beside delivering exactly once
	crash        string // what one crash stops
	leases       string // which locks wait for a lease after a crash, in the lease mode
	choose       string // when
}

type bounds func(n float64) (least, greatest float64)

func exactly(f func(n float64) float64) bounds {
	return func(n float64) (float64, float64) { return f(n), f(n) }
}

func always(v float64) bounds { return exactly(func(float64) float64 { return v }) }

func from(least float64, greatest func(n float64) float64) bounds {
	return func(n float64) (float64, float64) { return least, greatest(n) }
}

func nodes(n float64) float64   { return n }
func replies(n float64) float64 { return 2 * (n - 1) }
func thrice(n float64) float64  { return 3 * (n - 1) }
func two(float64) float64       { return 2 }

var claims = []claim{
	{
		name: "central", paper: "folklore", make: algorithms.Named("central"),
		messages: "3; own 0", rare: from(0, func(float64) float64 { return 3 }), busy: func(n float64) (float64, float64) {
			return 3 * (n - 1) / n, 3 * (n - 1) / n // all but the coordinator's own, in turn
		},
		delay: "2T; own 0", waits: from(0, two),
		next: "2T", hands: from(1, two), late: from(1, two), // T if the coordinator is at one end
		channels: "any order", crash: "all, if coordinator, holder or waiter", leases: "those that it held or that were at home with it",
		choose: "nothing below applies: it is the cheapest",
	},
	{
		name: "central.Witnessed", paper: "folklore", make: algorithms.Named("central.Witnessed"),
		messages: "3", rare: always(3), busy: always(3),
		delay: "2T", waits: always(2),
		next: "2T; own 3T", hands: from(1, func(float64) float64 { return 3 }), late: from(1, func(float64) float64 { return 3 }), // T from the coordinator
		channels: "any order", crash: "as central; the witness, once the coordinator asks", leases: "those that it held or asked for",
		choose: "with leases, the same: it is the default there",
	},
	{
		name: "lamport", paper: "Lamport '78", make: algorithms.Named("lamport"),
		messages: "3(N-1)", rare: exactly(thrice), busy: exactly(thrice),
		delay: "2T", waits: always(2), next: "T", hands: always(1), late: from(1, two),
		channels: "in order", crash: "all", leases: "all",
		choose: "grants must follow the logical times of the requests",
	},
	{
		name: "lamport.OmitReplies", paper: "Lamport '78", make: algorithms.Named("lamport.OmitReplies"),
		messages: "2(N-1) to 3(N-1)", rare: exactly(thrice), busy: exactly(replies),
		delay: "2T", waits: always(2), next: "T", hands: always(1), late: from(1, two),
		channels: "in order", crash: "all", leases: "all",
		choose: "the same, with fewer messages under contention",
	},
	{
		name: "ricart", paper: "Ricart, Agrawala '81", make: algorithms.Named("ricart"),
		messages: "2(N-1)", rare: exactly(replies), busy: exactly(replies),
		delay: "2T", waits: always(2), next: "T", hands: always(1), late: from(1, two),
		channels: "any order", crash: "all", leases: "all",
		choose: "no node may be special, and hand-over must be fast",
	},
	{
		name: "ricart.Carvalho", paper: "Carvalho, Roucairol '83", make: algorithms.Named("ricart.Carvalho"),
		messages: "0 to 2(N-1)", rare: from(0, replies), busy: from(0, replies),
		delay: "2T or 0", waits: from(0, two), next: "T", hands: always(1), late: from(1, two),
		channels: "any order", crash: "nodes that must ask it, transitively", leases: "all",
		choose: "the same, and a node often locks several times in a row",
	},
	{
		name: "maekawa", paper: "Maekawa '85", make: algorithms.Named("maekawa"),
		messages: "3(K-1), mean to 6(K-1)", rare: inGrid(3, 3), busy: inGrid(3, 6),
		delay: "2T", waits: always(2), next: "2T", hands: from(1, two), // T if the arbiter is at one end
		late:     from(1, func(float64) float64 { return 4 }), // as seen: a vote may have to be asked back
		channels: "any order", crash: "all, once a node with it in its quorum asks", leases: "those that it held",
		choose: "the group is large: a quorum has K nodes, about 2√N",
	},
	{
		name: "suzukikasami", paper: "Suzuki, Kasami '85", make: algorithms.Named("suzukikasami"),
		messages: "N or 0", rare: from(0, nodes), busy: from(0, nodes),
		delay: "2T or 0", waits: from(0, two), next: "T", hands: always(1), late: from(1, two),
		channels: "any order", crash: "all, if it has or gets the token", leases: "those whose token no survivor has",
		choose: "re-entry must be free: the token stays where it was used",
	},
	{
		name: "ring", paper: "Le Lann '77", make: algorithms.Named("ring"),
		messages: "0 to N", rare: from(0, nodes), busy: from(0, nodes),
		delay: "NT or 0", waits: from(0, nodes), next: "T to NT", hands: from(1, func(n float64) float64 { return n - 1 }), late: from(1, nodes),
		channels: "in order", crash: "all", leases: "those whose token no survivor has",
		choose: "most nodes want the lock most of the time; each sends to one neighbor only",
	},
	{
		name: "ring.Circulate", paper: "Le Lann '77", make: ring.Circulate(1), tick: 1,
		messages: "1 or more", rare: from(0, func(float64) float64 { return math.Inf(1) }), busy: from(0, func(float64) float64 { return 1 }),
		delay: "to N(T+pace)", waits: from(0, func(n float64) float64 { return 2 * n }), next: "T to (N-1)T+(N-2)pace", hands: from(1, func(n float64) float64 { return n - 1 }),
		late:     from(1, func(n float64) float64 { return n - 1 + n - 2 }),
		channels: "any order", crash: "all", leases: "-",
		choose: "the token must never rest; it needs ticks, so `node` refuses it",
	},
}

// inGrid bounds Maekawa's messages by the sizes of the quorums, which differ in a grid that is
// not square.
func inGrid(least, greatest float64) bounds {
	return func(n float64) (float64, float64) {
		columns := int(math.Ceil(math.Sqrt(n)))
		low, high := n, 0.0
		for i := range int(n) {
			others := -1.0
			for k := range int(n) {
				if k/columns == i/columns || k%columns == i%columns {
					others++
				}
			}
			low, high = min(low, others), max(high, others)
		}
		return least * low, greatest * high
	}
}

// measure runs a group of n nodes. Each entry holds the lock for T.
func (c *claim) measure(t *testing.T, n, entries int, think float64) dmutextest.SimReport {
	t.Helper()
	r, err := dmutextest.Simulate(dmutextest.SimConfig{
		Algorithm: c.make, Members: dmutextest.Nodes(n), Entries: entries,
		Think: think, Hold: 1, Tick: c.tick, Seed: uint64(n),
	})
	require.NoError(t, err)
	return r
}

// In groups of 2 to 50 nodes, the messages and times of every algorithm are what its formula
// says: exactly if the formula is exact, otherwise within its bounds. Above 16 nodes the test
// takes every seventh size. DMUTEX_LONG=1 takes all.
func TestClaims(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, c := range claims {
		t.Run(c.name, func(t *testing.T) {
			for n := 2; n <= 50; n++ {
				if n > 16 && n%7 != 1 && os.Getenv("DMUTEX_LONG") == "" || n > 29 && quicktest.On() {
					continue
				}
				rare := c.measure(t, n, 4*n, rarely)
				busy := c.measure(t, n, 4*n, saturated)
				c.meets(t, n, "messages, rare", c.rare, cost(rare))
				c.meets(t, n, "messages, busy", c.busy, dmutextest.Spread{Count: 1, Least: perEntry(busy), Greatest: perEntry(busy)})
				c.meets(t, n, "delay", c.waits, rare.Wait)
				c.meets(t, n, "next", c.hands, busy.Next)
				c.meets(t, n, "next, at any time", c.late, c.measure(t, n, 20*n, 3*float64(n)).Next)
				require.Zero(t, rare.Next.Count, "n=%d", n)
				require.Greater(t, busy.Fairness, 0.95, "n=%d", n)
				if n%7 == 1 {
					t.Logf("n=%d: messages %.2f rare, %.2f busy; delay %.2f T, next %.2f T",
						n, perEntry(rare), perEntry(busy), rare.Wait.Mean, busy.Next.Mean)
				}
			}
		})
	}
}

// cost returns the cost of single entries if it is known, otherwise the mean.
func cost(r dmutextest.SimReport) dmutextest.Spread {
	if r.Cost.Count > 0 {
		return r.Cost
	}
	return dmutextest.Spread{Count: 1, Least: perEntry(r), Greatest: perEntry(r)}
}

func (c *claim) meets(t *testing.T, n int, what string, claimed bounds, got dmutextest.Spread) {
	t.Helper()
	least, greatest := claimed(float64(n))
	require.Positive(t, got.Count, "n=%d: %s", n, what)
	require.True(t, claimed.hold(n, got), "n=%d: %s: %v to %v, claimed are %v to %v", n, what, got.Least, got.Greatest, least, greatest)
}

func (b bounds) hold(n int, got dmutextest.Spread) bool {
	const rounding = 1e-9
	least, greatest := b(float64(n))
	return got.Least >= least-rounding && got.Greatest <= greatest+rounding
}

// An algorithm does not meet the claims of another, unless these claim little.
func TestClaimsOfOthers(t *testing.T) {
	i := slices.IndexFunc(claims, func(c claim) bool { return c.name == "ricart" })
	r := claims[i].measure(t, 9, 20, rarely)
	var met []string
	for _, c := range claims {
		if c.rare.hold(9, r.Cost) && c.waits.hold(9, r.Wait) {
			met = append(met, c.name)
		}
	}
	require.Equal(t, []string{"ricart", "ricart.Carvalho", "ring.Circulate"}, met, "the last two claim little")
}

// The list of algorithms has those that are claimed, in one way each, and says which need messages in
// order. Each has the tests that package machinetest lists, also for 32 bits.
func TestListOfAlgorithms(t *testing.T) {
	listed := slices.DeleteFunc(slices.Clone(claims), func(c claim) bool { return c.name == "ring.Circulate" })
	var rows []string
	for _, c := range listed {
		rows = append(rows, c.name)
	}
	require.Empty(t, algorithms.Without(rows), "claims needs a row for each of these")
	require.Len(t, listed, len(algorithms.All), "claims has one that is not in the list")
	tests := regexp.MustCompile(`(?m)^//\t(\w+_test\.go) `).FindAllStringSubmatch(read(t, "internal/kit/machinetest/explore.go")[0], -1)
	require.Len(t, tests, 7)
	for _, a := range algorithms.All {
		i := slices.Index(rows, a.Name)
		require.Equal(t, a.Ordered, listed[i].channels == "in order", a.Name)
		require.Equal(t, a.Waits.Any, listed[i].leases == "all", a.Name)
		dir, _, _ := strings.Cut(a.Name, ".")
		for _, test := range tests {
			require.FileExists(t, dir+"/"+test[1])
		}
		require.Contains(t, read(t, ".ci/run")[0], " ./"+dir+" ", "the step for 32 bits")
	}
}

// If a formula is a choice, such as "N or 0", each entry costs one of the two.
func TestClaimsEitherOr(t *testing.T) {
	for _, c := range claims {
		either := map[string]float64{"central": 3, "suzukikasami": 9, "ring": 9}[c.name]
		if either == 0 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			free := 0
			for seed := range uint64(100) {
				r, err := dmutextest.Simulate(dmutextest.SimConfig{
					Algorithm: c.make, Members: dmutextest.Nodes(9), Think: rarely, Entries: 2, Seed: seed,
				})
				require.NoError(t, err)
				if r.Cost.Least == 0 {
					free++
				} else {
					require.Equal(t, either, r.Cost.Least, "seed %d", seed)
				}
				require.Contains(t, []float64{0, either}, r.Cost.Greatest, "seed %d", seed)
			}
			require.Greater(t, free, 0)
			require.Less(t, free, 100)
		})
	}
}

// The tables of the page say what is claimed above and measured now. -update rewrites them.
//
// LESSONS L4.
func TestTables(t *testing.T) {
	var measured, all [][]string
	for _, c := range claims {
		rare5, busy5 := c.measure(t, 5, 5000, rarely), c.measure(t, 5, 5000, saturated)
		rare9, busy9 := c.measure(t, 9, 9000, rarely), c.measure(t, 9, 9000, saturated)
		m := []string{
			brief(perEntry(rare5)), brief(perEntry(busy5)), brief(perEntry(rare9)), brief(perEntry(busy9)),
			brief(rare9.Wait.Mean), brief(busy9.Next.Mean),
		}
		shares := "no"
		if slices.ContainsFunc(algorithms.All, func(a algorithms.Algorithm) bool { return a.Name == c.name && a.Shares }) {
			shares = "yes"
		}
		measured = append(measured, append([]string{"`" + c.name + "`", c.paper, c.channels, shares}, m...))
		all = append(all, []string{
			"`" + c.name + "`", c.messages, m[2], m[3], c.delay, c.next, c.crash, c.leases, c.choose,
		})
	}

	const page, begin, end = "docs/algorithms.md", "<!-- algorithms -->\n", "<!-- /algorithms -->\n"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	i, k := strings.Index(string(text), begin), strings.Index(string(text), end)
	require.True(t, i >= 0 && k > i, "%s does not have the marks %s and %s", page, begin, end)
	want := string(text[:i+len(begin)]) + markdown([]string{
		"package", "messages per entry", "rare", "busy", "delay", "next", "one crash stops", "with leases, wait", "choose it if",
	}, all) + legend + "\n## Measured\n\n" + markdown([]string{
		"package", "after", "channels", "shared", "rare, N=5", "busy, N=5", "rare, N=9", "busy, N=9", "delay, N=9", "next, N=9",
	}, measured) + measuredLegend + string(text[k:])
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(text), "%s is out of date; -update rewrites it", page)
}

const measuredLegend = `
The messages of an entry, and the two delays in T, as package dmutextest measures them; a number
without decimals is exact. Where the table says in order, the channels must keep the order of messages
from one node to another; package node does for all. Where it says shared, [readers and a
writer](modes.md#readers-and-writers) can take the lock.
`

const legend = `
N is the number of nodes and T the time of one message; what a node sends to itself
does not count. *Own* is the coordinator itself. *Rare* and *busy* are the messages per
entry as measured in groups of nine, with one request at a time and with every node
always requesting. *Next* holds for a request that had already arrived; for one made
just before the release it is up to *delay*, and up to 4T in the runs of maekawa. What a
crash stops resumes when the member is back or evicted. *With leases*, the others go on
once the member is excluded, and only these locks wait until its lease has ended.
`

func markdown(head []string, rows [][]string) string {
	var b strings.Builder
	rule := slices.Repeat([]string{"---"}, len(head))
	for _, row := range append([][]string{head, rule}, rows...) {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return b.String()
}

// brief writes a measured number with two decimals, or none if it is exactly
// whole.
func brief(v float64) string {
	if math.Abs(v-math.Round(v)) < 1e-9 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// A view begins with the holder that is carried over and a fence of its own, and
// then every algorithm goes on as if it had granted the lock itself.
func TestCarriedOver(t *testing.T) {
	states := map[string][]int{ // by holder
		"central":             {140, 165, 165},
		"central.Witnessed":   {444, 252, 252},
		"lamport":             nil, // groups of two: of three there are millions of states
		"lamport.OmitReplies": nil,
		"ricart":              {3_013, 3_013, 3_013},
		"ricart.Carvalho":     {3_013, 3_013, 3_013},
		"maekawa":             {50_065, 16_617, 16_601},
		"suzukikasami":        {846, 846, 846},
		"ring":                {265, 265, 265},
	}
	for _, c := range claims {
		if c.tick > 0 {
			continue // package node, which has views, refuses it
		}
		t.Run(c.name, func(t *testing.T) {
			want, known := states[c.name]
			require.True(t, known, "it needs a row in states")
			n := len(want)
			if n == 0 {
				n = 2
			}
			for i, holder := range dmutextest.Nodes(n) {
				r, err := dmutextest.Explore(dmutextest.Config{
					Algorithm: c.make, Members: dmutextest.Nodes(n), Holder: holder, Fence: 9 << 32, Requests: []int{1},
					Network: dmutextest.Network{Unordered: c.channels == "any order"},
				})
				require.NoError(t, err)
				require.True(t, r.Complete, r)
				if want != nil {
					require.Equal(t, want[i], r.States)
				}
			}
		})
	}
}

// The list of algorithms says which of them share.
func TestShares(t *testing.T) {
	for _, a := range algorithms.All {
		m, err := a.Algorithm(dmutex.Start{Self: 1, Members: []dmutex.NodeID{1, 2, 3}})
		require.NoError(t, err)
		_, shares := m.(dmutex.Sharer)
		require.Equal(t, a.Shares, shares, a.Name)
	}
}
