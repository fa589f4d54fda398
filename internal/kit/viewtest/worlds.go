package viewtest

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/search"
)

// A Lock is the lock of one view.
type Lock struct {
	View             uint32
	Holder, Reported uint8 // members or places, from 1: who has it, and who had it by the reports
}

// AppendLocks appends the state of locks.
func AppendLocks(b []byte, locks []Lock) []byte {
	b = append(b, byte(len(locks)))
	for _, k := range locks {
		b = append(binary.LittleEndian.AppendUint32(b, k.View), k.Holder, k.Reported)
	}
	return b
}

// AppendNumbered appends the numbers of what a catalog has.
func AppendNumbered(b []byte, ids []uint32) []byte {
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return b
}

// Bit returns 1 if it is set, else 0.
func Bit(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// A Catalog numbers values by their text, from 1.
type Catalog[T any] struct {
	All []T
	ids map[string]uint32
}

// NewCatalog returns an empty one.
func NewCatalog[T any]() Catalog[T] { return Catalog[T]{make([]T, 1), map[string]uint32{}} }

// Number returns the number of a value, a new one if its text is new.
func (c *Catalog[T]) Number(text []byte, v T) uint32 {
	id, ok := c.ids[string(text)]
	if !ok {
		id = uint32(len(c.All))
		c.All = append(c.All, v)
		c.ids[string(text)] = id
	}
	return id
}

// A ViewCatalog numbers views.
type ViewCatalog struct{ Catalog[membership.View] }

// Lock adds the lock of a view to locks, which are in the order of epochs.
func (c *ViewCatalog) Lock(locks []Lock, v membership.View, holder uint8) []Lock {
	k := slices.IndexFunc(locks, func(k Lock) bool { return c.All[k.View].Epoch >= v.Epoch })
	if k < 0 {
		k = len(locks)
	}
	return slices.Insert(locks, k, Lock{c.Number(AppendView(nil, "", v), v), holder, holder})
}

// Find returns the lock of a life's view, nil if there is none. With thaw, it may also be the lock of
// the latest view with that life.
func (c *ViewCatalog) Find(locks []Lock, view *membership.View, who membership.Member, thaw bool) (found *Lock) {
	for k := range locks {
		v := &c.All[locks[k].View]
		if v.Epoch == view.Epoch && slices.Equal(v.Members, view.Members) {
			return &locks[k]
		}
		if thaw && v.Has(who.Node, who.Life) {
			found = &locks[k]
		}
	}
	return found
}

// ErrWrong is the kind of all violations of a world.
var ErrWrong = errors.New("wrong")

// Wrongf returns what is wrong with a world.
func Wrongf(format string, args ...any) error { return search.Wrong(ErrWrong, format, args...) }

// StuckAt returns what is wrong with lives that wait forever.
func StuckAt(waiting []string) error { return Wrongf("stuck: %s", strings.Join(waiting, ", ")) }

// Script writes a run to what is wrong.
func Script(told string, v *search.Violation) string { return told + "\n" + v.Why + "\n" }
