package group

import (
	"math"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/names"
	"github.com/dmutex/dmutex/internal/wire"
	"github.com/dmutex/dmutex/lock"
)

// The first byte of a message of this package.
const (
	saysMore = iota + 1 // bytes of a membership.Message: more of it follows
	saysLast            // the last bytes of a membership.Message
	saysSome            // the same of a part of one: more of its lists follow in messages of their own
	saysName = 15       // the name of the process
)

func nameFields(f *wire.Fields, name *string) {
	says := uint64(saysName)
	wire.Uint(f, &says, saysName)
	f.Name(name, lock.MaxName)
	f.Refuse(!names.Is(*name), "a name cannot be shown")
}

// roomFor returns how large frames must be in a group of so many members.
func roomFor(members int) int { return 512 + 2*members*2*wire.MaxUint }

// Parts returns a message of package membership as messages of at most size bytes for the mail.
func Parts(m *membership.Message, size int) (parts [][]byte) {
	for rest := []membership.Message{*m}; len(rest) > 0; {
		parts = append(parts, next(&rest, size)...)
	}
	return parts
}

// next encodes the first of the messages, or if it is long as much of that as fits into a few frames, and
// takes it out: so neither side takes long for what it does at once, however many locks are held.
func next(rest *[]membership.Message, size int) (parts [][]byte) {
	m, says, b := (*rest)[0], byte(saysLast), []byte{saysMore}
	if some := cut(&m); some != nil {
		(*rest)[0] = m
		m, says, b = *some, saysSome, slices.Grow(b, atOnce+atOnce/4)
	} else {
		*rest = (*rest)[1:]
	}
	b = wire.Write(b, func(f *wire.Fields) { fields(f, &m, 0) })
	for ; len(b) > size; b[0] = saysMore {
		parts = append(parts, b[:size:size])
		b = append([]byte{0}, b[size:]...)
	}
	b[0] = says
	return append(parts, b)
}

// atOnce bounds what is encoded, or decoded, at once, in bytes, about.
const atOnce = 48 << 10

// cut takes some of the lists out of a message that is long, and returns them as a message by itself; nil if
// it is not long.
func cut(m *membership.Message) *membership.Message {
	room := atOnce
	some, rest := &membership.Message{Kind: m.Kind}, *m
	loanName := func(l *membership.Loan) string { return l.Lock + l.Key }
	some.Holds, rest.Holds = first(m.Holds, &room, func(h *membership.Hold) string { return h.Lock })
	some.Lent, rest.Lent = first(m.Lent, &room, loanName)
	if m.Past != nil {
		some.Past, rest.Past = new(membership.Past), &membership.Past{Former: m.Past.Former, Words: m.Past.Words}
		for room > 0 && len(rest.Past.Former) > 0 {
			former, left := rest.Past.Former[0], rest.Past.Former[0]
			if of := former.Parting; of != nil {
				former.Parting, left.Parting = new(membership.Parting), new(membership.Parting)
				former.Parting.Lent, left.Parting.Lent = first(of.Lent, &room, loanName)
			}
			some.Past.Former = append(some.Past.Former, former)
			if rest.Past.Former = rest.Past.Former[1:]; room <= 0 {
				rest.Past.Former = append([]membership.Former{left}, rest.Past.Former...)
			}
			room -= 2*wire.MaxUint + len(former.Name)
		}
		for room > 0 && len(rest.Past.Words) > 0 {
			word, left := rest.Past.Words[0], rest.Past.Words[0]
			word.Differs, left.Differs = first(left.Differs, &room, func(d *membership.Differ) string { return d.Lock })
			word.Alone, left.Alone = first(left.Alone, &room, func(d *membership.Differ) string { return d.Lock })
			some.Past.Words = append(some.Past.Words, word)
			if rest.Past.Words = rest.Past.Words[1:]; room <= 0 {
				rest.Past.Words = append([]membership.Word{left}, rest.Past.Words...)
			}
			room -= 4 * wire.MaxUint * len(word.Members)
		}
	}
	if room > 0 {
		return nil
	}
	*m = rest
	return some
}

// first splits a list where the room ends.
func first[T any](list []T, room *int, name func(*T) string) (some, rest []T) {
	n := 0
	for ; n < len(list) && *room > 0; n++ {
		*room -= len(name(&list[n])) + wire.MaxUint
	}
	return list[:n:n], list[n:]
}

// records returns how much memory a message and the elements of its lists take beside their names, about.
func records(m *membership.Message) (n int) {
	const small, large, message = 32, 128, 512
	views := len(m.Installed.Members) + len(m.Completed.Members) + len(m.View.Members)
	if n = message + large*views + small*(len(m.Holds)+len(m.Lent)); m.Past == nil {
		return n
	}
	for _, f := range m.Past.Former {
		if n += large; f.Parting != nil {
			n += small * len(f.Parting.Lent)
		}
	}
	for _, w := range m.Past.Words {
		n += large + small*(len(w.Members)+len(w.Differs)+len(w.Alone))
	}
	return n
}

// join returns the message that was cut into these.
func join(all []membership.Message) membership.Message {
	m, holds, lent := all[0], make([][]membership.Hold, len(all)), make([][]membership.Loan, len(all))
	for i, part := range all {
		if holds[i], lent[i] = part.Holds, part.Lent; i > 0 && m.Past != nil && part.Past != nil {
			joinPast(m.Past, part.Past)
		}
	}
	past := m.Past
	m = all[len(all)-1]
	m.Holds, m.Lent, m.Past = slices.Concat(holds...), slices.Concat(lent...), past
	return m
}

