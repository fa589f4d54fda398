package lease

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/carryover"
	"github.com/dmutex/dmutex/internal/search"
)

func exploreWake(s wakeSetup, most int) (search.Report, error) {
	return search.Search[*wake, wakeStep]{
		First:  newWake(s),
		State:  (*wake).rests,
		Ends:   dmutextest.ErrLivelock,
		Script: func(told string, _ *wake, v *search.Violation) string { return told + "\n" + v.Why },
		Limits: search.Limits{MaxStates: most},
	}.Run()
}

// requireStates explores a system that has so many states, and nothing goes wrong in it. Large ones are explored where
// tests take long, see package machinetest.
func requireStates(t *testing.T, states int, s wakeSetup) {
	t.Helper()
	switch {
	case states > 60_000:
		machinetest.Long(t)
	case states > 6_000:
		machinetest.Thorough(t)
	}
	r, err := exploreWake(s, 5_000_000)
	require.NoError(t, err)
	require.True(t, r.Complete)
	require.Equal(t, states, r.States)
}

// Rule 5a with the machines as shipped. Members are excluded at any moment and go on, others
// join, and the remaining members act at once. Two members never hold the lock, its fences
// rise, and no member that may request the lock waits forever. The counts are the states
// without leases, and with leases that end. CI=1 adds larger groups, and DMUTEX_LONG=1 the other homes, a second
// change of the record, also before the first view acts, and a fourth member.
func TestPast(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, tt := range []struct {
		name                 string
		n, founders, changes int
		home                 int
		states               []int
	}{
		{"central", 3, 3, 1, 0, []int{5_926, 31_009}},
		{"central", 3, 3, 1, 1, []int{5_901, 30_863}},
		{"central", 3, 3, 1, 2, []int{5_876, 30_717}},
		{"central.Witnessed", 3, 3, 1, 0, []int{10_518, 48_760}},
		{"central.Witnessed", 3, 3, 1, 1, []int{10_518, 48_760}},
		{"central.Witnessed", 3, 3, 1, 2, []int{10_518, 48_760}},
		{"suzukikasami", 3, 3, 1, 0, []int{13_355, 44_857}},
		{"suzukikasami", 3, 3, 1, 1, []int{13_319, 44_799}},
		{"suzukikasami", 3, 3, 1, 2, []int{13_283, 44_741}},
		{"ring", 3, 3, 1, 0, []int{9_021, 36_871}},
		{"ring", 3, 3, 1, 1, []int{8_999, 36_827}},
		{"ring", 3, 3, 1, 2, []int{8_995, 36_801}},
		{"maekawa", 3, 3, 1, 0, []int{51_866, 149_026}},
		{"ricart", 3, 3, 1, 0, []int{40_721, 101_247}},
		{"lamport", 2, 2, 1, 0, []int{510, 858}},
		{"central", 3, 2, 1, 0, []int{7_242, 10_796}},
		{"central.Witnessed", 3, 2, 1, 0, []int{11_681, 17_827}},
		{"suzukikasami", 3, 2, 1, 0, []int{8_483, 12_133}},
		{"ring", 3, 2, 1, 0, []int{7_029, 10_679}},
		{"maekawa", 3, 2, 1, 0, []int{19_680, 27_144}},
		{"central", 4, 3, 1, 0, []int{1_283_462}},
		{"suzukikasami", 4, 3, 1, 0, []int{1_858_831}},
		{"ring", 4, 3, 1, 0, []int{1_357_261}},
		{"central", 3, 2, 2, 0, []int{284_806, 792_310}},
		{"central", 3, 2, 2, 1, []int{281_545, 780_523}},
		{"central", 3, 2, 2, 2, []int{300_528}},
		{"central.Witnessed", 3, 2, 2, 0, []int{457_791}},
		{"central.Witnessed", 3, 2, 2, 1, []int{469_401}},
		{"central.Witnessed", 3, 2, 2, 2, []int{482_117}},
		{"suzukikasami", 3, 2, 2, 0, []int{303_428}},
		{"suzukikasami", 3, 2, 2, 1, []int{302_521}},
		{"suzukikasami", 3, 2, 2, 2, []int{319_295}},
		{"ring", 3, 2, 2, 0, []int{279_102}},
		{"ring", 3, 2, 2, 1, []int{277_249}},
		{"ring", 3, 2, 2, 2, []int{289_232}},
		{"maekawa", 3, 2, 2, 0, []int{640_525}},
		{"ricart", 3, 2, 2, 0, []int{309_003}},
	} {
		for i, leases := range []bool{false, true}[:len(tt.states)] {
			t.Run(fmt.Sprintf("%s, %d founders of %d, changes %d, home %d, leases %v", tt.name, tt.founders, tt.n, tt.changes, tt.home, leases), func(t *testing.T) {
				if tt.changes > 1 || tt.home > 0 {
					machinetest.Long(t)
				}
				requireStates(t, tt.states[i], wakeSetup{
					algorithm: algorithms.Named(tt.name), n: tt.n, founders: tt.founders, requests: 1, changes: tt.changes, home: tt.home, leases: leases,
				})
			})
		}
	}
}

