package quorum

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type (
	nodeID uint64 // has String, as ids have
	bare   int32  // has no String
)

func (id nodeID) String() string { return "n" + string(rune('0'+id)) }

func TestText(t *testing.T) {
	for _, c := range []struct {
		quorums [][]string
		text    string
	}{
		{[][]string{{"1"}}, "{1}"},
		{[][]string{{"2", "1"}, {"3", "1"}, {"2", "3"}}, "{1,2},{1,3},{2,3}"},
		{[][]string{{"a", "b c"}, {"a", ""}, {"", "b c"}}, `{"",a},{"","b c"},{a,"b c"}`},
		{[][]string{{`"`, "{,}"}}, `{"\"","{,}"}`},
		{[][]string{{"ä", "日本"}}, "{ä,日本}"},
	} {
		require.Equal(t, c.text, must(New(c.quorums...)).String())
	}
}

// Sites of the usual types have a text, and so have others with a method String.
func TestTextOfTypes(t *testing.T) {
	require.Equal(t, "{-1,2}", must(New([]int{-1, 2})).String())
	require.Equal(t, "{-1,2}", must(New([]int64{-1, 2})).String())
	require.Equal(t, "{1,2}", must(New([]uint64{1, 2})).String())
	require.Equal(t, "{n1,n2},{n1,n3},{n2,n3}", must(Majority[nodeID](1, 2, 3)).String())

	require.Equal(t, "3 quorums", must(Majority[bare](1, 2, 3)).String())
	_, err := New([]bare{1}, []bare{2})
	require.EqualError(t, err, "quorum: intersection: quorum 0 and quorum 1 share no site; add one site to both")
}

// The quorums of a coterie survive JSON with any type of site.
func TestJSON(t *testing.T) {
	plain := quorumsOf(t, must(Majority[bare](1, 2, 3)))
	text, err := json.Marshal(plain)
	require.NoError(t, err)
	require.Equal(t, "[[1,2],[1,3],[2,3]]", string(text))
	var again [][]bare
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, plain, quorumsOf(t, must(New(again...))))
}

func TestStringOfMany(t *testing.T) {
	require.Contains(t, must(Majority(ints(9)...)).String(), "},... (126 quorums)")
	require.Contains(t, must(Majority(ints(99)...)).String(), "(more quorums than an int can count)")
	require.Equal(t, shown, strings.Count(must(Majority(ints(9)...)).String(), "{"))
}
