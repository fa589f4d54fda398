package lease

import (
	"errors"
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/names"
	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/internal/recordtext"
)

// ErrRecord is wrapped by the errors of a record that cannot be relied on: it is malformed, it
// is gone, or it contradicts what was read before.
var ErrRecord = errors.New("membership: bad record")

// A Record is what the store holds about a group. Every change has a higher
// epoch.
type Record struct {
	Epoch    uint64
	Unclean  uint64        // the last epoch that excluded a member; 0 if none has
	Unproved uint64        // the last epoch that excluded one without a Proof; 0 if none has
	Cleared  uint64        // the last exclusion that is cleared: the leases of all members that were excluded until then have ended
	Highest  dmutex.NodeID // the highest number that was ever given to a member

	// All members must agree on these.
	Lease    int64  // nanoseconds
	Settings string // compared for equality

	Members []Entry // ascending by Node
}

// An Entry is a member in a [Record], and where to reach it.
type Entry struct {
	membership.Member
	Speaks  protocol.Versions
	Proof   string // names what the store proves to be over; empty if it proves nothing
	Address string // means nothing to this package
	Name    string // for people; see package names
}

const (
	// maxRecord bounds the text of a record, which every store takes.
	maxRecord = 64 << 10

	maxAddress = 256

	recordHeader = "dmutex record 4\n"
)

// MarshalText returns the record as lines of text. It returns [ErrRecord] for a record that
// UnmarshalText would refuse.
func (r Record) MarshalText() ([]byte, error) {
	text := r.text()
	switch why := r.invalid(); {
	case why != "":
		return nil, badRecord(why)
	case len(text) > maxRecord:
		return nil, badRecord("it has no room for another member")
	}
	return []byte(text), nil
}

func (r *Record) text() string {
	n := func(v uint64) string { return strconv.FormatUint(v, 10) }
	text := []byte(recordHeader + "epoch " + n(r.Epoch) + "\nunclean " + n(r.Unclean) + "\nunproved " + n(r.Unproved) +
		"\ncleared " + n(r.Cleared) + "\nhighest " + n(uint64(r.Highest)) + "\nlease " + n(uint64(r.Lease)) +
		"\nsettings " + strconv.Quote(r.Settings) + "\n")
	for _, m := range r.Members { // thousands, in a text that nobody has written so
		text = append(text, "member "+n(uint64(m.Node))+" "+n(m.Life)+" "+n(m.Speaks.Oldest)+" "+n(m.Speaks.Newest)+
			" "+m.Proof+" "+strconv.Quote(m.Address)+" "+strconv.Quote(m.Name)+"\n"...)
	}
	return string(text)
}

// UnmarshalText reads what MarshalText has written, and nothing else. It returns [ErrRecord]
// for any other text, and then leaves the record as it was.
func (r *Record) UnmarshalText(text []byte) error {
	rest := string(text)
	if len(rest) > maxRecord {
		return badRecord("it is too long")
	}
	if rest[:min(len(recordHeader), len(rest))] != recordHeader {
		return badRecord("it does not begin with " + strconv.Quote(recordHeader) + ": stop all members, delete it, and start them again")
	}
	rest = rest[len(recordHeader):]
	next := func() string { return recordtext.Word(&rest) }
	number := func() uint64 {
		v, _ := strconv.ParseUint(next(), 10, 64)
		return v
	}
	field := func() uint64 {
		next()
		return number()
	}
	read := Record{Epoch: field(), Unclean: field(), Unproved: field(), Cleared: field(), Highest: dmutex.NodeID(field()), Lease: int64(field())}
	next()
	read.Settings = next()
	for rest != "" {
		read.Members = append(read.Members, Entry{
			membership.Member{Node: dmutex.NodeID(field()), Life: number()}, protocol.Versions{Oldest: number(), Newest: number()}, next(), next(), next(),
		})
	}
	if read.text() != string(text) {
		return badRecord("it is malformed")
	}
	if why := read.invalid(); why != "" {
		return badRecord(why)
	}
	*r = read
	return nil
}

// invalid says why no life can have written the record, and "" if one can.
func (r *Record) invalid() string {
	switch {
	case r.Epoch == 0 || r.Epoch > epochs.Max:
		return "its epoch is out of range"
	case r.Unclean > r.Epoch:
		return "it excluded a member in an epoch that is yet to come"
	case r.Unproved > r.Unclean:
		return "it excluded a member without a proof when it excluded none"
	case r.Cleared > r.Unclean:
		return "it has cleared an exclusion that is yet to come"
	case len(r.Members) > membership.MaxMembers:
		return "it has more than 64 members"
	case r.Lease < leases.Min || r.Lease > leases.Max:
		return "its lease is out of range"
	}
	for i, m := range r.Members {
		switch {
		case m.Node == dmutex.None || m.Node > r.Highest || m.Life == 0 || i > 0 && r.Members[i-1].Node >= m.Node:
			return "its members are not in order"
		case !recordtext.IsLife(m.Proof):
			return "it names a proof that is none"
		case !names.Is(m.Name):
			return "it has a name that cannot be shown"
		case slices.ContainsFunc(r.Members[:i], func(e Entry) bool { return e.Life == m.Life }):
			return "it names a life twice"
		}
	}
	return ""
}

// exclude notes that this epoch excludes a member with that proof (5.1).
func (r *Record) exclude(proof string) {
	if r.Unclean = r.Epoch; proof == "" {
		r.Unproved = r.Epoch
	}
}

// drop excludes members.
func (r *Record) drop(dead func(Entry) bool) {
	r.Members = slices.DeleteFunc(r.Members, func(e Entry) bool {
		if !dead(e) {
			return false
		}
		r.exclude(e.Proof)
		return true
	})
}

// number returns the number of a life in the record, [dmutex.None] if it is not a member.
func (r *Record) number(life uint64) dmutex.NodeID {
	for _, m := range r.Members {
		if m.Life == life {
			return m.Node
		}
	}
	return dmutex.None
}

// view returns the view that the record decides.
func (r *Record) view() membership.View {
	v := membership.View{Epoch: r.Epoch}
	for _, m := range r.Members {
		v.Members = append(v.Members, m.Member)
	}
	return v
}

// A badRecord is an [ErrRecord] that says why.
type badRecord string

func (why badRecord) Error() string { return ErrRecord.Error() + ": " + string(why) }
func (why badRecord) Unwrap() error { return ErrRecord }