// Rule 5a by mode, as in TestPast: members share the lock, alone and beside requests to hold it alone.
func TestPastShared(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, tt := range []struct {
		name                           string
		n, founders, changes, requests int
		home                           int
		states                         []int
	}{
		{"central", 3, 3, 1, 0, 0, []int{20_740}},
		{"central", 2, 2, 1, 1, 0, []int{3_864, 6_805}},
		{"central", 2, 2, 1, 1, 1, []int{3_864, 6_805}},
		{"central.Witnessed", 2, 2, 1, 1, 0, []int{8_778, 14_205}},
		{"ricart", 2, 2, 1, 1, 0, []int{5_981, 9_217}},
		{"lamport", 2, 2, 1, 1, 0, []int{47_439, 66_975}},
		{"central", 3, 2, 1, 1, 0, []int{526_169}},
	} {
		for i, leases := range []bool{false, true}[:len(tt.states)] {
			t.Run(fmt.Sprintf("%s, %d founders of %d, changes %d, requests %d, home %d, leases %v", tt.name, tt.founders, tt.n, tt.changes, tt.requests, tt.home, leases), func(t *testing.T) {
				requireStates(t, tt.states[i], wakeSetup{
					algorithm: algorithms.Named(tt.name), n: tt.n, founders: tt.founders, requests: tt.requests, shares: 1, changes: tt.changes, home: tt.home, leases: leases,
				})
			})
		}
	}
}

// Rule 5a by mode over two changes of the record: who holds the lock is carried, or waited for, through two
// views. Each life does one thing, see wakeSetup.modes. DMUTEX_LONG=1 adds all but two systems.
func TestPastSharedTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, tt := range []struct {
		name     string
		founders int // of three lives
		modes    string
		home     int
		leases   bool
		states   int
		long     bool
	}{
		{"central", 3, "rwr", 0, false, 74_200, false},
		{"central", 2, "r-w", 0, false, 52_000, false},
		{"central", 3, "rwr", 0, true, 426_318, true},
		{"central", 2, "r-w", 0, true, 183_323, true},
		{"central.Witnessed", 2, "r-w", 0, false, 90_682, true},
		{"central.Witnessed", 3, "rwr", 0, false, 159_808, true},
		{"central", 3, "rrw", 0, false, 73_858, true},
		{"central", 3, "wrw", 0, false, 51_404, true},
		{"central", 3, "rwr", 1, false, 76_591, true},
		{"central", 3, "rww", 0, false, 49_532, true},
		{"central", 3, "rww", 1, false, 51_641, true},
		{"central", 3, "rww", 2, false, 51_281, true},
		{"central", 2, "w-r", 0, false, 51_154, true},
		{"central", 2, "-rw", 0, false, 70_957, true},
		{"central", 2, "-wr", 0, false, 71_365, true},
		{"central", 2, "-wr", 1, false, 50_271, true},
		{"central", 2, "rw-", 0, false, 222_469, true},
		{"central", 2, "wr-", 0, false, 222_339, true},
		{"central", 2, "rww", 0, false, 312_956, true},
		{"central", 2, "wrw", 0, false, 305_955, true},
		{"ricart", 3, "rww", 0, false, 395_000, true},
	} {
		t.Run(fmt.Sprintf("%s, %s, %d founders, home %d, leases %v", tt.name, tt.modes, tt.founders, tt.home, tt.leases), func(t *testing.T) {
			if machinetest.Thorough(t); tt.long {
				machinetest.Long(t)
			}
			r, err := exploreWake(wakeSetup{
				algorithm: algorithms.Named(tt.name), n: 3, founders: tt.founders, modes: tt.modes, changes: 2, home: tt.home, leases: tt.leases,
			}, 1_000_000)
			require.NoError(t, err)
			require.True(t, r.Complete)
			require.Equal(t, tt.states, r.States)
		})
	}
}

