package quorum

// match gives each left node a right node of its own among its neighbors, as
// far as that is possible, by augmenting paths (Kuhn, "The Hungarian Method for
// the Assignment Problem", 1955, without weights): -1 where it is not. The set
// neighbors[i] are the right nodes that left node i may have.
//
// Where all nodes on both sides have equally many neighbors, every node gets one
// (Konig, 1916). That is how each site of a projective plane gets a line.
func match(neighbors []set, right int) []int {
	var (
		of    = same(len(neighbors), -1)
		owner = same(right, -1)
		seen  = newSet(right)
		find  func(i int) bool
	)
	find = func(i int) bool {
		for r := range neighbors[i].each() {
			if owner[r] < 0 {
				of[i], owner[r] = r, i
				return true
			}
		}
		for r := range neighbors[i].each() {
			if seen.has(r) {
				continue
			}
			seen.add(r)
			if find(owner[r]) {
				of[i], owner[r] = r, i
				return true
			}
		}
		return false
	}
	for i := range of {
		clear(seen)
		find(i)
	}
	return of
}
