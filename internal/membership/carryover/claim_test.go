package carryover

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
)

// Who takes a claim: see MayClaim.
func TestMayClaim(t *testing.T) {
	ids := func(ids ...dmutex.NodeID) []dmutex.NodeID { return ids }
	for _, tt := range []struct {
		of, view, former []dmutex.NodeID
		may              bool
	}{
		{ids(1), ids(2, 3), ids(1), true},
		{ids(1, 4), ids(2, 3), ids(1, 4), true},
		{ids(4, 1), ids(2, 3), ids(1), true},
		{ids(), ids(2, 3), ids(1), false},
		{ids(1), ids(2, 3), ids(), false},
		{ids(1), ids(1, 2), ids(1), false},    // it lives
		{ids(4, 1), ids(2, 4), ids(1), false}, // one that was left lives
		{ids(1, 4), ids(2, 3), ids(1), false}, // the last does not hold it
		{ids(1), ids(2, 3), ids(1, 5), false}, // another one may
		{ids(1), ids(2, 3), ids(5), false},
	} {
		require.Equal(t, tt.may, MayClaim(tt.of, tt.view, tt.former), "%v", tt)
	}
}