// After the death of one member all others act, also if a process joins before the dead member
// is excluded. They wait for its lease only before they take a lock that it may hold.
func TestPastDeath(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, tt := range []struct {
		name                  string
		n, founders, requests int
		states                []int
	}{
		{"central", 3, 2, 1, []int{30_716, 109_400}},
		{"central.Witnessed", 3, 2, 1, []int{51_195, 173_697}},
		{"suzukikasami", 3, 2, 1, []int{45_713, 134_544}},
		{"ring", 3, 2, 1, []int{30_089, 110_304}},
		{"maekawa", 3, 2, 1, []int{133_964, 385_395}},
		{"ricart", 3, 2, 1, []int{67_218, 182_516}},
		{"central", 4, 3, 0, []int{50_249, 583_956}},
	} {
		for i, leases := range []bool{false, true}[:len(tt.states)] {
			t.Run(fmt.Sprintf("%s, %d founders of %d, requests %d, leases %v", tt.name, tt.founders, tt.n, tt.requests, leases), func(t *testing.T) {
				requireStates(t, tt.states[i], wakeSetup{
					algorithm: algorithms.Named(tt.name), n: tt.n, founders: tt.founders, requests: tt.requests, changes: 2, leases: leases, death: true,
				})
			})
		}
	}
}

// Rule 5a where members close: one says its last word before it is excluded, and each of the others hears it or
// does not. Two members never hold the lock. Those that have heard that it holds nothing do not wait for it.
func TestParting(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, tt := range []struct {
		name        string
		n, founders int
		shares      int
		states      []int
	}{
		{"central", 2, 2, 0, []int{1_109, 2_507}},
		{"central.Witnessed", 2, 2, 0, []int{2_191, 4_318}},
		{"ricart", 2, 2, 0, []int{1_594, 3_052}},
		{"lamport", 2, 2, 0, []int{4_368, 7_362}},
		{"suzukikasami", 2, 2, 0, []int{1_105, 2_643}},
		{"central", 2, 2, 1, []int{29_529}},
		{"central", 3, 3, 0, []int{114_318}},
		{"central", 3, 2, 0, []int{104_553}},
		{"ricart", 3, 2, 0, []int{138_777}},
		{"maekawa", 3, 2, 0, []int{325_662}},
	} {
		for i, leases := range []bool{false, true}[:len(tt.states)] {
			t.Run(fmt.Sprintf("%s, %d founders of %d, shares %d, leases %v", tt.name, tt.founders, tt.n, tt.shares, leases), func(t *testing.T) {
				requireStates(t, tt.states[i], wakeSetup{
					algorithm: algorithms.Named(tt.name), n: tt.n, founders: tt.founders, requests: 1, shares: tt.shares, changes: 1, leases: leases, partings: 1,
				})
			})
		}
	}
}

