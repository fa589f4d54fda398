package maekawa

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
)

// The rest of the contract of [dmutex.Machine].

var (
	_ dmutex.Lender   = (*machine)(nil)
	_ dmutex.Excluder = (*machine)(nil)
)

func (m *machine) impossible(msg dmutex.Message) string {
	r := about(msg)
	waits := m.waiting(msg.From)
	switch msg.Kind {
	case dmutex.Request:
		if waits != 0 && waits < r.Clock {
			return "the sender's last request still waits"
		}
	case dmutex.Release:
		if waits == r.Clock {
			return "the sender was not granted it"
		}
	case dmutex.Yield:
		switch {
		case r == m.vote && !m.asked:
			return "nobody asked for the vote back"
		case r == m.vote && waits != 0:
			return "the sender has a later request"
		}
	case dmutex.Reply, dmutex.Failed, dmutex.Inquire:
		if !slices.Contains(m.quorum, msg.From) {
			return "the sender is not in this node's quorum"
		}
	default:
		return "Maekawa's algorithm has no such message"
	}
	return ""
}

// WaitsFor implements [dmutex.Machine]: the arbiters whose vote is missing. One of
// them, or this node itself, has voted for the holder.
func (m *machine) WaitsFor(b []dmutex.NodeID) []dmutex.NodeID {
	if !m.Pending() {
		return b
	}
	for k, arbiter := range m.quorum {
		if !m.ballots[k].locked && arbiter != m.Self() {
			b = append(b, arbiter)
		}
	}
	return b
}

// Lends implements [dmutex.Lender]: it returns the node that has the vote.
func (m *machine) Lends() dmutex.NodeID { return m.vote.Node }

// Excludes implements [dmutex.Excluder]: a node enters only if it has the vote of its whole
// quorum. One that was asked for our vote back still has it.
func (m *machine) Excludes(peer dmutex.NodeID) bool {
	return m.Site.Excludes(peer) || m.vote.Node != peer && m.votesFor(peer)
}

func (m *machine) Forget() (clock, known uint64, ok bool) {
	return m.Clock(), m.Known(), m.Idle() && m.vote.Clock == 0 && len(m.queue) == 0
}

// Declare implements [dmutex.Declarer]. The quorums of all members are summed up by FNV-1a.
func (m *machine) Declare() string {
	sum := uint64(14695981039346656037)
	for _, site := range m.Members() {
		for _, k := range append(slices.Sorted(slices.Values(m.quorums(m.Members(), site))), dmutex.None) {
			sum = (sum ^ uint64(k)) * 1099511628211
		}
	}
	return "maekawa/1 quorums " + strconv.FormatUint(sum, 16)
}

func (m *machine) AppendText(b []byte) ([]byte, error) {
	b = m.AppendSite(append(b, "maekawa "...))
	for k, arbiter := range m.quorum {
		b = canon.Number(b, " arbiter ", uint64(arbiter))
		b = canon.Flag(b, " locked", m.ballots[k].locked)
		b = canon.Flag(b, " failed", m.ballots[k].failed)
		b = canon.Flag(b, " yielded", m.ballots[k].yielded)
		b = canon.Flag(b, " inquired", m.ballots[k].inquired)
	}
	if m.vote.Clock != 0 {
		b = m.vote.AppendTo(append(b, " vote "...))
		b = canon.Flag(b, " asked", m.asked)
	}
	for _, e := range m.queue {
		b = e.request.AppendTo(append(b, " queued "...))
		b = canon.Flag(b, " told", e.told)
	}
	return b, nil
}

func (m *machine) Clone() dmutex.Machine {
	c := *m
	c.Site = m.Site.Clone()
	c.ballots = slices.Clone(m.ballots)
	c.queue = slices.Clone(m.queue)
	return &c
}
