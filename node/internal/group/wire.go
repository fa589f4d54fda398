package group

import (
	"math"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/wire"
	"github.com/dmutex/dmutex/transport"
)

// The first byte of a message of this package.
const (
	saysMore = iota + 1 // bytes of a membership.Message: more of it follows
	saysLast            // the last bytes of a membership.Message
	saysName = 15       // the name of the process
)

func nameFields(f *wire.Fields, name *string) {
	says := uint64(saysName)
	wire.Uint(f, &says, saysName)
	f.Name(name, transport.MaxName)
	f.Refuse(!membership.IsName(*name), "a name cannot be shown")
}

// roomFor returns how large frames must be in a group of so many members.
func roomFor(members int) int { return 512 + 2*members*2*wire.MaxUint }

// Parts returns a message of package membership as messages of at most size bytes for the mail.
func Parts(m *membership.Message, size int) (parts [][]byte) {
	rest := wire.Write(nil, func(f *wire.Fields) { fields(f, m, 0) })
	for ; len(rest) >= size; rest = rest[size-1:] {
		parts = append(parts, append([]byte{saysMore}, rest[:size-1]...))
	}
	return append(parts, append([]byte{saysLast}, rest...))
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
	var holds [2][]membership.Hold // alone, and shared
	for _, h := range m.Holds {
		k := 0
		if h.Shared {
			k = 1
		}
		holds[k] = append(holds[k], h)
	}
	holdFields(f, &holds[0], false)
	pastFields(f, m)
	if m.Kind == membership.Part || m.Kind == membership.Moved {
		loanFields(f, &m.Lent)
		wire.Number(f, &m.Former)
	}
	if f.More(m.Shares()) { // the last fields are left out where nothing is shared
		holdFields(f, &holds[1], true)
		if m.Past != nil {
			for i := range m.Past.Words {
				differFields(f, &m.Past.Words[i].Alone)
			}
		}
	}
	if m.Holds == nil { // it is read
		m.Holds = slices.Concat(holds[0], holds[1])
	}
}

func holdFields(f *wire.Fields, holds *[]membership.Hold, shared bool) {
	wire.List(f, holds, math.MaxInt, func(h *membership.Hold) {
		f.Name(&h.Lock, transport.MaxName)
		wire.Number(f, &h.Fence)
		h.Shared = shared
	})
}

// maxKey bounds the key of a loan.
const maxKey = 32

func loanFields(f *wire.Fields, loans *[]membership.Loan) {
	wire.List(f, loans, math.MaxInt, func(l *membership.Loan) {
		f.Name(&l.Lock, transport.MaxName)
		f.Name(&l.Key, maxKey)
	})
}

func differFields(f *wire.Fields, differs *[]membership.Differ) {
	wire.List(f, differs, math.MaxInt, func(d *membership.Differ) {
		f.Name(&d.Lock, transport.MaxName)
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
		f.Name(&of.Name, transport.MaxName)
		f.Refuse(of.Name != "" && !membership.IsName(of.Name), "a name cannot be shown")
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
