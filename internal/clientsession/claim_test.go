package clientsession

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

// claims is a plan in which the first client holds a lock by member A, which may be excluded, and the
// second one waits for it by the same member.
func claims() plan {
	return plan{members: 2, locks: 1, length: 2, lease: 2, drain: 2, wait: 2, troubles: troubles{time: 2, breaks: 1, connects: 1, exclusions: 1}}
}

// excluded is a plan that begins when B has excluded A, and the first client has lost its connection. The
// second client waits for the lock by B.
func excluded(p *plan) {
	p.second, p.excluded = 1, true
	p.troubles = troubles{time: 2, connects: 1}
}

// unheard is a plan that goes on after B has granted the claim, before the first client has heard so.
func unheard(p *plan) {
	excluded(p)
	p.unheard, p.lease, p.drain, p.troubles.time = true, 4, 4, 3
}

// closed is a plan that begins when A has said its last word and closed.
func closed(p *plan) {
	excluded(p)
	p.closed, p.troubles.releases = true, 1
}

// rates makes D a unit longer than a lease: so much may a clock fall behind.
func rates(p *plan) {
	excluded(p)
	p.drain, p.wait = 3, 3
	p.troubles.time, p.troubles.skews = 3, 1
}

// In every run of two clients, their members and the record, at most one client has a valid hold of a
// lock, and fences rise. A changed number of states is a finding. The long ones take some minutes.
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
		{"closes", func(p *plan) { p.second, p.troubles.exclusions, p.troubles.closes = 1, 0, 1 }, 104_722, true},
		{"two-locks", func(p *plan) { excluded(p); p.locks, p.troubles.releases = 2, 1 }, 14_864, false},
		{"unheard", unheard, 10_795, false},
		{"rates", func(p *plan) { rates(p); p.troubles.connects = 0 }, 11_811, false},
		{"a-return", func(p *plan) {
			excluded(p)
			p.length, p.lease, p.drain, p.wait = 1, 1, 1, 1
			p.troubles.time, p.troubles.joins = 1, 1
		}, 17_045, false},
		{"last-word", func(p *plan) { closed(p); p.troubles.breaks, p.troubles.lies = 1, 1 }, 22_290, false},
		{"last-word-of-two-locks", func(p *plan) { closed(p); p.locks = 2 }, 3_603, false},
		{"last-word-unheard", func(p *plan) { unheard(p); p.closed, p.troubles.releases = true, 1 }, 10_684, false},
		{"closes-in-three", func(p *plan) { closed(p); p.members, p.troubles.exclusions = 3, 1 }, 128_864, true},
		{"slow", func(p *plan) { p.troubles.slow = 1 }, 227_204, true},
		{"two-locks-slowly", func(p *plan) { excluded(p); p.locks, p.troubles.releases, p.troubles.slow = 2, 1, 1 }, 304_904, true},
		{"rates-of-claims", rates, 105_464, true},
		{"takes-any-claim", func(p *plan) { p.second, p.mutant = 1, "takes-any-claim" }, 35_482, true},
		{"a-return-in-time", func(p *plan) { excluded(p); p.troubles.joins = 1 }, 89_571, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			switch {
			case tt.long:
				machinetest.Long(t)
			case tt.states > 10_000:
				machinetest.Thorough(t)
			}
			p := claims()
			tt.change(&p)
			r, err := exploreGroup(p, 600_000)
			require.NoError(t, err)
			require.True(t, r.Complete)
			require.Equal(t, tt.states, r.States)
		})
	}
}

// Each rule is needed: without it two clients hold a lock, or a fence falls. The shortest run to it is
// in testdata.
//
// Three rules guard no exclusion, so they have no such run. A member takes a claim only if none of the
// members that the claim names is in its view, and the last of them may hold the lock: another claim would wait
// behind the one that lives, or come when T is over, as the exploration takes-any-claim shows. That the client
// claims only in a session that B has confirmed saves a refusal: a grant counts only within such a one. And
// that an Over ends no hold keeps holds: see TestOverEndsNoHold. The word that the client goes on with B ends the
// wait for A. A claim that ended it without this word would be no worse while clients keep the rules, since B gives
// up a grant that no client uses only after T.
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
		{"passes-the-grant-on", unheard},
		{"passes-every-wait", func(p *plan) { excluded(p); p.members, p.troubles.exclusions = 3, 1 }},
		{"waits-without-regard-to-rates", func(p *plan) { rates(p); p.drain, p.wait = 2, 2 }},
		{"others-do-not-wait", func(p *plan) { p.second = 1 }},
		{"closes-as-if-nothing-were-lent", func(p *plan) { p.second, p.troubles.exclusions, p.troubles.closes = 1, 0, 1 }},
		{"forgets-what-it-has-lent", closed},
		{"believes-a-false-claim", func(p *plan) { closed(p); p.troubles.lies = 1 }},
		{"frees-by-any-claim", func(p *plan) { excluded(p); p.troubles.lies = 1 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := claims()
			tt.change(&p)
			if p.mutant = tt.name; p.troubles.ops > 0 || p.troubles.slow > 0 || p.members > 2 { // it takes seconds to find the fault
				machinetest.Long(t)
			}
			_, err := exploreGroup(p, 400_000)
			goldentest.Violation(t, "testdata/claim-"+tt.name+".txt", err, nil)
		})
	}
}
