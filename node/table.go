package node

import (
	"hash/maphash"
	"iter"
)

// A table finds the locks of a shard by name. Its chains run through the locks
// themselves, so that a lock costs 12 bytes or less; and when locks are
// forgotten it shrinks, which a Go map does not.
type table struct {
	seed   maphash.Seed
	chains []*lock // by hash; a power of two of them
	count  int
}

// find returns the lock of that name, nil if there is none.
func (t *table) find(hash uint64, name string) *lock {
	l := t.chain(hash)
	for l != nil && l.name != name {
		l = l.next
	}
	return l
}

// findBytes is find for a name that is not a string yet.
func (t *table) findBytes(hash uint64, name []byte) *lock {
	l := t.chain(hash)
	for l != nil && l.name != string(name) {
		l = l.next
	}
	return l
}

func (t *table) chain(hash uint64) *lock {
	if len(t.chains) == 0 {
		return nil
	}
	return *t.head(hash)
}

// head returns where the chain of that hash begins. The low bits have chosen the
// shard.
func (t *table) head(hash uint64) **lock {
	return &t.chains[hash/shards%uint64(len(t.chains))]
}

func (t *table) add(hash uint64, l *lock) {
	if t.count >= 2*len(t.chains) {
		t.resize(max(4, 2*len(t.chains)))
	}
	t.count++
	head := t.head(hash)
	l.next, *head = *head, l
}

func (t *table) remove(l *lock) {
	at := t.head(maphash.String(t.seed, l.name))
	for *at != l {
		at = &(*at).next
	}
	*at, l.next = l.next, nil
	t.count--
	if n := len(t.chains); n > 4 && t.count < n/4 {
		t.resize(n / 2)
	}
}

func (t *table) resize(n int) {
	old := t.chains
	t.chains = make([]*lock, n)
	for _, l := range old {
		for l != nil {
			next := l.next
			head := t.head(maphash.String(t.seed, l.name))
			l.next, *head = *head, l
			l = next
		}
	}
}

// all yields every lock, in no order. No lock may be added or removed meanwhile.
func (t *table) all() iter.Seq[*lock] {
	return func(yield func(*lock) bool) {
		for _, l := range t.chains {
			for ; l != nil; l = l.next {
				if !yield(l) {
					return
				}
			}
		}
	}
}
