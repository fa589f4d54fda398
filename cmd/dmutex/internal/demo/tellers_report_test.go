package demo

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
)

// sample is a result with every kind of row, and large numbers.
func sample() result {
	times := func(p50, p99 time.Duration) *quantiles { return &quantiles{1000, p50, p99} }
	row := func(a catalog.Algorithm, sent uint64, entries int) outcome {
		m := &messages{Messages: a.Count(5, sent, entries)}
		return outcome{
			Algorithm: a.Name, About: a.About, Locked: true, OK: true,
			evidence: evidence{Entries: 1000, Expected: 100000, Actual: 100000}, Messages: m,
			Acquire: times(6020*time.Microsecond, 1250*time.Millisecond), HandOff: times(103*time.Microsecond, 278*time.Millisecond),
		}
	}
	central, _ := catalog.Find("central")
	kasami, _ := catalog.Find("suzukikasami")
	r := result{Link: "tcp", Nodes: 5, Deposits: 200, Think: time.Millisecond, Runs: []outcome{
		{Algorithm: catalog.NoLock.Name, About: catalog.NoLock.About, OK: true, evidence: evidence{Entries: 1000, Expected: 100000, Actual: 21900, Overlaps: 817}},
		row(central, 2400, 800),
		row(kasami, 4990, 1000),
		row(catalog.Broken, 7956, 1000),
	}}
	wrong := &r.Runs[3]
	wrong.OK, wrong.Actual, wrong.Overlaps, wrong.FenceErrors, wrong.HandOff = false, 80100, 117, 99, nil
	wrong.Faults = wrong.faults()
	return r
}

func TestTable(t *testing.T) {
	r := sample()
	r.judge(nil)
	require.False(t, r.OK)
	var b strings.Builder
	r.writeText(&b)
	require.Equal(t, `
5 tellers, each a process of its own, make 200 deposits of 1.00 each into one account, over TCP.

                   balance         violations     messages/entry       acquire       hand-off
algorithm     expected   actual  overlap  fence  measured  formula     p50    p99    p50    p99
------------  -----------------  --------------  -----------------  -------------  ------------
no lock        1000.00   219.00      817      -         -        -       -      -      -      -
central        1000.00  1000.00        0      0         3        3  6.02ms  1.25s  103µs  278ms
suzukikasami   1000.00  1000.00        0      0     4.990     0..5  6.02ms  1.25s  103µs  278ms
broken         1000.00   801.00      117     99     7.956        8  6.02ms  1.25s      -      -

overlap   deposits that found another teller inside the critical section, by a marker file
fence     deposits whose fencing number was not above all earlier ones
hand-off  from a release to the next entry, if that teller was waiting already

algorithm     messages/entry, N = 5
no lock                       all enter at once
central       3               one node grants, first come, first served; its own entries are free
suzukikasami  0..N            Suzuki and Kasami 1985: ask all for the token, enter with it
broken        2(N-1)          Ricart and Agrawala on N-2 replies: wrong on purpose

With no lock, 781.00 of 1000.00 was lost. The machine that is wrong on purpose was caught: the
account has 801.00 instead of 1000.00; 117 of 1000 deposits found another teller inside; 99
fences had not risen; 7956 messages for 1000 entries, where 2(N-1) says 8 an entry. Under
central, suzukikasami not a cent was lost, no two tellers met inside, every fence rose, and the
messages were as many as the formula says.
`, b.String())
}

func TestKillTable(t *testing.T) {
	r := result{Link: "nats", Nodes: 5, KillRuns: []killOutcome{
		{
			Algorithm: "central", OK: true, evidence: evidence{Entries: 5024, Expected: 502400, Actual: 502400},
			Killed: 7, Inside: 2, Closed: 1, Servers: 1, Views: 5, Longest: 3120 * time.Microsecond, Back: 341 * time.Millisecond,
		},
		{
			Algorithm: "suzukikasami", evidence: evidence{Entries: 9, Expected: 900, Actual: 800, Overlaps: 1, FenceErrors: 1},
			Killed: 1, Views: 1, Longest: 1200 * time.Millisecond, Back: 2 * time.Second,
		},
	}}
	wrong := &r.KillRuns[1]
	wrong.Faults = wrong.faults()
	require.False(t, r.judge(nil))
	var b strings.Builder
	r.writeText(&b)
	require.Equal(t, `
5 tellers make deposits over NATS, while they are killed and started again.

                   balance         violations           tellers           view changes
algorithm     expected   actual  overlap  fence  killed  inside  closed  number  longest  all back
------------  -----------------  --------------  ----------------------  ---------------  --------
central        5024.00  5024.00        0      0       7       2       1       5   3.12ms     341ms
suzukikasami      9.00     8.00        1      1       1       0       0       1     1.2s        2s

expected  what the lines of the account are worth, one for each deposit
killed    with SIGKILL, and started again; inside: of these, in the critical section
closed    tellers that left and were started again
longest   time for which a view change kept a teller from the lock
all back  longest time from such an event until every teller had made a deposit again, with the
          start of the process

FAILED under suzukikasami: the account has 8.00 instead of 9.00; 1 of 9 deposits found another
teller inside; 1 fences had not risen. Tellers were killed 8 times and closed once, and the NATS
server was stopped once. Under central not a cent was lost, no two tellers met inside, and every
fence rose.
`, b.String())
	for line := range strings.Lines(b.String()) {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 101, line)
	}
}

