package maekawa

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

// Rows and columns meet, for every size of group, however short the last row.
func TestRowAndColumn(t *testing.T) {
	for n := 1; n <= 100; n++ {
		members := dmutextest.Nodes(n)
		quorums := make([][]dmutex.NodeID, n)
		root := 1
		for root*root < n {
			root++
		}
		for i, site := range members {
			quorums[i] = rowAndColumn(members, site)
			require.Contains(t, quorums[i], site)
			require.LessOrEqual(t, len(quorums[i]), 2*root-1)
			for _, other := range quorums[:i] {
				require.True(t, slices.ContainsFunc(other, func(k dmutex.NodeID) bool {
					return slices.Contains(quorums[i], k)
				}), "%v and %v of %d", other, quorums[i], n)
			}
		}
	}
	require.Equal(t, []dmutex.NodeID{10, 40, 50, 60, 70},
		rowAndColumn([]dmutex.NodeID{10, 20, 30, 40, 50, 60, 70}, 40))
}

// LESSONS L60: quorums that need not meet are refused.
func TestWithRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		quorums rows
		self    dmutex.NodeID
		why     string // none: it is accepted
	}{
		{"lawful", rows{{1, 2}, {2, 3}, {3, 1}}, 1, ""},
		{"a member twice", rows{{2, 1, 2}, {2, 2}, {2}}, 1, ""},
		{"one for all", rows{{3}, {3}, {3}}, 1, ""},
		{"disjoint from ours", rows{{1, 2}, {2, 3}, {3}}, 1, "the quorums of nodes 1 and 3 share no node"},
		{"disjoint from theirs", rows{{1, 2}, {2, 3}, {3}}, 3, "the quorums of nodes 3 and 1 share no node"},
		{"our own is empty", rows{{}, {2}, {2}}, 1, "the quorum of node 1 is empty"},
		{"another's is empty", rows{{1}, {1}, nil}, 1, "the quorum of node 3 is empty"},
		{"ours has a stranger", rows{{1, 4}, {1}, {1}}, 1, "the quorum of node 1 contains 4, which is not among Start.Members"},
		{"another's has a stranger", rows{{1}, {1, 0}, {1}}, 1, "the quorum of node 2 contains 0, which is not among Start.Members"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := With(c.quorums.of)(dmutex.Start{Self: c.self, Members: dmutextest.Nodes(3)})
			if c.why == "" {
				require.NoError(t, err)
				return
			}
			require.Nil(t, m)
			require.ErrorIs(t, err, dmutex.ErrMisuse)
			require.ErrorContains(t, err, c.why)
		})
	}
	m, err := New(dmutex.Start{Self: 1})
	require.Nil(t, m)
	require.ErrorIs(t, err, dmutex.ErrMisuse)
}
