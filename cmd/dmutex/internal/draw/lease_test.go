package draw_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/draw"
)

// With a store, each line is a process, from its join to its end. A member that crashed may hold
// its lock until its lease ends, and the next holder waits for that.
func TestFailover(t *testing.T) {
	d := drawn(t, figure(t, "failover", 4), draw.Options{Width: 5000})
	svg := string(d.SVG())
	wellFormed(t, d.SVG())
	for _, label := range []string{"view 3: N1 N2 N3", "view 4: N1 N3, N2 excluded", "view 5: N1 N3 N4", "view 6: N3 N4, without N1", "crashed", "its lease has ended", "closed"} {
		require.Equal(t, 1, strings.Count(svg, ">"+label+"</text>"), label)
	}
	require.Equal(t, 3, strings.Count(svg, " joins</text>"), "the first was there from the beginning")
	require.Equal(t, 1, strings.Count(svg, ">web-4 joins</text>"))
	for _, picture := range []string{svg, string(d.HTML())} {
		require.Contains(t, picture, ">N1<title>web-1</title></text>")
	}
	require.Equal(t, 2, strings.Count(svg, ">N2 is silent</text>"))
	require.NotContains(t, svg, `stroke-dasharray="1 5"`, "no number is used again")
	require.Regexp(t, `node 2 holds the lock with fence 3:1, from 2.7467 s to 3.1613 s</title>`, svg)
	require.Regexp(t, `node 2 may still hold the lock with fence 3:1 by its lease, from 3.1613 s to 5.0363 s</title>`, svg)
	require.Regexp(t, `node 3 waits until the lease of N2 has ended, from 4.1930 s to 6.2149 s</title>`, svg)
	require.Regexp(t, `node 3 holds the lock with fence 4:1, from `, svg)
	require.Contains(t, svg, "has crashed, and its lease runs")
}

// A process that crashed may still hold its lock until its lease has ended, no matter which locks it
// has released before.
func TestCrashAfterRelease(t *testing.T) {
	dead := `{"dmutex":"trace","version":5,"algorithm":"central 1 idle coordinator=1","life":9,"opened":1700000001000000000}
{"t":0,"do":"lease","n":1000000000}
{"t":1000000,"do":"view","peer":1,"life":9,"n":1,"members":[1,2]}
{"t":2000000,"do":"ready","n":1}
{"t":3000000,"do":"born","lock":"a","limit":8388607,"home":1,"fence":4194304,"phase":"idle"}
{"t":3000000,"do":"request","lock":"a","fence":4194305,"phase":"held"}
{"t":3000000,"do":"born","lock":"b","limit":8388607,"home":1,"fence":4194304,"phase":"idle"}
{"t":3000000,"do":"request","lock":"b","fence":4194305,"phase":"held"}
{"t":4000000,"do":"release","lock":"a","phase":"idle"}
`
	other := `{"dmutex":"trace","version":5,"algorithm":"central 1 idle coordinator=1","life":12,"opened":1700000001000000000}
{"t":1000000,"do":"view","peer":2,"life":12,"n":1,"members":[1,2]}
{"t":2000000000,"do":"excluded","peer":1}
`
	for range 30 { // the result once depended on the order of a map
		svg := string(drawn(t, read(t, dead, other), draw.Options{Lock: "b"}).SVG())
		require.Contains(t, svg, "node 1 may still hold the lock with fence 1:1 by its lease, from 4.00 ms to 1.0000 s</title>")
	}
}

// cutOff is a process that was cut off: it holds the lock, gets it again after the end of its
// lease, is excluded, and joins again.
const cutOff = `{"dmutex":"trace","version":5,"algorithm":"central 1 idle coordinator=1","life":9,"opened":1700000001000000000}
{"t":0,"do":"lease","n":1000000000}
{"t":1000000,"do":"view","peer":1,"life":9,"n":1,"members":[1,2]}
{"t":2000000,"do":"ready","n":1}
{"t":3000000,"do":"born","lock":"x","limit":8388607,"home":1,"fence":4194304,"phase":"idle"}
{"t":3000000,"do":"request","lock":"x","fence":4194305,"phase":"held"}
{"t":500000000,"do":"lease","n":1000000000}
{"t":1600000000,"do":"handle","lock":"x","fence":4194305,"in":{"kind":"REQUEST","seq":3,"from":2,"attempt":1,"fence":4194304},"phase":"held"}
{"t":1700000000,"do":"release","lock":"x","phase":"idle"}
{"t":1700000001,"do":"request","lock":"x","fence":4194306,"phase":"held"}
{"t":1700000002,"do":"release","lock":"x","phase":"idle"}
{"t":2000000000,"do":"forget","lock":"x"}
{"t":2000000000,"do":"excluded","peer":1}
{"t":3000000000,"do":"lease","n":1000000000}
{"t":3000000000,"do":"view","peer":3,"life":12,"n":5,"members":[2,3]}
{"t":3100000000,"do":"ready","n":5}
{"t":3100000000,"do":"born","lock":"x","limit":25165823,"home":3,"fence":20971520,"phase":"idle"}
{"t":3100000000,"do":"request","lock":"x","fence":20971521,"phase":"held"}
{"t":3200000000,"do":"close"}
`

// A hold ends with the lease, even if the process learns that later. Until it joins again, later
// grants are no holds. After an exclusion, the process continues in another line.
func TestCutOff(t *testing.T) {
	d := drawn(t, read(t, cutOff), draw.Options{})
	svg := string(d.SVG())
	require.Equal(t, 1, strings.Count(svg, "node 1 holds the lock"))
	require.Contains(t, svg, "node 1 holds the lock with fence 1:1, from 3.00 ms to 1.5000 s</title>")
	require.Contains(t, svg, "node 3 holds the lock with fence 5:1, from 3.1000 s to 3.2000 s</title>")
	for _, label := range []string{"its lease has ended", "excluded", "joins again; was N1"} {
		require.Equal(t, 1, strings.Count(svg, ">"+label+"</text>"), label)
	}

	// A gap may hide the exclusion.
	gap := strings.Replace(cutOff, `"do":"excluded","peer":1}`, `"do":"gap","n":1}`, 1)
	require.Contains(t, string(drawn(t, read(t, gap), draw.Options{}).SVG()), ">joins again; was N1</text>")
}

// The labels leave out the digits that all epochs of a picture share; the titles have them.
func TestLongEpochs(t *testing.T) {
	svg := string(drawn(t, read(t, `{"dmutex":"trace","version":5,"life":9,"opened":1700000001000000000}
{"t":0,"do":"view","peer":1,"life":9,"n":217566036596,"members":[1]}
{"t":1,"do":"request","lock":"x","fence":912538097911070721,"phase":"held"}
{"t":2,"do":"view","peer":1,"life":9,"n":217566039897,"members":[1]}
`), draw.Options{}).SVG())
	require.Contains(t, svg, ">view …6596: N1</text>")
	require.Contains(t, svg, "<title>view 217566039897 of N1; ")
	require.Contains(t, svg, ">fence …6680:1</text>")
	require.Contains(t, svg, "holds the lock with fence 217566036680:1, ")
}
