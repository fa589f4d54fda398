package lockrecord

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/internal/kit/quicktest"
	"github.com/dmutex/dmutex/internal/leases"
)

var _ = flag.Bool("update", false, "rewrite the files in testdata")

// In every run of two contenders, at most one holds the lock, while its lease runs or its life is
// proved, and fences rise even if the record is deleted. From every state, without further faults, all waiting contenders
// can get the lock. A changed number of states is a finding.
func TestExplore(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, tt := range []struct {
		setup  setup
		states int
	}{
		{setup{lease: 2, wait: 2, lives: 1, grants: 2}, 292},
		{setup{lease: 2, wait: 3, lives: 2, grants: 3, faults: faults{crashes: 1}}, 5_788},
		{setup{lease: 2, wait: 2, lives: 1, grants: 2, faults: faults{slow: 2}}, 46_222},
		{setup{lease: 2, wait: 2, lives: 1, grants: 2, faults: faults{slow: 1, cancels: 1}}, 7_051},
		{setup{lease: 2, wait: 2, lives: 1, grants: 2, leaves: true, faults: faults{slow: 2, cancels: 1}}, 69_178},
		{setup{lease: 2, wait: 2, lives: 1, grants: 2, leaves: true, empty: true, prover: true, faults: faults{slow: 1, cancels: 1, crashes: 1}}, 6_664},
		{setup{lease: 2, wait: 2, lives: 1, grants: 2, prover: true, faults: faults{slow: 1, crashes: 1}}, 4_573},
		{setup{lease: 2, wait: 2, lives: 1, grants: 2, empty: true, prover: true, faults: faults{slow: 1}}, 3_501},
		{setup{lease: 2, wait: 2, lives: 1, grants: 2, prover: true, faults: faults{crashes: 1, wipes: 1}}, 2_544},
		{setup{lease: 2, wait: 2, lives: 2, grants: 3, prover: true, faults: faults{crashes: 1}}, 4_467},
		{setup{lease: 1, wait: 1, lives: 1, grants: 2, faults: faults{slow: 1, crashes: 1, wipes: 1}}, 20_064},
		{setup{lease: 2, wait: 2, lives: 1, grants: 2, prover: true, faults: faults{crashes: 1, forgets: 1}}, 2_350},
		{setup{lease: 2, wait: 2, lives: 1, grants: 2, prover: true, lifeless: true, faults: faults{crashes: 1}}, 556},
	} {
		t.Run(tt.setup.name(), func(t *testing.T) {
			if tt.states > 15_000 && quicktest.On() {
				t.Skip("takes seconds; set CI=1")
			}
			r, err := explore(tt.setup, 200_000)
			require.NoError(t, err)
			require.True(t, r.Complete)
			require.Equal(t, tt.states, r.States)
		})
	}
}

