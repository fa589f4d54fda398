// Package protocol says which versions of the protocol this build speaks, with other members
// and with clients. CONTRIBUTING.md says what another version needs.
package protocol

import "strconv"

// Versions is a range of versions.
type Versions struct{ Oldest, Newest uint64 }

// Spoken is what this build speaks. Only tests change it, to be another build.
var Spoken = Versions{1, 1}

// Common returns the highest version of both ranges, 0 if there is none.
func (v Versions) Common(other Versions) uint64 {
	if c := min(v.Newest, other.Newest); c >= max(v.Oldest, other.Oldest) {
		return c
	}
	return 0
}

// Differs says that a peer speaks none of these versions, after the words "it speaks".
func (v Versions) Differs(peer Versions) string {
	return peer.text() + " of the protocol, and this node " + v.text() + ": upgrade by way of a release that speaks a version of both, or stop all members first"
}

func (v Versions) text() string {
	return "versions " + strconv.FormatUint(v.Oldest, 10) + " to " + strconv.FormatUint(v.Newest, 10)
}
