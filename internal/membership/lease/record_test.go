package lease

import (
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/names"
	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/internal/recordtext"
)

func someRecord() Record {
	return Record{
		Epoch: 217315203, Unclean: 217315200, Unproved: 217314000, Cleared: 217315100, Highest: 4, Lease: 10 * second, Settings: "algorithm \"ricart\"\n",
		Members: []Entry{{membership.Member{Node: 2, Life: 77}, protocol.Spoken, "7XQAB", "10.0.0.2:7400", "web 1/7"}, {membership.Member{Node: 4, Life: math.MaxUint64}, protocol.Versions{Oldest: 1, Newest: 2}, "", "", ""}},
	}
}

// A record is text that a person can read, and comes back as it was.
func TestRecord(t *testing.T) {
	text, err := someRecord().MarshalText()
	require.NoError(t, err)
	require.Equal(t, `dmutex record 4
epoch 217315203
unclean 217315200
unproved 217314000
cleared 217315100
highest 4
lease 10000000000
settings "algorithm \"ricart\"\n"
member 2 77 1 1 7XQAB "10.0.0.2:7400" "web 1/7"
member 4 18446744073709551615 1 2  "" ""
`, string(text))
	var r Record
	require.NoError(t, r.UnmarshalText(text))
	require.Equal(t, someRecord(), r)
}

// A text that MarshalText does not write is refused, and changes nothing.
func TestRecordRefuses(t *testing.T) {
	text, err := someRecord().MarshalText()
	require.NoError(t, err)
	for name, change := range map[string]func(s string) string{
		"nothing":           func(string) string { return "" },
		"another version":   func(s string) string { return strings.Replace(s, "record 4", "record 5", 1) },
		"cut":               func(s string) string { return s[:len(s)-1] },
		"a line is missing": func(s string) string { return strings.Replace(s, "highest 4\n", "", 1) },
		"another line":      func(s string) string { return s + "\n" },
		"a space":           func(s string) string { return strings.Replace(s, "epoch ", "epoch  ", 1) },
		"a sign":            func(s string) string { return strings.Replace(s, "epoch ", "epoch +", 1) },
		"a zero before":     func(s string) string { return strings.Replace(s, "epoch ", "epoch 0", 1) },
		"carriage returns":  func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
		"too large":         func(s string) string { return strings.Replace(s, "epoch 217315203", "epoch 18446744073709551617", 1) },
		"beyond 42 bits":    func(s string) string { return strings.Replace(s, "epoch 217315203", "epoch 4398046511104", 1) },
		"no epoch":          func(s string) string { return strings.Replace(s, "epoch 217315203", "epoch 0", 1) },
		"unclean later":     func(s string) string { return strings.Replace(s, "unclean 2", "unclean 3", 1) },
		"unproved later":    func(s string) string { return strings.Replace(s, "unproved 217314000", "unproved 217315201", 1) },
		"no such name":      func(s string) string { return strings.Replace(s, "7XQAB", "7X_AB", 1) },
		"a long name":       func(s string) string { return strings.Replace(s, "7XQAB", strings.Repeat("7", 65), 1) },
		"no name to show":   func(s string) string { return strings.Replace(s, "web 1", `web\u202e1`, 1) },
		"a name of 2 lines": func(s string) string { return strings.Replace(s, "web 1", `web\n1`, 1) },
		"a name of 65":      func(s string) string { return strings.Replace(s, "web 1/7", strings.Repeat("w", 65), 1) },
		"no name at all":    func(s string) string { return strings.Replace(s, ` "web 1/7"`, "", 1) },
		"cleared later":     func(s string) string { return strings.Replace(s, "cleared 2", "cleared 3", 1) },
		"no lease":          func(s string) string { return strings.Replace(s, "lease 10000000000", "lease 0", 1) },
		"a lease below 0": func(s string) string {
			return strings.Replace(s, "lease 10000000000", "lease 18446744073709551615", 1)
		},
		"number not given": func(s string) string { return strings.Replace(s, "highest 4", "highest 3", 1) },
		"no number":        func(s string) string { return strings.Replace(s, "member 2", "member 0", 1) },
		"no life":          func(s string) string { return strings.Replace(s, " 77 ", " 0 ", 1) },
		"one number twice": func(s string) string { return strings.Replace(s, "member 2", "member 4", 1) },
		"one life twice":   func(s string) string { return strings.Replace(s, " 77 ", " 18446744073709551615 ", 1) },
		"raw quotes":       func(s string) string { return strings.ReplaceAll(s, `""`, "``") },
		"much":             func(s string) string { return s + strings.Repeat(" ", maxRecord) },
	} {
		var r Record
		require.ErrorIs(t, r.UnmarshalText([]byte(change(string(text)))), ErrRecord, name)
		require.Zero(t, r, name)
	}
	var r Record
	err = r.UnmarshalText([]byte(strings.Replace(string(text), "record 4", "record 3", 1)))
	require.ErrorIs(t, err, ErrRecord)
	require.ErrorContains(t, err, "stop all members, delete it, and start them again")
	_, err = Record{}.MarshalText()
	require.ErrorIs(t, err, ErrRecord)
}

// A text of nothing but short lines, which seem to be members, takes little memory.
func TestRecordOfShortLines(t *testing.T) {
	text := []byte(recordHeader + strings.Repeat("\n", maxRecord-len(recordHeader)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.ErrorIs(t, new(Record).UnmarshalText(text), ErrRecord)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20))
}

// A record has room for as many members as there can be, and no more.
func TestRecordIsBounded(t *testing.T) {
	r := Record{Epoch: 1, Lease: second}
	for n := range dmutex.NodeID(membership.MaxMembers) {
		r.Highest = n + 1
		r.Members = append(r.Members, Entry{membership.Member{Node: n + 1, Life: math.MaxUint64 - uint64(n)}, protocol.Spoken, strings.Repeat("X", recordtext.MaxLife), strings.Repeat("x", maxAddress), strings.Repeat("n", names.Max)})
	}
	text, err := r.MarshalText()
	require.NoError(t, err)
	require.NoError(t, new(Record).UnmarshalText(text))

	r.Members[0].Address = strings.Repeat("x", maxRecord)
	_, err = r.MarshalText()
	require.ErrorIs(t, err, ErrRecord)
	r.Highest++
	r.Members[0].Address = ""
	r.Members = append(r.Members, Entry{membership.Member{Node: r.Highest, Life: 7}, protocol.Spoken, "", "", ""})
	_, err = r.MarshalText()
	require.ErrorContains(t, err, "more than 64 members")
}

// A record that was read is written as it was.
func FuzzRecord(f *testing.F) {
	text, err := someRecord().MarshalText()
	require.NoError(f, err)
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		var r Record
		if r.UnmarshalText(text) != nil {
			require.Zero(t, r)
			return
		}
		again, err := r.MarshalText()
		require.NoError(t, err)
		require.Equal(t, string(text), string(again))
	})
}