func TestCrashTable(t *testing.T) {
	r := result{Link: "tcp", Nodes: 5, Lease: 2 * time.Second, Store: "remote", KillRuns: []killOutcome{
		{
			Algorithm: "central", OK: true, evidence: evidence{Entries: 5024, Expected: 502400, Actual: 502400},
			Killed: 3, Inside: 2, Joined: 3, Views: 7, Crashes: []crash{
				{Held: true, Free: 12 * time.Millisecond, Holder: 2120 * time.Millisecond, Home: 2 * time.Second},
				{Free: 34 * time.Millisecond, Home: 2050 * time.Millisecond},
				{Held: true, Free: 7 * time.Millisecond, Holder: 2090 * time.Millisecond},
			},
		},
		{
			Algorithm: "suzukikasami", evidence: evidence{Entries: 9, Expected: 900, Actual: 800, Overlaps: 1, FenceErrors: 1},
			Killed: 1, Joined: 1, Views: 1, Crashes: []crash{{Free: 5 * time.Millisecond}},
		},
	}}
	wrong := &r.KillRuns[1]
	wrong.Faults = wrong.faults()
	require.False(t, r.judge(nil))
	var b strings.Builder
	r.writeText(&b)
	require.Equal(t, `
5 tellers make deposits over TCP, lease 2s, --store=remote, while they are killed for good and
new ones join.

                   balance         violations       killed          longest wait
algorithm     expected   actual  overlap  fence  idle  holding  free   held  at home  views
------------  -----------------  --------------  -------------  --------------------  -----
central        5024.00  5024.00        0      0     1        2  34ms  2.12s    2.05s      7
suzukikasami      9.00     8.00        1      1     1        0   5ms      -        -      1

expected  what the lines of the account are worth, one for each deposit
holding   killed while they held the lock of the account; idle: while they held none
free      longest wait of the others, up to the next kill, for a lock that the dead neither held
          nor was the home of
held      for the one that it held; at home: for those at home with it
views     view changes of the group

FAILED under suzukikasami: the account has 8.00 instead of 9.00; 1 of 9 deposits found another
teller inside; 1 fences had not risen. Tellers were killed for good 4 times, and new ones joined
4 times. Under central not a cent was lost, no two tellers met inside, and every fence rose.
`, b.String())
	for line := range strings.Lines(b.String()) {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 101, line)
	}
}

// The longest lines fit a terminal of 100 columns.
func TestTableWidth(t *testing.T) {
	r := sample()
	for _, a := range catalog.All {
		r.Runs = append(r.Runs, outcome{Algorithm: a.Name, About: a.About})
	}
	var b strings.Builder
	r.writeText(&b)
	for line := range strings.Lines(b.String()) {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 101, line)
	}
}

func TestClosing(t *testing.T) {
	r := sample()
	r.Runs[1].Faults, r.Runs[1].OK = []string{"the till is empty"}, false
	require.Contains(t, r.closing(), "FAILED under central: the till is empty.")

	r.Runs = sample().Runs[3:]
	r.Runs[0].OK = true
	require.Equal(t, "The machine that is wrong on purpose was not caught this time.", r.closing())

	r.Runs = nil
	for _, a := range catalog.All {
		r.Runs = append(r.Runs, outcome{Algorithm: a.Name, Locked: true, OK: true})
	}
	require.Contains(t, r.closing(), fmt.Sprintf("Under all %d algorithms not a cent was lost", len(catalog.All)))
}

// An incomplete demo shows the completed runs, and counts as failed.
func TestTableIncomplete(t *testing.T) {
	r := sample()
	r.Runs = r.Runs[:2]
	r.judge(errors.New("teller 3 died"))
	require.False(t, r.OK)
	var b strings.Builder
	r.writeText(&b)
	require.Contains(t, b.String(), "central")

	r.Runs = nil
	r.writeText(io.Discard)
}

func TestBrief(t *testing.T) {
	for d, text := range map[time.Duration]string{
		0:                        "0s",
		999 * time.Microsecond:   "999µs",
		time.Millisecond:         "1ms",
		9994 * time.Microsecond:  "9.99ms",
		10 * time.Millisecond:    "10ms",
		999 * time.Millisecond:   "999ms",
		12345 * time.Millisecond: "12.3s",
	} {
		require.Equal(t, text, brief(d))
	}
}
