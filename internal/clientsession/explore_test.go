package clientsession

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

// In every run of two clients and a member, at most one client has a valid hold of the lock. From
// every state, without further faults, all waiting clients can get the lock and a closing member
// can leave. A changed number of states is a finding.
func TestExplore(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, tt := range []struct {
		setup  setup
		states int
	}{
		{setup{length: 2, wait: 2, sessions: 2, asks: 2}, 6_858},
		{setup{length: 2, wait: 2, sessions: 1, asks: 2, faults: faults{slow: 1}}, 14_167},
		{setup{length: 2, wait: 2, sessions: 2, asks: 2, faults: faults{crashes: 1}}, 13_905},
		{setup{length: 2, wait: 2, sessions: 1, asks: 2, faults: faults{breaks: 2, cancels: 1}}, 16_027},
		{setup{length: 1, wait: 1, sessions: 1, asks: 2, faults: faults{slow: 1, breaks: 1}}, 55_096},
		{setup{length: 2, wait: 2, lease: 2, sessions: 2, asks: 2}, 63_264},
		{setup{length: 1, wait: 1, lease: 1, sessions: 1, asks: 2, faults: faults{slow: 1}}, 15_795},
		{setup{length: 1, wait: 1, lease: 1, sessions: 2, asks: 2, faults: faults{deaths: 1}}, 61_658},
		{setup{length: 2, wait: 2, sessions: 2, asks: 2, faults: faults{closes: 1}}, 15_064},
		{setup{length: 1, wait: 1, sessions: 1, asks: 2, faults: faults{closes: 1, slow: 1}}, 17_865},
		{setup{length: 1, wait: 1, sessions: 1, asks: 3, faults: faults{slow: 1, breaks: 2}}, 629_708},
	} {
		t.Run(tt.setup.name(), func(t *testing.T) {
			switch {
			case tt.states > 50_000:
				machinetest.Long(t)
			case tt.states > 10_000:
				machinetest.Thorough(t)
			}
			r, err := explore(tt.setup, 700_000)
			require.NoError(t, err)
			require.True(t, r.Complete)
			require.Equal(t, tt.states, r.States)
		})
	}
}

// Each rule is needed: without it something goes wrong. The shortest run to it is in
// testdata. Package leases has those of the term.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	plain := setup{length: 2, wait: 2, sessions: 2, asks: 2}
	with := func(f faults) setup {
		s := plain
		s.faults = f
		return s
	}
	leased := setup{length: 2, wait: 2, lease: 1, sessions: 2, asks: 2, faults: faults{slow: 1}}
	served := func(w *world, i int) *Member {
		if s := w.session(w.owner(i)); s != nil {
			return s.m
		}
		return new(Member)
	}
	for _, tt := range []struct {
		name  string
		setup setup
		alter func(w *world, do string, i int, input func())
	}{
		{"hold-outlives-its-session", setup{length: 1, wait: 1, sessions: 2, asks: 3}, func(w *world, _ string, i int, input func()) {
			input()
			m := w.clients[i].m
			m.news = slices.DeleteFunc(m.news, func(e Message) bool { return e.Kind == Refused })
		}},
		{"freed-too-soon", setup{length: 2, wait: 1, sessions: 2, asks: 2, faults: faults{slow: 1}}, nil},
		{"own-lease-ignored", leased, func(w *world, _ string, i int, input func()) {
			input()
			for m, k := served(w, i), 0; k < len(m.out); k++ {
				m.out[k].For = m.out[k].Length
			}
		}},
		{"session-outlives-the-loss", leased, func(_ *world, do string, _ int, input func()) {
			if do != "has lost its locks" {
				input()
			}
		}},
		{"proof-of-death-counts-for-clients", func() setup {
			s := leased
			s.hasty, s.faults = true, faults{deaths: 1}
			return s
		}(), nil},
		{"confirms-while-closing", setup{length: 2, wait: 2, sessions: 1, asks: 2, faults: faults{closes: 1, slow: 1}}, func(w *world, do string, i int, input func()) {
			m := served(w, i)
			leaving, over := m.leaving, m.overAt
			if do == "takes a beat" {
				m.leaving = false
			}
			if input(); leaving {
				m.leaving, m.overAt = true, over
			}
		}},
		{"late-hello-counts", setup{length: 1, wait: 1, sessions: 1, asks: 3, faults: faults{slow: 1, breaks: 2}}, func(w *world, do string, i int, input func()) {
			if do == "takes a late hello" {
				served(w, i).link = 0
			}
			input()
		}},
		{"closes-at-once", with(faults{closes: 1, slow: 1}), func(w *world, do string, i int, input func()) {
			m := served(w, i)
			if input(); do == "closes" {
				m.End(Unknown, "")
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.setup.lease > 0 || tt.setup.faults.slow > 0 { // it takes seconds to find the fault
				machinetest.Thorough(t)
			}
			tt.setup.alter = tt.alter
			_, err := explore(tt.setup, 400_000)
			goldentest.Violation(t, "testdata/mutant-"+tt.name+".txt", err, nil)
		})
	}
}
