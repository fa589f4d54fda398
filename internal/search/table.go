package search

import (
	"encoding/binary"
	"math/bits"
)

// A table finds the number of a state by its fingerprint.
type table struct {
	slots []slot
	used  int
}

type slot struct {
	print uint64 // 0 if free
	id    uint32
}

// find returns the state with this fingerprint; if there is none, it is id
// from now on, and fresh.
func (t *table) find(print uint64, id uint32) (found uint32, fresh bool) {
	if 4*t.used >= 3*len(t.slots) {
		old := t.slots
		t.slots = make([]slot, max(1024, 2*len(old)))
		for _, s := range old {
			if s.print != 0 {
				*t.slot(s.print) = s
			}
		}
	}
	s := t.slot(print)
	if s.print != 0 {
		return s.id, false
	}
	*s = slot{print, id}
	t.used++
	return id, true
}

func (t *table) slot(print uint64) *slot {
	mask := uint64(len(t.slots) - 1)
	for k := print & mask; ; k = (k + 1) & mask {
		if s := &t.slots[k]; s.print == 0 || s.print == print {
			return s
		}
	}
}

// fingerprint mixes a state into 64 bits, never 0.
func fingerprint(b []byte) uint64 {
	h := mix(uint64(len(b)))
	for ; len(b) >= 8; b = b[8:] {
		h = mix(h ^ binary.LittleEndian.Uint64(b))
	}
	var rest [8]byte
	copy(rest[:], b)
	return max(mix(h^binary.LittleEndian.Uint64(rest[:])), 1)
}

func mix(h uint64) uint64 {
	hi, lo := bits.Mul64(h^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo
}
