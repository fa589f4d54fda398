package quorum

import (
	"math"
	"strconv"
)

// An Estimate is a probability, and how well it is known.
type Estimate struct {
	// Value is the probability, or the best guess at it.
	Value float64 `json:"value"`

	// Low and High enclose the true probability: with certainty if Samples is 0 (they equal
	// Value then, right to about 1e-13), and else with 99 percent confidence (Wilson): about
	// one interval in a hundred does not. The same arguments always have the same interval, so
	// asking again does not help.
	Low  float64 `json:"low"`
	High float64 `json:"high"`

	// Samples is the number of random states of the sites behind an estimate,
	// and 0 if Value is exact.
	Samples int `json:"samples"`
}

// What Availability samples with where it has to.
const (
	defaultSamples = 1 << 18 // the interval is at most 0.0051 wide
	fewestSamples  = 1 << 12 // 0.041
	sampleWork     = 1 << 30 // how many words are looked at, unless fewestSamples need more
	defaultSeed    = 1
)

// Availability returns the probability that a quorum is up when each site is up with
// probability p, independently of the others: one p for all sites, or one for each in the
// order of [Coterie.Sites]. It is exact for votes, trees, hierarchies and walls of any
// size, and for any coterie of up to 21 sites. For larger grids, planes and written-out
// coteries it is an estimate from 2^18 random states of the sites, or at least 2^12 where
// so many would take more than some seconds. The same arguments always draw the same
// states.
//
// Barbara and Garcia-Molina, 1987; Peleg and Wool, "The Availability of Quorum Systems",
// Information and Computation 123(2), 1995.
//
// It refuses a p outside [0, 1] and a wrong number of them (ErrValue). The zero
// Coterie has no quorum and so the availability 0.
func (c Coterie[T]) Availability(p ...float64) (Estimate, error) {
	n := len(c.sites)
	if len(p) != 1 && len(p) != n || len(p) == 0 {
		return Estimate{}, refuse(ErrValue, strconv.Itoa(len(p))+" probabilities are given for "+strconv.Itoa(n)+
			" sites; give one for all of them, or one for each")
	}
	for _, up := range p {
		if !(up >= 0 && up <= 1) {
			return Estimate{}, refuse(ErrValue, "probability "+strconv.FormatFloat(up, 'g', -1, 64)+"; give a number from 0 to 1")
		}
	}
	if len(p) == 1 {
		p = same(n, p[0])
	}
	s, exact := c.system(), true
	value := fold(s, p, func(g gate, up []float64) (v float64) {
		if exact {
			v, exact = g.chance(up)
		}
		return v
	})
	if !exact {
		return s.sample(p, s.affordable(n), defaultSeed), nil
	}
	value = min(1, max(0, value))
	return Estimate{Value: value, Low: value, High: value}, nil
}

// affordable returns how many samples of n sites Availability draws.
func (s *system) affordable(n int) int {
	looked := fold(s, same(n, 0), func(g gate, in []int) int { // words, at most
		sum := len(in)
		if g, ok := g.(*list); ok {
			sum = len(g.family) * words(len(in))
		}
		for _, w := range in {
			sum += w
		}
		return sum
	})
	return min(defaultSamples, max(fewestSamples, sampleWork/(1+looked)))
}

func (s *system) sample(p []float64, samples int, seed uint64) Estimate {
	up, hits := newSet(len(p)), 0
	for range samples {
		clear(up)
		for i := range p {
			if draw(&seed) < p[i] {
				up.add(i)
			}
		}
		if s.holds(up) {
			hits++
		}
	}
	low, high := wilson(hits, samples)
	return Estimate{float64(hits) / float64(samples), low, high, samples}
}

// draw returns the next number in [0, 1) of SplitMix64 (Steele, Lea and Flood, "Fast
// Splittable Pseudorandom Number Generators", OOPSLA 2014).
func draw(state *uint64) float64 {
	*state += 0x9e3779b97f4a7c15
	z := *state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return float64((z^z>>31)>>11) / (1 << 53)
}

// wilson returns the score interval of 99 percent confidence (Wilson, "Probable
// Inference, the Law of Succession, and Statistical Inference", JASA 22, 1927).
// Unlike the textbook's normal interval it stays honest near 0 and 1.
func wilson(hits, samples int) (low, high float64) {
	const z = 2.5758293035489004 // the normal distribution has 99.5 percent below
	n, p := float64(samples), float64(hits)/float64(samples)
	middle := p + z*z/(2*n)
	spread := z * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	low, high = (middle-spread)/(1+z*z/n), (middle+spread)/(1+z*z/n)
	return max(0, min(low, p)), min(1, max(high, p))
}

// enumerated is the most inputs at which all states of a written-out gate are gone through.
const enumerated = 21 // a plane of order 4

// chance goes through all 2^n states: first it marks those that contain a quorum, then
// it averages the inputs away, one after the other.
func (g *list) chance(up []float64) (float64, bool) {
	n := len(up)
	if n > enumerated {
		return 0, false
	}
	value := make([]float64, 1<<n)
	for _, q := range g.family {
		value[q[0]] = 1
	}
	for i := range n {
		for s := range value {
			if s>>i&1 == 0 && value[s] != 0 {
				value[s|1<<i] = 1
			}
		}
	}
	for i := n - 1; i >= 0; i-- {
		for s := range 1 << i {
			value[s] = (1-up[i])*value[s] + up[i]*value[s|1<<i]
		}
	}
	return value[0], true
}
