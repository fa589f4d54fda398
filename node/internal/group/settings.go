package group

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/internal/stream"
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
	if len(g.settings) > stream.MaxSettings {
		return dmutex.Misuse(fmt.Sprintf("what all members must agree on takes %d bytes: it may take %d, so choose a shorter Config.Group", len(g.settings), stream.MaxSettings))
	}
	return nil
}

// differs is the ErrConfig of another member that speaks those versions, and has other settings than this one.
func (g *Group) differs(who string, speaks protocol.Versions, own, others string) error {
	if g.speak.Common(speaks) == 0 {
		return fmt.Errorf("%w; %s speaks %s", ErrConfig, who, g.speak.Differs(speaks))
	}
	here, there := strings.Split(own, ", "), strings.Split(others, ", ")
	only := func(these, those []string) string {
		return strings.Join(slices.DeleteFunc(slices.Clone(these), func(s string) bool { return slices.Contains(those, s) }), ", ")
	}
	return fmt.Errorf("%w; here %q, there %q", ErrConfig, only(here, there), only(there, here))
}

// drawLife names a life of this process: by its wall clock in steps of 1<<bits ns, so that
// it is probably higher than former ones, and random bits below. It is higher than above.
func (g *Group) drawLife(above uint64, bits int) uint64 {
	random := 1 + uint64(g.clocks.UpTo(1<<bits-1))
	return max(g.sinceEpoch()>>bits<<bits|random, above+random)
}

// maxLife returns the highest life that is believed: some clock may be wrong by a day, and
// one such life cannot lock a number out for longer.
func (g *Group) maxLife() uint64 { return g.sinceEpoch() + uint64(24*time.Hour) }

// sinceEpoch returns the nanoseconds since 2020-01-01 UTC by the wall clock.
func (g *Group) sinceEpoch() uint64 { return epochs.Since(g.clocks.Wall()) }

// clockNow returns the clock of the machines of package membership.
func (g *Group) clockNow() uint64 { return g.sinceEpoch() / uint64(time.Millisecond) }
