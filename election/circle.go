package election

import (
	"slices"

	"github.com/dmutex/dmutex"
)

// A circle is a site in a ring, which has the order of [Config.Members].
type circle struct {
	site
	others []int // ranks, in the order of the ring from our place on; never written after birth
}

func newCircle(c Config) (circle, error) {
	s, err := newSite(c)
	if err != nil {
		return circle{}, err
	}
	var others []int
	i := slices.Index(c.Members, c.Self)
	for _, node := range slices.Concat(c.Members[i+1:], c.Members[:i]) {
		j, _ := slices.BinarySearch(s.members, node)
		others = append(others, j)
	}
	return circle{site: s, others: others}, nil
}

func (c *circle) clone() circle {
	d := *c
	d.site = c.site.clone()
	return d
}

// successor returns the next in the ring that is not suspected; this node
// itself if all others are.
func (c *circle) successor() int {
	for _, j := range c.others {
		if !c.suspects[j] {
			return j
		}
	}
	return c.me
}

// Tick implements [Machine].
func (c *circle) Tick() []Message {
	if c.timeout() {
		c.elect()
	}
	return c.out
}

// Suspect implements [Machine]. It begins an election if the leader is lost, or if the ring has changed
// here: a node that gets a new successor runs. So, whatever was going around, the
// last change is followed by an election that passes every node.
func (c *circle) Suspect(node dmutex.NodeID) ([]Message, error) {
	before := c.successor()
	orphaned, err := c.suspect(node)
	if err != nil {
		return nil, err
	}
	if orphaned || c.successor() != before {
		c.elect()
	}
	return c.out, nil
}

// Unsuspect implements [Machine]. It begins an election if the ring has changed here, or if there was none
// because a majority was missing.
func (c *circle) Unsuspect(node dmutex.NodeID) ([]Message, error) {
	before := c.successor()
	news, err := c.unsuspect(node)
	if err != nil {
		return nil, err
	}
	if c.successor() != before || news && c.phase == idle && !c.led {
		c.elect()
	}
	return c.out, nil
}
