package election

import "slices"

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

// successor returns the next that is not suspected; this node if all others are.
func (c *circle) successor() int {
	for _, j := range c.others {
		if !c.suspects[j] {
			return j
		}
	}
	return c.me
}

// pass sends a message to the successor, if there is another node.
func (c *circle) pass(m Message) {
	if next := c.successor(); next != c.me {
		c.send(next, m)
	}
}

// judged begins an election if the ring has changed here: a node that gets a new successor
// runs. So the last change is followed by an election that passes every node.
func (c *circle) judged(j int) {
	next := slices.IndexFunc(c.others, func(k int) bool { return k == j || !c.suspects[k] })
	if c.others[next] == j {
		c.elect()
	}
}

func (c *circle) timeout() { c.elect() }
