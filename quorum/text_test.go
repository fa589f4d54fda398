package quorum

import (
	"encoding"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
)

var (
	_ encoding.TextMarshaler   = Coterie[int]{}
	_ encoding.TextAppender    = Coterie[int]{}
	_ encoding.TextUnmarshaler = (*Coterie[int])(nil)
)

type (
	nodeID  uint64 // has String, as ids have
	version string // has both texts
	bare    int32  // has nothing
)

func (id nodeID) String() string { return "n" + string(rune('0'+id)) }

func (v version) MarshalText() ([]byte, error) { return []byte("v" + string(v)), nil }

func (v *version) UnmarshalText(text []byte) error {
	if len(text) < 2 || text[0] != 'v' {
		return errors.New("no version")
	}
	*v = version(text[1:])
	return nil
}

func TestText(t *testing.T) {
	for _, c := range []struct{ text, canonical string }{
		{"{1}", "{1}"},
		{" { 2 , 1 }\n{3,1}\t{ 2,3 } ", "{1,2},{1,3},{2,3}"},
		{"{1,2},{1,3},{2,3}", "{1,2},{1,3},{2,3}"},
		{"{a,\"b c\"},{a,\"\"},{\"\",\"b c\"}", "{\"\",a},{\"\",\"b c\"},{a,\"b c\"}"},
		{`{"\"","{,}"}`, `{"\"","{,}"}`},
		{"{ä,日本}", "{ä,日本}"},
	} {
		var s Coterie[string]
		require.NoError(t, s.UnmarshalText([]byte(c.text)), c.text)
		text, err := s.MarshalText()
		require.NoError(t, err)
		require.Equal(t, c.canonical, string(text))
		require.Equal(t, c.canonical, s.String())
	}
}

func TestTextRefused(t *testing.T) {
	for _, c := range []struct {
		text string
		kind error
		says string
	}{
		{"", ErrEmpty, "no quorum is given"},
		{"{}", ErrEmpty, "has no site"},
		{"{1},{2}", ErrIntersection, "{1} and quorum 1 {2}"},
		{"{1},{1,2}", ErrMinimality, "contained"},
		{"1,2", ErrSite, "expected { at byte 0; write {a,b},{a,c}"},
		{"{1,2", ErrSite, "expected , or } at byte 4"},
		{"{1 2}", ErrSite, "expected , or } at byte 3"},
		{"{1,}", ErrSite, "expected a site at byte 3"},
		{",{1}", ErrSite, "expected { at byte 0"},
		{"{1}\x00", ErrSite, "expected {"},
		{"{\"1}", ErrSite, "closing quotation mark"},
		{"{x}", ErrSite, `"x" cannot be read`},
		{"{99999999999999999999}", ErrSite, "out of range"},
	} {
		was := must(Singleton(7))
		s := was
		err := s.UnmarshalText([]byte(c.text))
		require.ErrorIs(t, err, c.kind, c.text)
		require.ErrorContains(t, err, c.says, c.text)
		require.Equal(t, was, s, "refused, so unchanged")
	}
}

// Sites of every predeclared type write and read themselves; other types as far
// as their methods go.
func TestTextOfTypes(t *testing.T) {
	roundTrip(t, int(-1), 2)
	roundTrip(t, int8(-1), 2)
	roundTrip(t, int16(-1), 2)
	roundTrip(t, int32(-1), 2)
	roundTrip(t, int64(-1), 2)
	roundTrip(t, uint(1), 2)
	roundTrip(t, uint8(1), 2)
	roundTrip(t, uint16(1), 2)
	roundTrip(t, uint32(1), 2)
	roundTrip(t, uint64(1), 2)
	roundTrip(t, uintptr(1), 2)
	roundTrip(t, float32(-1.5), 2)
	roundTrip(t, float64(1e-300), 2)
	roundTrip(t, "a", "b")
	roundTrip(t, version("1"), "2")

	named := must(Majority[nodeID](1, 2, 3))
	require.Equal(t, "{n1,n2},{n1,n3},{n2,n3}", named.String())
	require.ErrorIs(t, named.UnmarshalText([]byte("{n1}")), ErrSite)

	silent := must(Majority[bare](1, 2, 3))
	require.Equal(t, "3 quorums", silent.String())
	_, err := silent.MarshalText()
	require.ErrorIs(t, err, ErrSite)
	require.ErrorContains(t, err, "MarshalText, or use Slices")
	require.ErrorContains(t, silent.UnmarshalText([]byte("{1}")), "UnmarshalText, or use New")
	_, err = New([]bare{1}, []bare{2})
	require.EqualError(t, err, "quorum: intersection: quorum 0 and quorum 1 share no site; add one site to both")

	var v Coterie[version]
	require.ErrorContains(t, v.UnmarshalText([]byte("{x1}")), "no version")
}

func roundTrip[T interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64 | ~string
}](t *testing.T, sites ...T) {
	t.Helper()
	c := must(New(sites))
	text, err := c.MarshalText()
	require.NoError(t, err)
	var again Coterie[T]
	require.NoError(t, again.UnmarshalText(text), "%s", text)
	require.Equal(t, quorumsOf(t, c), quorumsOf(t, again))
}

// A coterie within a value survives JSON and msgpack, and the plain form does so
// for any type of site.
func TestEncoders(t *testing.T) {
	type config struct {
		Group   string
		Coterie Coterie[string]
		Plain   [][]bare
	}
	plain, err := must(Majority[bare](1, 2, 3)).Slices()
	require.NoError(t, err)
	was := config{"g", must(Wheel("hub", "x", "y")), plain}

	text, err := json.Marshal(was)
	require.NoError(t, err)
	require.JSONEq(t, `{"Group":"g","Coterie":"{hub,x},{hub,y},{x,y}","Plain":[[1,2],[1,3],[2,3]]}`, string(text))
	var is config
	require.NoError(t, json.Unmarshal(text, &is))
	require.Equal(t, quorumsOf(t, was.Coterie), quorumsOf(t, is.Coterie))
	require.Equal(t, quorumsOf(t, must(Majority[bare](1, 2, 3))), quorumsOf(t, must(New(is.Plain...))))

	packed, err := msgpack.Marshal(was)
	require.NoError(t, err)
	is = config{}
	require.NoError(t, msgpack.Unmarshal(packed, &is))
	require.Equal(t, quorumsOf(t, was.Coterie), quorumsOf(t, is.Coterie))
	require.Equal(t, was.Plain, is.Plain)

	_, err = json.Marshal(config{})
	require.ErrorIs(t, err, ErrEmpty)
}

func TestStringOfMany(t *testing.T) {
	require.Contains(t, must(Majority(ints(9)...)).String(), "},... (126 quorums)")
	require.Contains(t, must(Majority(ints(99)...)).String(), "(more quorums than an int can count)")
}