// Each part of rule 5a is needed: without it something goes wrong. The shortest run to it
// is in testdata.
func TestPastMutants(t *testing.T) {
	two := wakeSetup{algorithm: central.New, n: 2, founders: 2, requests: 1, changes: 1}
	join := wakeSetup{algorithm: central.New, n: 3, founders: 2, requests: 1, changes: 2}
	joinAway := join
	joinAway.home = 1
	death := join
	death.death = true
	shared := wakeSetup{algorithm: central.New, n: 2, founders: 2, requests: 1, shares: 1, changes: 1}
	sharers := wakeSetup{algorithm: central.New, n: 3, founders: 3, requests: 1, shares: 1, changes: 1}
	twice := wakeSetup{algorithm: central.New, n: 3, founders: 3, modes: "rwr", changes: 2}
	twiceJoin := wakeSetup{algorithm: central.New, n: 3, founders: 2, modes: "-wr", changes: 2, home: 1}
	parts := two
	parts.partings = 1
	for _, tt := range []struct {
		name   string
		broken wakeRule
		setup  wakeSetup
	}{
		{"no-table", noTable, two},
		{"word-of-an-older-view", staleWord, joinAway},
		{"word-without-having-acted", idleWord, join},
		{"frozen-after-the-word", lateFreeze, two},
		{"holder-taken-for-fresh", holderFresh, joinAway},
		{"joiner-not-told", deafJoiner, join},
		{"union-dropped", noUnion, join},
		{"comer-overlooked", comersFree, joinAway},
		{"newcomer-believed", newcomerSays, join},
		{"acts-though-nobody-knows", unknownFree, join},
		{"reports-unheard", unheard, death},
		{"excluded-readers-taken-for-free", readersFree, shared},
		{"requests-to-share-wait-for-nobody", writersFree, shared},
		{"one-sharer-carried", oneSharer, sharers},
		{"excluded-readers-taken-for-free-twice", readersFree, twice},
		{"readers-taken-for-excluded", readersExcluded, twice},
		{"word-of-an-older-view-about-a-reader", staleWord, twiceJoin},
		{"one-sharer-carried-twice", oneSharer, twice},
		{"requests-after-the-last-word", goesOn, parts},
		{"last-word-without-what-is-lent", forgetsLent, parts},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.setup.changes > 1 {
				machinetest.Thorough(t)
			}
			tt.setup.broken = tt.broken
			_, err := exploreWake(tt.setup, 100_000)
			goldentest.Violation(t, "testdata/past-mutant-"+tt.name+".txt", err, nil)
		})
	}
}

// A last word counts for what it has not lent, and what it has lent only becomes less.
func TestLastWord(t *testing.T) {
	fresh := func(*membership.Word) uint64 { return 0 }
	x, y := membership.Loan{Lock: "x", Key: "one"}, membership.Loan{Lock: "y", Key: "two"}
	m := memory{earlier: &membership.Past{}, own: membership.Word{Node: 1, Epoch: 1, Members: []dmutex.NodeID{1, 2}}, met: []acquaintance{{node: 2, gone: 2}}}
	m.parts(3, &membership.Parting{})
	m.parts(2, &membership.Parting{Lent: []membership.Loan{x, y}})
	told := m.tell(1)
	m.frees(2, membership.Loan{Lock: "x", Key: "another"})
	m.frees(3, x)
	require.Equal(t, []membership.Loan{x, y}, m.tell(1).Former[0].Parting.Lent)
	m.frees(2, x)
	require.Equal(t, []membership.Loan{x, y}, told.Former[0].Parting.Lent, "what was told does not change")
	require.Equal(t, []membership.Loan{y}, m.tell(1).Former[0].Parting.Lent)

	m.recall([]*membership.Past{told, {Former: []membership.Former{{Node: 2, Epoch: 2}}}, m.tell(1)}, 2, 1)
	require.Zero(t, m.blind, "it is known what the former has")
	require.Empty(t, carryover.About(&m.past).Holders("x", false, 1, fresh), "one of them knows that it is free")
	require.Empty(t, carryover.About(&m.past).Holders("z", false, 1, fresh))
	require.Len(t, carryover.About(&m.past).Holders("y", false, 1, fresh), 1)
	require.False(t, carryover.About(&m.past).Refutes(2, y))
	require.True(t, carryover.About(&m.past).Refutes(2, membership.Loan{Lock: "y", Key: "one"}))
	require.True(t, carryover.About(&m.past).Refutes(2, x))
	require.False(t, carryover.About(&membership.Past{Former: []membership.Former{{Node: 4, Epoch: 2}}}).Refutes(4, x), "it has said no last word")
	m.past.Free(3, y)
	require.Len(t, carryover.About(&m.past).Holders("y", false, 1, fresh), 1, "another member has not lent it")
	acts := m.past.Apart()
	m.frees(2, y)
	require.Len(t, carryover.About(&acts).Holders("y", false, 1, fresh), 1, "the view that acts is told by itself")
	require.Empty(t, carryover.About(&m.past).Holders("y", false, 1, fresh))

	m.recall([]*membership.Past{{Former: []membership.Former{{Node: 2, Epoch: 2, Parting: &membership.Parting{}}}}}, 2, 1)
	require.Empty(t, m.past.Former, "it has nothing")
	require.Zero(t, m.blind)
	m.recall([]*membership.Past{{Former: []membership.Former{{Node: 2, Epoch: 2, Parting: &membership.Parting{Lent: []membership.Loan{y}}}}}}, 2, 1)
	require.Len(t, m.past.Former, 1, "no word is about it but its own")
	require.Zero(t, m.blind)
	m.met[0].parting = &membership.Parting{Lent: make([]membership.Loan, membership.MaxPast/48+1)}
	for i := range m.met[0].parting.Lent {
		m.met[0].parting.Lent[i].Key = "k"
	}
	require.Nil(t, m.tell(1).Former[0].Parting, "it is too long")
}

