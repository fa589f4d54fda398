package locks

import "github.com/dmutex/dmutex"

// Home returns the member at which a lock begins, by rendezvous hashing: each member has a
// score for the name, and the highest wins. So each member is the home of about as many
// locks, and when members come and go, only the locks of these move.
//
// All members must compute alike. The score is mix(FNV-1a of the name, 64 bits, exclusive
// or mix of the member's number), where mix is the finalizer of SplitMix64. As mix is a
// bijection, no two members have the same score.
func Home(name string, members []dmutex.NodeID) (home dmutex.NodeID) {
	hash := uint64(14695981039346656037)
	for i := range len(name) {
		hash = (hash ^ uint64(name[i])) * 1099511628211
	}
	highest := uint64(0)
	for _, id := range members {
		if score := mix(hash ^ mix(uint64(id))); home == dmutex.None || score > highest {
			home, highest = id, score
		}
	}
	return home
}

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
