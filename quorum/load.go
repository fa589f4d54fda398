package quorum

// The load of a coterie is how busy its busiest site must be: a strategy picks
// quorums with some probabilities, a site is as busy as the quorums that contain
// it are likely together, and the load is the least that any strategy makes the
// busiest site. Its inverse, the capacity, is how many times a group of sites,
// each good for one request per second, can serve one request per second.
//
// Naor and Wool, "The Load, Capacity, and Availability of Quorum Systems", SIAM
// Journal on Computing 27(2), 1998. With c the size of a smallest quorum and n
// sites, the load is at least 1/c and at least c/n, and so at least 1/sqrt(n).
//
// It is found as the capacity: give each quorum a rate so that no site serves
// more than 1, and let the sum be greatest. That is a linear program with a row
// for each site and a column for each quorum, too many to write down; but the
// simplex method asks for one column at a time, the one that the present prices
// of the sites make cheapest, and a cheapest quorum is what gates can tell.
// Prices also bound the answer from the other side: if every quorum costs at
// least 1, no rates sum to more than the prices do.

// Limits of the linear program.
const (
	programSites  = 256     // sites beyond which it is not begun
	programWork   = 1 << 30 // multiplications after which it is cut short
	programStep   = 1 << 12 // those of a step at least, so that steps are bounded too
	uniformInputs = 256     // inputs of unequal votes beyond which they are not counted
	tight         = 1e-9    // a relative difference that counts as none
)

// Load returns bounds of the load of c, each with a proof: low by prices of the
// sites, high by a strategy. They are equal, and the load exact, where all
// quorums are alike (majorities, full grids, planes) and, by the linear program,
// for up to about a hundred sites. Where the program would take more than about a
// second they may differ, and beyond 256 sites, where it is not begun, by much. Bounds that differ by less than
// 1e-9 of their value are given as equal; for some sixty sites the error is
// about 1e-12. For the zero Coterie both are 0.
//
// The capacity of c is one over its load.
func (c Coterie[T]) Load() (low, high float64) {
	s := c.system()
	if s.sites == 0 {
		return 0, 0
	}
	smallest, _ := c.Size()
	low, high = max(1/float64(smallest), float64(smallest)/float64(s.sites)), s.uniform()
	if high > low*(1+tight) && s.sites <= programSites {
		low, high = s.program(low, high)
	}
	if high <= low*(1+tight) {
		low = high
	}
	return low, high
}

// uniform returns how busy the busiest site is if all quorums are equally likely
// in every gate.
func (s *system) uniform() float64 {
	busiest := 0.0
	share := same(len(s.nodes), 1.0) // how busy the output of a gate is
	for k := len(s.nodes) - 1; k >= 0; k-- {
		n := s.nodes[k]
		ones := same(len(n.in), 1)
		all := float64(n.gate.count(ones, -1))
		for i, in := range n.in {
			var busy float64
			if g, voting := n.gate.(*votes); voting && g.weight[0] == g.weight[len(g.weight)-1] {
				size, _ := g.equal(g.threshold)
				busy = float64(size) / float64(g.size())
			} else if all >= maxInt || voting && len(n.in) > uniformInputs {
				busy = 1 // too many quorums, or inputs, to count
			} else {
				busy = float64(n.gate.count(ones, i)) / all
			}
			busy *= share[k]
			if _, ok := in.site(); ok {
				busiest = max(busiest, busy)
			} else {
				share[in.node()] = busy
			}
		}
	}
	return min(1, busiest)
}

// program solves the linear program by the revised simplex method, starting from
// the basis in which every site is idle. It narrows the bounds that are known.
func (s *system) program(low, high float64) (float64, float64) {
	lp := newSimplex(s.sites)
	for budget := programWork; budget > 0; budget -= max(programStep, 2*s.sites*s.sites) {
		prices := lp.prices()
		lowest, total := 0, 0.0
		for i, p := range prices {
			if p < prices[lowest] {
				lowest = i
			}
			total += max(0, p)
		}
		if prices[lowest] < -tight { // that site is better left with room
			if !lp.enter(nil, lowest) {
				break
			}
			continue
		}
		for i, p := range prices {
			prices[i] = max(0, p)
		}
		q, cost := s.cheapest(prices, -1)
		if total > 0 {
			low = max(low, cost/total)
		}
		if cost >= 1-tight || !lp.enter(q, -1) {
			break
		}
	}
	return low, min(high, lp.busiest())
}
