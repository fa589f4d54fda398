package consent

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/internal/kit/viewtest"
	"github.com/dmutex/dmutex/internal/membership"
)

// The protocol as conversations, to read: what happens, and below a line of four dashes the
// messages as they arrive and the new states of the lives. "meet all" lets all lives meet that have
// not met, and "deliver all" delivers until no message is in flight.
func TestConversations(t *testing.T) {
	for _, tt := range []struct {
		name  string
		setup setup
	}{
		{"founding", setup{n: 3, fresh: true}},
		{"restart", setup{n: 3, faults: faults{crashes: 1}}},
		{"restart-of-the-holder", setup{n: 3, faults: faults{crashes: 1}}},
		{"one-leaves", setup{n: 3, faults: faults{exits: 1}}},
		{"two-leave", setup{n: 3, faults: faults{exits: 2}}},
		{"all-leave", setup{n: 3, faults: faults{exits: 3}}},
		{"evict", setup{n: 3, faults: faults{crashes: 1, evicts: 1}}},
		{"evicted-alive", setup{n: 3, faults: faults{lies: 1}}},
		{"older", setup{n: 3, faults: faults{crashes: 1}}},
		{"proposer-dies", setup{n: 3, faults: faults{crashes: 2}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.setup.rounds, tt.setup.clocks = many, tt.name != "older"
			file := "testdata/" + tt.name + ".txt"
			script, err := os.ReadFile(file)
			require.NoError(t, err)
			goldentest.Compare(t, file, newWorld(tt.setup).converse(t, string(script)))
		})
	}
}

// converse runs a script, and returns it with its output. At the end all must be well.
func (w *world) converse(t *testing.T, script string) string {
	var b strings.Builder
	do := func(a action) {
		if a.do == deliver {
			fmt.Fprintln(&b, w.flight(w.wire[a.i]).text)
		}
		before := w.Clone(nil)
		require.NoError(t, w.Do(a))
		b.Write(before.changes(nil, w))
	}
	all := func(v verb) {
		for {
			list := w.Steps(nil)
			k := slices.IndexFunc(list, func(a action) bool { return a.do == v })
			if k < 0 {
				return
			}
			do(list[k])
		}
	}
	for paragraph := range strings.SplitSeq(strings.TrimSpace(script), "\n\n") {
		commands, _, _ := strings.Cut(paragraph, "\n----")
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(commands + "\n----\n")
		for command := range strings.SplitSeq(commands, "\n") {
			switch {
			case strings.HasPrefix(command, "#"):
			case command == "meet all":
				all(meet)
			case command == "deliver all":
				all(deliver)
			default:
				list := w.Steps(nil)
				k := slices.IndexFunc(list, func(a action) bool { return strings.HasPrefix(w.line(a), command) })
				require.GreaterOrEqual(t, k, 0, "%q cannot happen after\n%s", command, &b)
				do(list[k])
			}
		}
	}
	require.True(t, w.good(), "%v\n%s", w.stuck(), &b)
	return b.String()
}

// A process was paused before it was in a view, and a later life of its member runs now. The
// paused process learns that from the first peer that knows the later life.
func TestReplaced(t *testing.T) {
	paused, err := New(Config{Self: 2, Members: []dmutex.NodeID{1, 2, 3}, Life: 5})
	require.NoError(t, err)
	paused.Met(0, 1, 7)
	peer := three(t)
	peer.Met(0, 3, 9)
	said, err := peer.Handle(0, membership.Message{Kind: membership.Promise, From: 3, To: 1, Round: 1, Installed: membership.View{Epoch: 4, Members: []membership.Member{{Node: 2, Life: 6}, {Node: 3, Life: 9}}}})
	require.NoError(t, err)
	require.Equal(t, "1->2 REFUSE round=1 life=6", viewtest.Message(&said.Messages[0]))
	_, err = paused.Handle(0, said.Messages[0])
	require.NoError(t, err)
	require.Equal(t, Older, paused.Phase())
	require.Equal(t, uint64(6), paused.Later())
}
