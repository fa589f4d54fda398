package group

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/wire"
)

// someReport returns a REPORT that uses every field of one.
func someReport() *membership.Message {
	m := &membership.Message{
		Kind: membership.Report, Cleared: 7, View: membership.View{Epoch: 9, Members: []membership.Member{{Node: 1, Life: 11}, {Node: 2, Life: 12}}},
		Past: &membership.Past{},
	}
	for k := range 3 {
		m.Holds = append(m.Holds, membership.Hold{Lock: fmt.Sprint("held ", k), Fence: uint64(k)})
		m.Past.Former = append(m.Past.Former, membership.Former{Node: dmutex.NodeID(k + 3), Epoch: 8, Name: "web"})
		word := membership.Word{Node: dmutex.NodeID(k + 1), Epoch: 5, Members: []dmutex.NodeID{1, 2, 3, 4, 5}, Of: 4}
		for n := range k * 5 {
			word.Differs = append(word.Differs, membership.Differ{Lock: fmt.Sprint("lock ", n), Bits: uint64(n)})
		}
		m.Past.Words = append(m.Past.Words, word)
	}
	return m
}

// share makes a report tell of shared locks.
func share(m *membership.Message) {
	m.Holds[2].Shared = true
	m.Past.Words[1].Alone = []membership.Differ{{Lock: "held 2", Bits: 6}}
}

// A REPORT with shared holds is read as it was written.
func TestSharedReport(t *testing.T) {
	want := someReport()
	share(want)
	got, err := readMessage(Parts(want, 1<<20)[0][1:], 2)
	require.NoError(t, err)
	require.Equal(t, *want, got)
	want.Past.Words[1].Alone = nil
	got, err = readMessage(Parts(want, 1<<20)[0][1:], 2)
	require.NoError(t, err)
	require.Equal(t, *want, got)
}

// A message is only read when it is written: others may read what it tells. The test needs -race.
func TestWritingOnlyReads(t *testing.T) {
	m := someReport()
	share(m)
	var writing sync.WaitGroup
	writing.Go(func() { Parts(m, 1000) })
	Parts(m, 1000)
	writing.Wait()
	m.Holds[2].Shared = false
	writing.Go(func() { Parts(m, 1000) })
	Parts(m, 1000)
	writing.Wait()
}

// A message is cut into as few parts as their size allows. Joined, the parts are the message again.
func TestParts(t *testing.T) {
	want := someReport()
	for size := 2; size < 600; size++ {
		parts := Parts(want, size)
		var whole []byte
		for i, part := range parts {
			require.LessOrEqual(t, len(part), size)
			require.Equal(t, i == len(parts)-1, part[0] == saysLast)
			whole = append(whole, part[1:]...)
		}
		got, err := readMessage(whole, 2)
		require.NoError(t, err)
		require.Equal(t, *want, got)
		require.Len(t, parts, (len(whole)+size-2)/(size-1))
	}
}

// A long message comes in several. Each is read fast, and joined they are the same.
func TestLongReport(t *testing.T) {
	for _, count := range []int{0, 1, 1000, 10_000} {
		want := someReport()
		share(want)
		for i := range count {
			want.Holds = append(want.Holds, membership.Hold{Lock: fmt.Sprint("held by many ", i), Fence: uint64(i), Shared: i%7 == 0})
			for k := range want.Past.Words {
				w := &want.Past.Words[k]
				w.Differs = append(w.Differs, membership.Differ{Lock: fmt.Sprint("known by many ", i), Bits: uint64(i)})
				if k != 1 {
					w.Alone = append(w.Alone, membership.Differ{Lock: fmt.Sprint("shared by many ", i), Bits: uint64(i)})
				}
			}
		}
		told := *want.Past
		sent := *want
		sent.Past = &told
		var all []membership.Message
		var part []byte
		for _, b := range Parts(&sent, 1000) {
			part = append(part, b[1:]...)
			if b[0] == saysMore {
				continue
			}
			require.Less(t, len(part), 2*atOnce)
			m, err := readMessage(part, 2)
			require.NoError(t, err)
			all, part = append(all, m), nil
		}
		got := join(all)
		byName := func(a, b membership.Hold) int { return cmp.Compare(a.Lock, b.Lock) }
		slices.SortFunc(got.Holds, byName)
		slices.SortFunc(want.Holds, byName)
		require.Equal(t, *want, got)
	}
}

// No message of a peer crashes a node. A message that can be read has only one encoding.
func FuzzMessage(f *testing.F) {
	whole := Parts(someReport(), 1<<20)[0][1:]
	f.Add(whole)
	f.Add(whole[:100])
	shared := someReport()
	share(shared)
	f.Add(Parts(shared, 1<<20)[0][1:])
	f.Add(Parts(&membership.Message{Kind: membership.Prepare, Round: 7}, 1<<20)[0][1:])
	f.Fuzz(func(t *testing.T, message []byte) {
		m, err := readMessage(message, membership.MaxMembers)
		if err != nil {
			return
		}
		require.Equal(t, append([]byte{saysLast}, message...), Parts(&m, len(message)+2)[0])
	})
}

// The length that a list announces is not trusted: memory grows with what is read.
func TestLongListsOfNothing(t *testing.T) {
	m := someReport()
	m.Past = nil
	whole := Parts(m, 1<<20)[0][1:]
	many := 1 << 20
	head := len(whole) - 1 - 3*(len("held 0")+2) // where the holds begin, after the byte with their number
	hostile := append(whole[:head-1:head-1], 0xdd, 0, byte(many>>16), byte(many>>8), byte(many), 0xc0)
	hostile = append(hostile, make([]byte, many)...)
	got, err := readMessage(hostile, 2)
	require.ErrorIs(t, err, dmutex.ErrPeer)
	require.LessOrEqual(t, len(got.Holds), 1)
}

// A name that cannot be shown is refused, because logs and pages show the names of peers.
func TestNameIsRefused(t *testing.T) {
	for _, name := range []string{"", "two\nlines", "\x1b[31m", "\u202eleft", "\xff", strings.Repeat("n", 65)} {
		message := wire.Write(nil, func(f *wire.Fields) { nameFields(f, &name) })
		require.ErrorIs(t, wire.Read(message, func(f *wire.Fields) { nameFields(f, new(string)) }), dmutex.ErrPeer, "%q", name)
	}
}