// Each rule is needed: without it something goes wrong. The shortest run to it is in testdata.
func TestMutants(t *testing.T) {
	plain := setup{lease: 2, wait: 2, lives: 1, grants: 2}
	slow := setup{lease: 2, wait: 2, lives: 1, grants: 2, faults: faults{slow: 2}}
	for _, tt := range []struct {
		name  string
		setup setup
		alter func(w *world, i int, do string, input func())
		also  func(s *setup)
	}{
		{"lease-from-the-receipt", slow, func(w *world, i int, do string, input func()) {
			if do == "is answered" && w.places[i].op.ok {
				w.places[i].m.sentAt = w.now
			}
			input()
		}, nil},
		{"lease-from-an-unknown-outcome", slow, func(w *world, i int, do string, input func()) {
			m := w.places[i].m
			swaps := m.op == Swap && m.phase == Held
			if input(); do == "gives up" && swaps && m.phase == Held {
				m.term = leases.From(m.sentAt, m.term.Length)
			}
		}, nil},
		{"lease-from-a-load", slow, func(w *world, i int, do string, input func()) {
			m := w.places[i].m
			loads := m.op == Load && m.phase == Held
			if input(); do == "is answered" && loads && m.phase == Held && m.mine() {
				m.term = leases.From(m.sentAt, m.term.Length)
			}
		}, nil},
		{"end-of-the-lease-ignored", plain, func(w *world, i int, do string, input func()) {
			m := w.places[i].m
			if m.phase == Held && w.now >= m.Expiry() {
				m.term = leases.From(w.now, m.term.Length)
			}
			input()
		}, nil},
		{"wait-too-short", setup{lease: 2, wait: 1, lives: 1, grants: 2}, nil, nil},
		{"wait-from-the-sending", slow, func(w *world, i int, do string, input func()) {
			m := w.places[i].m
			rev, sent, loads := m.rev, m.sentAt, m.op == Load
			if input(); do == "is answered" && loads && m.rev != rev {
				m.seenAt = sent
			}
		}, nil},
		{"wait-goes-on-after-a-renewal", setup{lease: 2, wait: 2, lives: 1, grants: 2, faults: faults{slow: 1}}, func(w *world, i int, do string, input func()) {
			m := w.places[i].m
			holder, seen, loads := m.record.Holder, m.seenAt, m.op == Load && m.seen
			if input(); do == "is answered" && loads && m.record.Holder == holder {
				m.seenAt = seen
			}
		}, nil},
		{"fences-begin-again", setup{lease: 2, wait: 2, lives: 2, grants: 2}, func(w *world, i int, do string, input func()) {
			m := w.places[i].m
			if m.record.Holder == "" {
				m.record.Fence = min(m.record.Fence, 1)
			}
			input()
		}, nil},
		{"clocks-stand-still", setup{lease: 2, wait: 2, lives: 1, grants: 2, faults: faults{wipes: 1}}, func(w *world, i int, do string, input func()) {
			w.floor = 0
			input()
		}, nil},
		{"proof-of-another-revision", setup{lease: 2, wait: 2, lives: 2, grants: 3, prover: true, faults: faults{crashes: 1}}, func(w *world, i int, do string, input func()) {
			m := w.places[i].m
			proved := m.proved
			if input(); m.phase == Waiting {
				m.proved = m.proved || proved
			}
		}, nil},
		{"guard-ignored", setup{lease: 2, wait: 1, lives: 1, grants: 2, prover: true}, func(w *world, i int, do string, input func()) {
			input()
			w.places[i].m.proves = false
		}, nil},
		{"wait-from-before-the-answer", setup{lease: 2, wait: 2, lives: 1, grants: 2, prover: true, faults: faults{forgets: 1}}, func(w *world, i int, do string, input func()) {
			m := w.places[i].m
			seen := m.seenAt
			if input(); do == "hears of no proof" {
				m.seenAt = seen
			}
		}, nil},
		{"wrong-proof", setup{lease: 2, wait: 2, lives: 1, grants: 2, prover: true}, nil, func(s *setup) { s.always = true }},
		{"leaves-while-a-swap-may-come", setup{lease: 2, wait: 2, lives: 1, grants: 2, leaves: true, faults: faults{slow: 1, cancels: 1}}, func(w *world, i int, do string, input func()) {
			m := w.places[i].m
			loads := m.op == Load
			if input(); do == "is answered" && loads {
				m.unsure = false
				m.settle()
			}
		}, nil},
		{"blind-swap", slow, nil, func(s *setup) { s.blind = true }},
		{"unknown-swap-taken-for-done", slow, func(w *world, i int, do string, input func()) {
			m := w.places[i].m
			swaps := m.op == Swap && m.phase == Waiting && m.swap.Holder == m.life
			if input(); do == "gives up" && swaps && m.phase == Waiting {
				m.phase, m.record.Fence, m.term = Held, m.swap.Fence, leases.From(m.sentAt, m.term.Length)
			}
		}, nil},
		{"conflict-taken-for-done", slow, func(w *world, i int, do string, input func()) {
			if op := &w.places[i].op; do == "is answered" && op.op == Swap && !op.ok {
				op.ok, op.rev = true, w.rev
			}
			input()
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.setup.alter = tt.alter
			if tt.also != nil {
				tt.also(&tt.setup)
			}
			_, err := explore(tt.setup, 200_000)
			goldentest.Violation(t, "testdata/mutant-"+tt.name+".txt", err, nil)
		})
	}
}
