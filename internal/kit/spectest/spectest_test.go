package spectest

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// A counter of ours, and of a module that counts to 3.
type counter int

func (c counter) Text() string { return strconv.Itoa(int(c)) }
func (c counter) Spec() int    { return int(c) }

func TestCompare(t *testing.T) {
	module := Spec[int]{
		First: []int{0},
		Next: func(b []int, s int) []int {
			if s < 3 {
				b = append(b, s+1)
			}
			return b
		},
		Within: func(s *int) bool { return *s <= 9 },
	}
	count, _ := module.Explore()
	require.Equal(t, Count{Distinct: 4, Generated: 4, Depth: 4}, count)

	count1 := func(c counter, most int) (all []Step[int, counter]) {
		if int(c) < most {
			all = append(all, Step[int, counter]{Action: "Count", To: c + 1, Same: int(c) + 1, Enabled: c < 3})
		}
		return all
	}
	for _, c := range []struct {
		name  string
		steps func(counter) []Step[int, counter]
		said  string
	}{
		{"the same", func(c counter) []Step[int, counter] { return count1(c, 3) }, ""},
		{"more", func(c counter) []Step[int, counter] { return count1(c, 4) }, "Count: the module cannot do it in 3, which is\n3"},
		{"less", func(c counter) []Step[int, counter] { return count1(c, 2) }, "the module can do 1 things, and ours 0, in\n2"},
		{"something else", func(c counter) []Step[int, counter] {
			return []Step[int, counter]{{Action: "Count", To: c + 2, Same: int(c) + 1, Enabled: true}}
		}, "Count: ours leads to 2, the module's to 1, in\n0"},
		{"what the module does not have", func(c counter) []Step[int, counter] {
			return append(count1(c, 3), Step[int, counter]{Action: "Rest", To: c, Extra: true})
		}, ""},
		{"what changes the projection", func(c counter) []Step[int, counter] {
			return append(count1(c, 3), Step[int, counter]{Action: "Skip", To: c + 1, Extra: true})
		}, "Skip: ours leads to 1, the module's to 0, in\n0"},
	} {
		ours, theirs, err := Compare([]counter{0}, c.steps, module)
		if c.said != "" {
			require.EqualError(t, err, c.said, c.name)
			continue
		}
		require.NoError(t, err, c.name)
		require.Equal(t, []int{4, 4}, []int{ours, theirs}, c.name)
	}
	module.First = []int{0, 9}
	_, _, err := Compare([]counter{0}, func(c counter) []Step[int, counter] { return count1(c, 3) }, module)
	require.EqualError(t, err, "the module reaches 5 states, and ours 4 of them")
}
