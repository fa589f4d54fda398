package group

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/session"
)

// describe says what all members must agree on, and finds out whether the algorithm takes this
// group. A setting that a later release adds is left out while it has its default, so that
// members of this release agree. With a store the record has the members.
func (g *Group) describe(members []dmutex.NodeID) error {
	algorithm := ""
	for _, id := range members {
		m, err := g.cfg.Algorithm(dmutex.Start{Self: id, Members: members})
		if err != nil {
			return err
		}
		if _, ok := m.(dmutex.Ticker); ok {
			return dmutex.Misuse("Config.Algorithm needs ticks, which a node does not give: choose one without, such as ring.New for ring.Circulate")
		}
		if d, ok := m.(dmutex.Declarer); ok {
			algorithm = d.Declare()
			continue
		}
		text, err := m.AppendText(nil)
		if err != nil {
			return err
		}
		word, _, _ := strings.Cut(string(text), " ")
		algorithm = word + "/1"
	}
	g.settings = fmt.Sprintf("algorithm %s, group %q, deadlock %v", algorithm, g.cfg.Group, g.cfg.Deadlock)
	if g.cfg.Store == nil {
		g.settings += fmt.Sprintf(", members %v", members)
	}
	if g.cfg.Clients {
		g.settings += ", clients"
	}
	if len(g.settings) > session.MaxSettings {
		return dmutex.Misuse(fmt.Sprintf("what all members must agree on takes %d bytes: it may take %d, so choose a shorter Config.Group", len(g.settings), session.MaxSettings))
	}
	return nil
}

// differs is the ErrConfig of a peer that no session is possible with.
func (g *Group) differs(peer session.GroupError) error {
	if g.speak.Common(peer.Versions) == 0 {
		return fmt.Errorf("%w; it speaks %s", ErrConfig, g.speak.Differs(peer.Versions))
	}
	here, there := strings.Split(g.settings, ", "), strings.Split(peer.Settings, ", ")
	only := func(these, those []string) string {
		return strings.Join(slices.DeleteFunc(slices.Clone(these), func(s string) bool { return slices.Contains(those, s) }), ", ")
	}
	return fmt.Errorf("%w; here %q, there %q", ErrConfig, only(here, there), only(there, here))
}
