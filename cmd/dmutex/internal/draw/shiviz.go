package draw

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/trace"
)

// shivizRegexp tells ShiViz how to read the log. ShiViz takes it from the first line
// of a file. With a pasted log, enter it in its own field. The second line could
// separate executions.
const shivizRegexp = `(?<host>\S*) (?<clock>{.*})\n(?<event>.*)`

// ShiViz returns the drawing as a log for ShiViz, with vector clocks: an event
// counts at its node, and knows what the node and the sender of its message
// knew.
func (d *Drawing) ShiViz() []byte {
	var b strings.Builder
	b.WriteString(shivizRegexp + "\n\n")
	var events []*event
	seen := make(map[*event]bool) // an event of a node is in every panel
	for _, p := range d.panels {
		for _, e := range p.points {
			if !seen[e] && d.telling(e) != "" {
				events, seen[e] = append(events, e), true
			}
		}
	}
	slices.SortStableFunc(events, func(a, b *event) int {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.depth, b.depth))
	})
	type clock map[dmutex.NodeID]uint64
	clocks, sent := make(map[dmutex.NodeID]clock), make(map[*event]clock)
	for _, e := range events {
		self := e.node()
		now := clocks[self]
		if now == nil {
			now = make(clock)
			clocks[self] = now
		}
		for id, n := range sent[e.sent] {
			now[id] = max(now[id], n)
		}
		now[self]++
		if len(e.out) > 0 {
			sent[e] = maps.Clone(now)
		}
		var known []string
		for _, id := range slices.Sorted(maps.Keys(now)) {
			known = append(known, fmt.Sprintf(`"N%d":%d`, id, now[id]))
		}
		fmt.Fprintf(&b, "N%d {%s}\n%s\n", self, strings.Join(known, ","), d.telling(e))
	}
	return []byte(b.String())
}

// telling returns an event as a line. It is empty if the event has neither a lock nor
// a mark.
func (d *Drawing) telling(e *event) string {
	switch {
	case e.What == trace.View:
		return fmt.Sprintf("installs view %d: %s", e.N, e.members())
	case e.What == trace.Ready:
		return fmt.Sprintf("acts in view %d", e.N)
	case e.Lock == "":
		return plain(e.mark())
	}
	words := []string{string(e.What)}
	if e.What == trace.Handle {
		words[0] = "receives " + e.In.String()
	}
	if e.What == trace.Waits {
		words[0] = "waits for the lease of " + join(e.Members)
	}
	if len(d.panels) > 1 {
		words[0] = fmt.Sprintf("%q: %s", e.Lock, words[0])
	}
	for _, a := range e.out {
		words = append(words, "sends "+a.Message.String())
	}
	if e.Phase == dmutex.Held {
		words = append(words, fmt.Sprintf("holds the lock with fence %s", fence(e.Fence)))
	}
	return strings.Join(words, "; ")
}
