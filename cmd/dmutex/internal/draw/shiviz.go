package draw

import (
	"cmp"
	"fmt"
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
	var hosts []dmutex.NodeID
	for _, e := range events {
		hosts = append(hosts, e.node())
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	place := func(id dmutex.NodeID) int { return slices.Index(hosts, id) }
	last := make([][]uint64, len(hosts)) // the clock of each host
	for i := range last {
		last[i] = make([]uint64, len(hosts))
	}
	clocks := make(map[*event][]uint64)
	for _, e := range events {
		self := place(e.node())
		if sent := clocks[e.sent]; sent != nil {
			for i, v := range sent {
				last[self][i] = max(last[self][i], v)
			}
		}
		last[self][self]++
		clocks[e] = slices.Clone(last[self])
		fmt.Fprintf(&b, "N%d {", e.node())
		separator := ""
		for i, v := range last[self] {
			if v > 0 {
				fmt.Fprintf(&b, `%s"N%d":%d`, separator, hosts[i], v)
				separator = ","
			}
		}
		fmt.Fprintf(&b, "}\n%s\n", d.telling(e))
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
