package membership

import (
	"cmp"
	"math"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/leases"
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

// LeaseConfig describes a life and its group in the lease mode.
type LeaseConfig struct {
	Life    uint64 // drawn at random, so that no other life has it; not 0
	Address string // where others reach this life; at most 256 bytes
	Name    string // for people; see [IsName]

	// What all members must agree on.
	Lease    int64  // nanoseconds that a member may hold locks after it was last seen to be one: leases.Min to leases.Max
	Settings string // compared for equality; as long as a session takes

	Fence, Clock uint64 // as in [Config]
	Proves       bool   // the store can prove that a process is dead: this life joins after a [Live]
	Serves       bool   // it serves clients
}

// NewLease returns a life that wants to join. It refuses an Address that is too long with
// [dmutex.ErrMisuse].
func NewLease(cfg LeaseConfig) (*LeaseMachine, error) {
	if len(cfg.Address) > maxAddress {
		return nil, dmutex.Misuse("the address of the link has more than 256 bytes: choose a shorter one to advertise")
	}
	cfg.Clock = min(cfg.Clock, maxClock)
	return &LeaseMachine{
		register: newRegister(cfg.Lease), clearing: newClearing(cfg.Lease), rejoining: newRejoining(),
		cfg: cfg, speak: protocol.Spoken, now: math.MinInt64, troubleAt: never, term: leases.Term{Length: cfg.Lease},
	}, nil
}

// Phase returns the phase of this life.
func (m *LeaseMachine) Phase() Phase { return m.phase(m.ended, m.acting) }

// Err returns why the phase is Stopped: an [ErrRecord] or a [SettingsError].
func (m *LeaseMachine) Err() error { return m.err }

// Self returns the number that the record has given to this life, [dmutex.None] while it is not
// a member.
func (m *LeaseMachine) Self() dmutex.NodeID { return m.self }

// Record returns what the store held when it was last read, the zero Record if nothing. The
// caller must not change it.
func (m *LeaseMachine) Record() Record { return m.record }

// Missing appends the members that are not there, or whose report the view lacks.
func (m *LeaseMachine) Missing(b []dmutex.NodeID) []dmutex.NodeID {
	for i := range m.peers {
		if p := &m.peers[i]; m.ended == Outside && (!p.here || m.lacks(p.node)) {
			b = append(b, p.node)
		}
	}
	return b
}

// Here reports whether a member was met, and is not lost or dead since, and when that changed last.
func (m *LeaseMachine) Here(node dmutex.NodeID) (here bool, since int64) {
	if p := m.peer(node); p != nil {
		here, since = p.here, p.since
	}
	return here, since
}

// Waits returns until when this life waits for the leases of excluded members to end, unless it
// hears earlier that they have, and the numbers of those members, as far as it knows them. It
// returns 0 if it does not wait. Unless all locks wait, the view acts or lacks a report: see Past.
func (m *LeaseMachine) Waits() (until int64, members []dmutex.NodeID, all bool) {
	if m.cleared >= m.record.Unclean || m.ended != Outside {
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
	return m.since + m.wait, members, m.self == dmutex.None || m.isComplete() && m.cleared < m.blind
}

// Provable reports whether the wait that Waits tells of may end by [LeaseMachine.Living].
func (m *LeaseMachine) Provable() bool {
	return m.ended == Outside && m.provable(m.record.Unclean, &m.record)
}

// Deadline returns when Tick has something to do, or the term of this life will stand otherwise;
// [math.MaxInt64] for never.
func (m *LeaseMachine) Deadline() int64 {
	at := int64(never)
	for _, t := range [...]int64{m.nextLoad(), m.nextChange(), m.term.Next(m.now), m.dueAt(m.record.Unclean)} {
		if t > m.now && m.ended == Outside { // what was due before waits for something else
			at = min(at, t)
		}
	}
	return at
}

// impossible says why no correct peer sends msg, and "" if one may.
func (m *LeaseMachine) impossible(p *peer, msg *Message) string {
	v := &msg.View
	switch {
	case p == nil || p.proved:
		return "the sender is no member, or is proved to be dead"
	case msg.To != m.self:
		return "it is not for this node"
	case msg.Kind != Decide && msg.Kind != Report && msg.Kind != Cleared && msg.Kind != Part && msg.Kind != Moved:
		return "its kind is not of the lease mode"
	case msg.Cleared > max(m.cfg.Clock, m.record.Epoch)+day:
		return "it tells of the end of leases that are yet to be given"
	case (&Parting{msg.Lent}).wrong():
		return "it tells of locks in no order"
	case msg.Kind == Moved && len(msg.Lent) != 1:
		return "it tells of no lock"
	case msg.Kind >= Cleared:
		return ""
	case v.Epoch == 0 || v.Epoch > maxEpoch:
		return "its view has no epoch"
	case msg.Kind == Decide:
		return ""
	case !v.Has(p.node, p.life) || !v.Has(m.self, m.cfg.Life):
		return "the sender or this life is not in the view of the report"
	}
	return cmp.Or(m.installation.impossible(v), msg.Past.impossible(v.Epoch))
}
