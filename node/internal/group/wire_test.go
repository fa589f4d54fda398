package group

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
)

// someReport is a REPORT with everything that there may be in one.
func someReport() *membership.Message {
	m := &membership.Message{
		Kind: membership.Report, Cleared: 7, View: membership.View{Epoch: 9, Members: []membership.Member{{Node: 1, Life: 11}, {Node: 2, Life: 12}}},
		Past: &membership.Past{},
	}
	for k := range 3 {
		m.Holds = append(m.Holds, membership.Hold{Lock: fmt.Sprint("held ", k), Fence: uint64(k)})
		m.Past.Former = append(m.Past.Former, membership.Former{Node: dmutex.NodeID(k + 3), Epoch: 8})
		word := membership.Word{Node: dmutex.NodeID(k + 1), Epoch: 5, Members: []dmutex.NodeID{1, 2, 3, 4, 5}, Of: 4}
		for n := range k * 5 {
			word.Differs = append(word.Differs, membership.Differ{Lock: fmt.Sprint("lock ", n), Bits: uint64(n)})
		}
		m.Past.Words = append(m.Past.Words, word)
	}
	return m
}

// A REPORT comes in as many parts as its frames need, and is one again, cut anywhere.
func TestReportParts(t *testing.T) {
	var most, least int
	for size := 100; size < 600; size += 7 {
		m, parts := someReport(), 0
		var got membership.Message
		for rest := LinesOf(m); parts == 0 || len(rest) > 0; parts++ {
			var part []byte
			part, rest = AppendMessage(nil, m, rest, size)
			require.LessOrEqual(t, len(part), size)
			read, more, err := readMessage(part, 2)
			require.NoError(t, err)
			require.Equal(t, len(rest) > 0, more)
			if parts == 0 {
				got = read
				continue
			}
			got.Holds = append(got.Holds, read.Holds...)
			got.Past.Join(read.Past)
		}
		require.Equal(t, *m, got)
		most, least = max(most, parts), parts
	}
	require.Greater(t, most, 2)
	require.Equal(t, 1, least)
}

// Whatever a peer sends is read into no more memory than a small multiple of its size, or
// refused.
func FuzzMessage(f *testing.F) {
	m := someReport()
	whole, _ := AppendMessage(nil, m, LinesOf(m), 1<<20)
	f.Add(whole)
	part, rest := AppendMessage(nil, m, LinesOf(m), 120)
	f.Add(part)
	part, _ = AppendMessage(nil, m, rest[10:], 120)
	f.Add(part)
	f.Fuzz(func(t *testing.T, message []byte) {
		m, more, err := readMessage(message, membership.MaxMembers)
		if err != nil {
			return
		}
		again, rest := AppendMessage(nil, &m, LinesOf(&m), len(message)+1<<20)
		require.Empty(t, rest)
		if !more {
			require.Equal(t, message, again)
		}
	})
}