// joinPast adds what came later of a past. Its last former, or word, may go on in the first of what came later.
func joinPast(p, more *membership.Past) {
	for _, f := range more.Former {
		if last := len(p.Former) - 1; last >= 0 && p.Former[last].Node == f.Node && p.Former[last].Parting != nil && f.Parting != nil {
			p.Former[last].Parting.Lent = append(p.Former[last].Parting.Lent, f.Parting.Lent...)
		} else {
			p.Former = append(p.Former, f)
		}
	}
	for _, w := range more.Words {
		if last := len(p.Words) - 1; last >= 0 && p.Words[last].Node == w.Node && p.Words[last].Epoch == w.Epoch && p.Words[last].Of == w.Of {
			of := &p.Words[last]
			of.Differs, of.Alone = append(of.Differs, w.Differs...), append(of.Alone, w.Alone...)
		} else {
			p.Words = append(p.Words, w)
		}
	}
}

// fields describes all fields but From and To, in their order, in a group of so many members. A
// view is its epoch, and node and life of each member.
func fields(f *wire.Fields, m *membership.Message, members int) {
	wire.Uint(f, &m.Kind, math.MaxUint8)
	wire.Number(f, &m.Round)
	f.Bool(&m.Leaving)
	wire.Number(f, &m.Life)
	for _, v := range []*membership.View{&m.Installed, &m.Completed, &m.View} {
		wire.Number(f, &v.Epoch)
		wire.List(f, &v.Members, members, func(who *membership.Member) {
			wire.Number(f, &who.Node)
			wire.Number(f, &who.Life)
		})
	}
	wire.Number(f, &m.Speaks.Oldest)
	wire.Number(f, &m.Speaks.Newest)
	wire.Number(f, &m.Cleared)
	alone, shared := m.Holds, []membership.Hold(nil)
	if slices.ContainsFunc(m.Holds, func(h membership.Hold) bool { return h.Shared }) {
		alone, shared = parted(m.Holds)
	}
	holdFields(f, &alone, false)
	pastFields(f, m)
	if m.Kind == membership.Part || m.Kind == membership.Moved {
		loanFields(f, &m.Lent)
		wire.Number(f, &m.Former)
	}
	if f.More(m.Shares()) { // the last fields are left out where nothing is shared
		holdFields(f, &shared, true)
		if m.Past != nil {
			for i := range m.Past.Words {
				differFields(f, &m.Past.Words[i].Alone)
			}
		}
	}
	if m.Holds == nil { // it is read
		m.Holds = append(alone, shared...)
	}
}

// parted returns the holds that are not shared, and those that are.
func parted(holds []membership.Hold) (alone, shared []membership.Hold) {
	for _, h := range holds {
		if h.Shared {
			shared = append(shared, h)
		} else {
			alone = append(alone, h)
		}
	}
	return alone, shared
}

func holdFields(f *wire.Fields, holds *[]membership.Hold, shared bool) {
	wire.List(f, holds, math.MaxInt, func(h *membership.Hold) {
		f.Name(&h.Lock, lock.MaxName)
		wire.Number(f, &h.Fence)
		if h.Shared != shared { // it is read; others may read what is written
			h.Shared = shared
		}
	})
}

// maxKey bounds the key of a loan.
const maxKey = 32

func loanFields(f *wire.Fields, loans *[]membership.Loan) {
	wire.List(f, loans, math.MaxInt, func(l *membership.Loan) {
		f.Name(&l.Lock, lock.MaxName)
		f.Name(&l.Key, maxKey)
	})
}

func differFields(f *wire.Fields, differs *[]membership.Differ) {
	wire.List(f, differs, math.MaxInt, func(d *membership.Differ) {
		f.Name(&d.Lock, lock.MaxName)
		wire.Number(f, &d.Bits)
	})
}

func pastFields(f *wire.Fields, m *membership.Message) {
	past := m.Past != nil
	if f.Bool(&past); !past {
		return
	}
	if m.Past == nil {
		m.Past = new(membership.Past)
	}
	wire.List(f, &m.Past.Former, membership.MaxFormer, func(of *membership.Former) {
		wire.Number(f, &of.Node)
		wire.Number(f, &of.Epoch)
		f.Name(&of.Name, lock.MaxName)
		f.Refuse(of.Name != "" && !names.Is(of.Name), "a name cannot be shown")
		parting := of.Parting != nil
		if f.Bool(&parting); !parting {
			return
		}
		if of.Parting == nil {
			of.Parting = new(membership.Parting)
		}
		loanFields(f, &of.Parting.Lent)
	})
	wire.List(f, &m.Past.Words, membership.MaxWords, func(word *membership.Word) {
		wire.Number(f, &word.Node)
		wire.Number(f, &word.Epoch)
		wire.List(f, &word.Members, membership.MaxMembers, func(id *dmutex.NodeID) { wire.Number(f, id) })
		wire.Number(f, &word.Of)
		differFields(f, &word.Differs)
	})
}

// readMessage reads a message of a group of so many members.
func readMessage(message []byte, members int) (m membership.Message, err error) {
	err = wire.Read(message, func(f *wire.Fields) { fields(f, &m, members) })
	return m, err
}
