package draw

import (
	"fmt"
	"strings"

	"github.com/dmutex/dmutex/trace"
)

// Mermaid returns the drawing as a sequenceDiagram of Mermaid; of several locks,
// one after the other below a note with its name. A message stands where it
// arrives.
func (d *Drawing) Mermaid() []byte {
	var b strings.Builder
	b.WriteString("sequenceDiagram\n")
	title, several := d.options.Title, len(d.panels) > 1
	if !several && (title != "" || !d.virtual) {
		title = strings.TrimPrefix(title+", lock "+d.panels[0].lock, ", ")
	}
	if title != "" {
		fmt.Fprintf(&b, "    title %s\n", mermaid(title))
	}
	nodes := d.nodes()
	for _, id := range nodes {
		fmt.Fprintf(&b, "    participant N%d\n", id)
	}
	for _, p := range d.panels {
		if several {
			fmt.Fprintf(&b, "    Note over N%d,N%d: lock %s\n", nodes[0], nodes[len(nodes)-1], mermaid(p.lock))
		}
		noted := make(map[uint64]bool) // a view is noted where its first member installs it
		enters, leaves := make(map[*event]*bar), make(map[*event]*bar)
		for _, bar := range p.bars {
			if bar.sign != held {
				continue
			}
			enters[bar.begin], leaves[bar.end] = bar, bar
			if p.side(bar.begin) < 0 {
				fmt.Fprintf(&b, "    activate N%d\n    Note over N%d: is inside, fence %s\n", bar.node, bar.node, fence(bar.fence))
			}
		}
		for _, e := range p.points {
			p.mermaid(&b, e, enters[e], leaves[e], noted)
		}
		for _, bar := range p.bars {
			if bar.sign == held && (bar.end == nil || p.side(bar.end) > 0) {
				fmt.Fprintf(&b, "    deactivate N%d\n", bar.node)
			}
		}
	}
	return []byte(b.String())
}

func (p *panel) mermaid(b *strings.Builder, e *event, enters, leaves *bar, noted map[uint64]bool) {
	self := e.node()
	if text := e.mark(); text != "" {
		fmt.Fprintf(b, "    Note over N%d: %s\n", self, mermaid(text))
	}
	switch e.What {
	case trace.View:
		if !noted[e.N] {
			noted[e.N] = true
			fmt.Fprintf(b, "    Note over N%d,N%d: view %d: %s\n", p.nodes[0], p.nodes[len(p.nodes)-1], e.N, e.members())
		}
	case trace.Handle:
		fmt.Fprintf(b, "    N%d->>N%d: %s\n", e.In.From, self, mermaid(content(&e.In)))
	case trace.Request, trace.Cancel, trace.Waits:
		fmt.Fprintf(b, "    Note over N%d: %s\n", self, e.What)
	}
	if leaves != nil {
		fmt.Fprintf(b, "    deactivate N%d\n", self)
	}
	if enters != nil {
		fmt.Fprintf(b, "    activate N%d\n    Note over N%d: enters, fence %s\n", self, self, fence(enters.fence))
	}
	for _, a := range e.out {
		if len(a.recv) == 0 && (a.stale || !a.unfollowed) {
			fmt.Fprintf(b, "    N%d-xN%d: %s\n", self, a.To, mermaid(content(&a.Message)))
		} else if len(a.recv) == 0 {
			fmt.Fprintf(b, "    N%d-)N%d: %s\n", self, a.To, mermaid(content(&a.Message)))
		}
	}
}

// content returns the text of a message without its sender and receiver.
func content(m *trace.Message) string {
	_, after, _ := strings.Cut(m.String(), " ")
	return after
}

// mermaid escapes a text for Mermaid, where #, ; and %% have a meaning.
func mermaid(text string) string {
	return strings.NewReplacer("#", "#35;", ";", "#59;", "%", "#37;").Replace(plain(text))
}
