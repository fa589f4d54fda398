package canon_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/canon"
)

type id uint64

func TestTexts(t *testing.T) {
	b := canon.Number([]byte("1"), " a=", 7)
	b = canon.Number(b, " b=", 0)
	b = canon.Flag(canon.Flag(b, " c", true), " d", false)
	b = canon.List(canon.List(b, " e=", []id{3, 0, 4}), " f=", []id{})
	b = canon.Set(b, " g ", []id{5, 6, 7}, []bool{true, false, true})
	b = canon.Set(b, " h ", []id{5}, []bool{false})
	require.Equal(t, "1 a=7 c e=3,0,4 g 5,7", string(b))
}

func TestMembers(t *testing.T) {
	list := []id{3, 1, 2}
	members, place, err := canon.Members("Start.", list, 2)
	require.NoError(t, err)
	require.Equal(t, []id{1, 2, 3}, members)
	require.Equal(t, 1, place)
	require.Equal(t, []id{3, 1, 2}, list)
	for why, c := range map[string]struct {
		list []id
		self id
	}{
		"Start.Members contains 0, which names nobody: number nodes from 1": {[]id{1, 0}, 1},
		"Start.Members names a node twice":                                  {[]id{1, 2, 1}, 1},
		"Start.Self 4 is not among Start.Members":                           {[]id{1, 2}, 4},
	} {
		_, _, err := canon.Members("Start.", c.list, c.self)
		require.EqualError(t, err, why)
	}
}
