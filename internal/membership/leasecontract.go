package membership

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/protocol"
)

// ErrSettings is wrapped by the error of a life that was configured differently from the
// members of the group.
var ErrSettings = errors.New("membership: the group has other settings")

// LeaseConfig describes a life and its group in the lease mode.
type LeaseConfig struct {
	Life    uint64 // drawn at random, so that no other life has it; not 0
	Address string // where others reach this life; at most 256 bytes
	Name    string // for people; see [IsName]

	// What all members must agree on.
	Lease    int64  // nanoseconds that a member may hold locks after it was last seen to be one
	Settings string // compared for equality; as long as a session takes

	Fence, Clock uint64 // as in [Config]
	Proves       bool   // the store can prove that a process is dead: this life joins after a [Live]
}

// Operation is what a [LeaseMachine] wants of the store.
type Operation uint8

// The operations.
const (
	NoOperation Operation = iota
	Load                  // read the value, linearizably
	Swap                  // write the value, if the store has what this life was shown last
	Live                  // begin a life of the store, which is over when this life can hold nothing any more
)

// NewLease returns a life that wants to join. It refuses an invalid LeaseConfig with
// [dmutex.ErrMisuse].
func NewLease(cfg LeaseConfig) (*LeaseMachine, error) {
	switch {
	case cfg.Lease < leases.Min || cfg.Lease > leases.Max:
		return nil, dmutex.Misuse("LeaseConfig.Lease is " + strconv.FormatInt(cfg.Lease, 10) + " ns: it must be from 100 ms to 1 h")
	case len(cfg.Address) > maxAddress:
		return nil, dmutex.Misuse("LeaseConfig.Address has more than 256 bytes")
	case cfg.Fence>>63 != 0:
		return nil, dmutex.Misuse("LeaseConfig.Fence is 1<<63 or more: what is above is for the epochs that follow")
	}
	cfg.Clock = min(cfg.Clock, maxClock)
	return &LeaseMachine{
		cfg: cfg, speak: protocol.Spoken, drain: leases.Drain(cfg.Lease), wait: leases.Drain(cfg.Lease), now: math.MinInt64, stale: true, loadAt: math.MinInt64,
		hintAt: never, renewAt: never, joinAt: math.MinInt64, troubleAt: never,
	}, nil
}

// Phase returns the phase of this life.
func (m *LeaseMachine) Phase() Phase { return m.phase(m.ended, m.acting) }

// Err returns why the phase is Stopped: an [ErrRecord], an [ErrSettings] or an [ErrFull].
func (m *LeaseMachine) Err() error { return m.err }

// Self returns the number that the record has given to this life, [dmutex.None] while it is not
// a member.
func (m *LeaseMachine) Self() dmutex.NodeID { return m.self }

// Record returns what the store held when it was last read, the zero Record if nothing. The
// caller must not change it.
func (m *LeaseMachine) Record() Record { return m.record }

// Exclusions returns how often this life was excluded.
func (m *LeaseMachine) Exclusions() int { return m.exclusions }

// LeaseEnd returns when this life holds nothing any more: whatever it held must have been given
// up before. While it is not a member that is the lowest number.
func (m *LeaseMachine) LeaseEnd() int64 {
	if m.self == dmutex.None || m.ended != Outside {
		return math.MinInt64
	}
	return m.leaseFrom + m.cfg.Lease
}

// Suspended reports, as of the last input, whether the renewal of the lease is late.
func (m *LeaseMachine) Suspended() bool {
	return m.ended == Outside && m.now >= m.suspendAt()
}

func (m *LeaseMachine) suspendAt() int64 {
	if m.self == dmutex.None {
		return never
	}
	return m.leaseFrom + m.cfg.Lease/leases.Renew*2
}

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

// Past returns what is known of excluded lives in the view that acts. It does not change.
func (m *LeaseMachine) Past() *Past {
	past := m.past
	return &past
}

// Cleared returns the last exclusion whose leases have ended, as far as this life knows.
func (m *LeaseMachine) Cleared() uint64 { return m.cleared }

// Operation returns what is to be started at the store, each operation once, and for a swap the
// value to write. There is at most one at a time.
func (m *LeaseMachine) Operation() (op Operation, value []byte) {
	if m.op == NoOperation || m.asked || m.ended != Outside {
		return NoOperation, nil
	}
	if m.asked = true; m.op == Swap {
		value = []byte(m.next.text())
	}
	return m.op, value
}

// Deadline returns when Tick has something to do, or [math.MaxInt64] for never.
func (m *LeaseMachine) Deadline() int64 {
	at, waited := int64(never), int64(never)
	if m.cleared < m.record.Unclean {
		waited = m.dueSince + m.wait
	}
	for _, t := range [...]int64{m.nextLoad(), m.nextChange(), m.suspendAt(), waited} {
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
	case p == nil || !p.here:
		return "the sender was not met"
	case msg.To != m.self:
		return "it is not for this node"
	case msg.Kind != Decide && msg.Kind != Report && msg.Kind != Cleared:
		return "its kind is not of the lease mode"
	case msg.Cleared > max(m.cfg.Clock, m.record.Epoch)+day:
		return "it tells of the end of leases that are yet to be given"
	case msg.Kind == Cleared:
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
