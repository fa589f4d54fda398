package clientsession

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/goldentest"
)

// claims is a plan in which the first client holds a lock by member A, which may be excluded, and the
// second one waits for it by the same member.
func claims() plan {
	return plan{members: 2, locks: 1, length: 2, lease: 2, drain: 2, wait: 2, troubles: troubles{time: 2, breaks: 1, connects: 1, exclusions: 1}}
}

// In every run of two clients, their members and the record, at most one client has a valid hold of a
// lock, and fences rise. A changed number of states is a finding.
func TestExploreClaims(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, tt := range []struct {
		name   string
		change func(p *plan)
		states int
		long   bool
	}{
		{"one-exclusion", func(*plan) {}, 37_018, false},
		{"waits-elsewhere", func(p *plan) { p.second = 1 }, 35_334, false},
		{"witnessed", func(p *plan) { p.second, p.witnessed = 1, true }, 35_352, false},
		{"closes", func(p *plan) { p.second, p.troubles.exclusions, p.troubles.closes = 1, 0, 1 }, 18_638, false},
		{"slow", func(p *plan) { p.troubles.slow = 1 }, 219_490, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.long && os.Getenv("DMUTEX_LONG") == "" {
				t.Skip("takes minutes: set DMUTEX_LONG=1")
			}
			p := claims()
			tt.change(&p)
			r, err := exploreGroup(p, 400_000)
			require.NoError(t, err)
			require.True(t, r.Complete)
			require.Equal(t, tt.states, r.States)
		})
	}
}

// Each rule is needed: without it two clients hold a lock, or a fence falls. The shortest run to it is
// in testdata.
func TestClaimMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, tt := range []struct {
		name   string
		change func(p *plan)
	}{
		{"frees-at-once", func(*plan) {}},
		{"shown-by-an-earlier-operation", func(p *plan) { p.troubles.ops = 1 }},
		{"frees-what-has-lapsed", func(p *plan) { p.troubles.ops = 1 }},
		{"T-does-not-end", func(p *plan) { p.second, p.troubles.slow = 1, 1 }},
		{"says-goodbye", func(*plan) {}},
		{"others-do-not-wait", func(p *plan) { p.second = 1 }},
		{"closes-as-if-nothing-were-lent", func(p *plan) { p.second, p.troubles.exclusions, p.troubles.closes = 1, 0, 1 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := claims()
			tt.change(&p)
			p.mutant = tt.name
			_, err := exploreGroup(p, 400_000)
			goldentest.Violation(t, "testdata/claim-"+tt.name+".txt", err, nil)
		})
	}
}
