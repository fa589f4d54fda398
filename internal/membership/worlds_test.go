package membership

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/dmutex/dmutex/internal/search"
)

// The worlds of both modes share steps, locks, and catalogs.

type verb uint8

const (
	deliver verb = iota
	meet
	tick
	report
	release
	rename
	end
	start
	acquire
	crash
	leave
	evict
	alarm
	cut
	slander

	// Of the lease mode only.
	load    // the record is loaded again
	answer  // the store answers
	lose    // the answer is given up
	swap    // the swap takes effect
	land    // the swap takes effect after it was given up
	serve   // the store carries out an operation and answers at once
	slow    // the store does not do so at once
	suspect // one life gives another up
	settle  // a hold that ended between the report and the view's first act ends in the view
	pass    // a unit of time passes
	wipe    // the record is gone
	look    // one life asks the store who lives
	see     // the store answers who lives
)

func (v verb) String() string {
	return [...]string{"deliver", "meets", "tick", "reports", "releases", "takes a higher number", "ends", "starts", "acquires", "crashes", "leaves", "evicts", "has trouble", "loses its session with", "lies to"}[v]
}

// An action is something that may happen next.
type action struct {
	do   verb
	i, j int // members, or of deliver the place on the wire
}

// A lock is the lock of one view.
type lock struct {
	view             uint32
	holder, reported uint8 // members or places, from 1: who has it, and who had it by the reports
}

func appendLocks(b []byte, locks []lock) []byte {
	b = append(b, byte(len(locks)))
	for _, k := range locks {
		b = append(binary.LittleEndian.AppendUint32(b, k.view), k.holder, k.reported)
	}
	return b
}

func appendNumbered(b []byte, ids []uint32) []byte {
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return b
}

func bit(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// A catalog numbers values by their text, from 1.
type catalog[T any] struct {
	all []T
	ids map[string]uint32
}

func newCatalog[T any]() catalog[T] { return catalog[T]{make([]T, 1), map[string]uint32{}} }

func (c *catalog[T]) number(text []byte, v T) uint32 {
	id, ok := c.ids[string(text)]
	if !ok {
		id = uint32(len(c.all))
		c.all = append(c.all, v)
		c.ids[string(text)] = id
	}
	return id
}

// A viewCatalog numbers views.
type viewCatalog struct{ catalog[View] }

// lock adds the lock of a view to locks, which are in the order of epochs.
func (c *viewCatalog) lock(locks []lock, v View, holder uint8) []lock {
	k := slices.IndexFunc(locks, func(k lock) bool { return c.all[k.view].Epoch >= v.Epoch })
	if k < 0 {
		k = len(locks)
	}
	return slices.Insert(locks, k, lock{c.number(appendView(nil, "", v), v), holder, holder})
}

// find returns the lock of a life's view, nil if there is none. With thaw, it may also be the lock of
// the latest view with that life.
func (c *viewCatalog) find(locks []lock, view *View, who Member, thaw bool) (found *lock) {
	for k := range locks {
		v := &c.all[locks[k].view]
		if v.Epoch == view.Epoch && slices.Equal(v.Members, view.Members) {
			return &locks[k]
		}
		if thaw && v.Has(who.Node, who.Life) {
			found = &locks[k]
		}
	}
	return found
}

// errWrong is the kind of all violations of a world.
var errWrong = errors.New("wrong")

// wrongf returns what is wrong with a world.
func wrongf(format string, args ...any) error { return search.Wrong(errWrong, format, args...) }

// stuckAt returns what is wrong with lives that wait forever.
func stuckAt(waiting []string) error { return wrongf("stuck: %s", strings.Join(waiting, ", ")) }

// script writes a run to what is wrong.
func script(told string, v *search.Violation) string { return told + "\n" + v.Why + "\n" }
