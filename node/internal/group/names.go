package group

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
)

// People know a process by its name, also when it is no member any more: locks may wait for it. So
// a group keeps the names of former members, and tells them to those that join later.

// Called names a process that is or was a member, as in "web-2 (node 2)".
func (g *Group) Called(id dmutex.NodeID) string {
	if name := g.About(id).Name; name != "" {
		return fmt.Sprintf("%s (node %v)", name, id)
	}
	return fmt.Sprintf("node %v", id)
}

// AllCalled names several.
func (g *Group) AllCalled(ids []dmutex.NodeID) (all []string) {
	for _, id := range ids {
		all = append(all, g.Called(id))
	}
	return all
}

// remember keeps what is known of members, and of as many former ones as there can be. The caller has
// the mutex.
func (g *Group) remember(more map[dmutex.NodeID]About) {
	all := maps.Clone(*g.known.Load())
	maps.Copy(all, more)
	former := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(id dmutex.NodeID) bool { return g.peer(id) != nil })
	for _, id := range former[:max(len(former)-membership.MaxFormer, 0)] {
		delete(all, id)
	}
	g.known.Store(&all)
}

// withNames returns what is told of former members, with their names. The machine keeps p.
func (g *Group) withNames(p *membership.Past) *membership.Past {
	if p == nil {
		return nil
	}
	named := *p
	named.Former = slices.Clone(p.Former)
	for i := range named.Former {
		named.Former[i].Name = g.About(named.Former[i].Node).Name
	}
	return &named
}

// hearNames keeps the names of former members that this process has not met. The caller has the mutex.
func (g *Group) hearNames(p *membership.Past) {
	names := make(map[dmutex.NodeID]About)
	if p != nil {
		for _, f := range p.Former {
			if f.Name != "" && g.About(f.Node).Name == "" {
				names[f.Node] = About{Name: strings.Clone(f.Name)} // which is a part of the whole message
			}
		}
	}
	if len(names) > 0 {
		g.remember(names)
	}
}