// A brief word is told to nobody, so it frees no lock. The whole one about the same view takes its place, also when a later
// view is complete in which nothing was done.
func TestBriefWord(t *testing.T) {
	var l ledger
	a, _, now := pair(t, &l)
	require.False(t, a.needsWord())
	word := membership.Word{Node: 1, Epoch: a.in.Complete.Epoch, Members: []dmutex.NodeID{1, 2}, Brief: true}
	a.in.Reported = false
	a.Report(now, nil, &word)
	gone := word.Epoch + 1
	a.met = []acquaintance{{node: 2, told: word.Epoch, gone: gone}}
	require.True(t, a.needsWord())
	told := a.tell(a.cleared)
	require.Empty(t, told.Words)
	a.recall([]*membership.Past{told}, gone, a.cleared)
	require.Equal(t, gone, a.blind, "the view waits for a lease")

	a.in.Complete.Epoch++
	a.in.Reported, word.Brief = false, false
	a.Report(now, nil, &word)
	require.Len(t, a.tell(a.cleared).Words, 1)
	a.cleared = gone
	require.False(t, a.needsWord())
}

// The past that a life tells is bounded: the life leaves out words, or tells nothing.
func TestPastBounds(t *testing.T) {
	m := memory{earlier: &membership.Past{}, own: membership.Word{Node: 1, Epoch: 1, Members: []dmutex.NodeID{1, 2}}, met: []acquaintance{{node: 2, told: 1, gone: 2}}}
	require.Equal(t, uint64(2), m.tell(1).Words[0].Of)
	require.Empty(t, m.tell(2).Former, "that is cleared")
	m.own.Differs = make([]membership.Differ, membership.MaxPast/32)
	for i := range m.own.Differs {
		m.own.Differs[i].Bits = 1
	}
	require.Len(t, m.tell(1).Words, 1, "they are about nobody that is gone")
	m.own.Differs[0].Bits = math.MaxUint64
	require.Len(t, m.tell(1).Words[0].Differs, 1)
	for i := range m.own.Differs {
		m.own.Differs[i].Bits = 2
	}
	require.Empty(t, m.tell(1).Words)
	require.Len(t, m.tell(1).Former, 1)
	for i := range membership.MaxFormer {
		m.met = append(m.met, acquaintance{node: dmutex.NodeID(i + 3), told: 2, gone: 2})
	}
	require.Nil(t, m.tell(1))
	two := []dmutex.NodeID{1, 2}
	require.Empty(t, (*membership.Past)(nil).Impossible(2))
	require.Empty(t, (&membership.Past{Words: []membership.Word{{Node: 2, Epoch: 1, Members: two}}}).Impossible(2))
	for _, p := range []membership.Past{
		{Former: make([]membership.Former, membership.MaxFormer+1)},
		{Words: slices.Repeat([]membership.Word{{Node: 1, Epoch: 1, Members: two}}, membership.MaxWords+1)},
		{Words: []membership.Word{{Node: 1, Epoch: 2, Members: two}}},
		{Former: []membership.Former{{Node: 1, Parting: &membership.Parting{Lent: []membership.Loan{{Lock: "b", Key: "k"}, {Lock: "a", Key: "k"}}}}}},
		{Words: []membership.Word{{Node: 3, Epoch: 1, Members: two}}},
		{Words: []membership.Word{{Epoch: 1}}},
		{Words: []membership.Word{{Node: 1, Epoch: 1, Members: []dmutex.NodeID{1, 1}}}},
		{Words: []membership.Word{{Node: 1, Epoch: 1, Members: []dmutex.NodeID{0, 1}}}},
	} {
		require.NotEmpty(t, p.Impossible(2), "%v", p)
	}
	big := membership.Word{Node: 1, Epoch: 1}
	for i := range dmutex.NodeID(membership.MaxMembers + 1) {
		big.Members = append(big.Members, i+1)
	}
	require.NotEmpty(t, (&membership.Past{Words: []membership.Word{big}}).Impossible(2))
}
