package search

import (
	"encoding/binary"
	"math/bits"
)

// A table finds the number of a state by its fingerprint.
type table map[uint64]uint32

// find returns the state with this fingerprint; if there is none, it is id
// from now on, and fresh.
func (t table) find(print uint64, id uint32) (found uint32, fresh bool) {
	if found, ok := t[print]; ok {
		return found, false
	}
	t[print] = id
	return id, true
}

// fingerprint mixes a state into 64 bits.
func fingerprint(b []byte) uint64 {
	h := mix(uint64(len(b)))
	for ; len(b) >= 8; b = b[8:] {
		h = mix(h ^ binary.LittleEndian.Uint64(b))
	}
	var rest [8]byte
	copy(rest[:], b)
	return mix(h ^ binary.LittleEndian.Uint64(rest[:]))
}

func mix(h uint64) uint64 {
	hi, lo := bits.Mul64(h^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo
}
