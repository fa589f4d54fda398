package lease

import (
	"math"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/protocol"
)

// A SettingsError is the error of a life that cannot be a member beside another: that has another
// Lease or other Settings, or speaks no common version of the protocol.
type SettingsError struct {
	Member   dmutex.NodeID
	Speaks   protocol.Versions
	Lease    int64
	Settings string
}

func (SettingsError) Error() string { return "membership: the group has other settings" }

// Config describes a life and its group.
type Config struct {
	Life    uint64 // drawn at random, so that no other life has it; not 0
	Address string // where others reach this life; at most 256 bytes
	Name    string // for people; see package names

	// What all members must agree on.
	Lease    int64  // nanoseconds that a member may hold locks after it was last seen to be one: leases.Min to leases.Max
	Settings string // compared for equality; as long as a session takes

	// Fence is the highest fence known that was granted before, below 1<<63: every fence of a view with
	// this member will be higher.
	Fence uint64

	// Clock is the wall clock: milliseconds since 2020-01-01 UTC, until 2089. A clock before 2020 counts
	// as 0. The driver keeps it up to date with [Machine.Clock].
	Clock uint64

	Proves bool // the store can prove that a process is dead: this life joins after a [Live]
	Serves bool // it serves clients
}

// New returns a life that wants to join. It refuses an Address that is too long with
// [dmutex.ErrMisuse].
func New(cfg Config) (*Machine, error) {
	if len(cfg.Address) > maxAddress {
		return nil, dmutex.Misuse("the address of the link has more than 256 bytes: choose a shorter one to advertise")
	}
	cfg.Clock = min(cfg.Clock, epochs.MaxClock)
	return &Machine{
		register: newRegister(cfg.Lease), clearing: newClearing(cfg.Lease), rejoining: newRejoining(),
		cfg: cfg, speak: protocol.Spoken, now: math.MinInt64, troubleAt: due.Never, term: leases.Term{Length: cfg.Lease},
	}, nil
}

// Phase returns the phase of this life.
func (m *Machine) Phase() Phase { return m.phase }

// View returns the view that is installed: the zero View while this life is not a member.
func (m *Machine) View() membership.View { return m.in.View }

// Err returns why the phase is Stopped: an [ErrRecord] or a [SettingsError].
func (m *Machine) Err() error { return m.err }

// Self returns the number that the record has given to this life, [dmutex.None] while it is not
// a member.
func (m *Machine) Self() dmutex.NodeID { return m.self }

// Record returns what the store held when it was last read, the zero Record if nothing. The
// caller must not change it.
func (m *Machine) Record() Record { return m.record }

// Missing appends the members that are not there, or whose report the view lacks.
func (m *Machine) Missing(b []dmutex.NodeID) []dmutex.NodeID {
	for i := range m.peers {
		if p := &m.peers[i]; !m.ended() && (!p.here || m.in.Lacks(p.node)) {
			b = append(b, p.node)
		}
	}
	return b
}

// Here reports whether a member was met, and is not lost or dead since, and when that changed last.
func (m *Machine) Here(node dmutex.NodeID) (here bool, since int64) {
	if p := m.peer(node); p != nil {
		here, since = p.here, p.since
	}
	return here, since
}

// Waits returns until when this life waits for the leases of excluded members to end, unless it
// hears earlier that they have, and the numbers of those members, as far as it knows them. It
// returns 0 if it does not wait. Unless all locks wait, the view acts or lacks a report: see Past.
func (m *Machine) Waits() (until int64, members []dmutex.NodeID, all bool) {
	if m.cleared >= m.record.Unclean || m.ended() {
		return 0, nil, false
	}
	for _, a := range m.met {
		if a.gone > m.cleared {
			members = append(members, a.node)
		}
	}
	for _, f := range m.past.Former {
		if f.Epoch > m.cleared && !slices.Contains(members, f.Node) {
			members = append(members, f.Node)
		}
	}
	return m.since + m.wait, members, m.self == dmutex.None || m.in.IsComplete() && m.cleared < m.blind
}

// Provable reports whether the wait that Waits tells of may end by [Machine.Living].
func (m *Machine) Provable() bool {
	return !m.ended() && m.provable(m.record.Unclean, &m.record)
}

// Deadline returns when Tick has something to do, or the term of this life will stand otherwise;
// [due.Never] if nothing.
func (m *Machine) Deadline() int64 {
	at := int64(due.Never)
	for _, t := range [...]int64{m.nextLoad(), m.nextChange(), m.term.Next(m.now), m.dueAt(m.record.Unclean)} {
		if t > m.now && !m.ended() { // what was due before waits for something else
			at = min(at, t)
		}
	}
	return at
}
