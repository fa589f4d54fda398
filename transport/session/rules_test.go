package session

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryRun explores the real rules. The number of states stands here
// because a change of it is a change of the protocol or of the budget, and
// either should be meant. States cut are those with a challenge beyond the
// budget: judged, but not followed. DMUTEX_LONG=1 explores the large budgets
// too.
func TestEveryRun(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	type row struct {
		budget
		states, cut int
	}
	rows := []row{
		{budget{messages: [2]int{2, 1}, challenges: 1, window: 4}, 3141, 0},
		{budget{messages: [2]int{4, 0}, challenges: 1, window: 2}, 752, 0},
		{budget{messages: [2]int{4, 0}, challenges: 1, window: 4}, 2552, 0},
		{budget{messages: [2]int{2, 0}, closes: [2]int{1, 0}, challenges: 1, window: 4}, 1138, 0},
		{budget{messages: [2]int{1, 0}, closes: [2]int{1, 1}, challenges: 1, window: 4}, 6687, 0},
		{budget{messages: [2]int{1, 0}, restarts: [2]int{0, 1}, challenges: 3, window: 4}, 16375, 1530},
		{budget{messages: [2]int{1, 0}, restarts: [2]int{1, 0}, challenges: 2, window: 4}, 17002, 2860},
		{budget{messages: [2]int{1, 0}, restarts: [2]int{0, 1}, closes: [2]int{1, 0}, challenges: 1, window: 4}, 4355, 1644},
	}
	if os.Getenv("DMUTEX_LONG") == "1" {
		rows = append(rows, []row{
			{budget{messages: [2]int{2, 0}, restarts: [2]int{0, 1}, challenges: 2, window: 4}, 57365, 8794},
			{budget{messages: [2]int{1, 0}, restarts: [2]int{1, 0}, challenges: 3, window: 4}, 139554, 15808},
			{budget{messages: [2]int{1, 0}, restarts: [2]int{0, 1}, closes: [2]int{1, 0}, challenges: 2, window: 4}, 290509, 52016},
			{budget{messages: [2]int{2, 2}, challenges: 1, window: 4}, 60147, 0},
			{budget{messages: [2]int{1, 0}, restarts: [2]int{1, 0}, closes: [2]int{1, 0}, challenges: 2, window: 4}, 1703052, 252516},
			{budget{messages: [2]int{1, 1}, closes: [2]int{1, 1}, challenges: 1, window: 4}, 107603, 0},
			{budget{messages: [2]int{2, 1}, closes: [2]int{1, 1}, challenges: 1, window: 4}, 1355291, 0},
			{budget{messages: [2]int{3, 3}, challenges: 1, window: 2}, 2866288, 0},
			{budget{messages: [2]int{1, 1}, restarts: [2]int{0, 1}, challenges: 2, window: 4}, 556435, 94948},
			{budget{messages: [2]int{1, 1}, restarts: [2]int{1, 1}, challenges: 1, window: 4}, 699896, 492216},
			{budget{messages: [2]int{1, 0}, restarts: [2]int{1, 1}, challenges: 1, window: 4}, 26490, 14500},
			{budget{messages: [2]int{1, 0}, restarts: [2]int{0, 2}, challenges: 2, window: 4}, 473170, 149600},
			{budget{messages: [2]int{1, 0}, restarts: [2]int{2, 0}, challenges: 2, window: 4}, 1405310, 505196},
			{budget{messages: [2]int{1, 1}, restarts: [2]int{0, 1}, closes: [2]int{1, 1}, challenges: 1, window: 4}, 4163918, 1961062},
		}...)
	}
	for _, c := range rows {
		t.Run(c.String(), func(t *testing.T) {
			e := explorer{budget: c.budget, fair: 4}
			o := e.run(t)
			require.Empty(t, o.fault, strings.Join(o.trace, "\n"))
			require.Equal(t, [2]int{c.states, c.cut}, [2]int{o.states, o.cut})
		})
	}
}

// TestEveryRuleIsNeeded breaks the rules one by one. The exploration must find
// out.
func TestEveryRuleIsNeeded(t *testing.T) {
	var (
		ourRestart   = budget{messages: [2]int{1, 0}, restarts: [2]int{1, 0}, challenges: 3, window: 4}
		theirRestart = budget{messages: [2]int{1, 0}, restarts: [2]int{0, 1}, challenges: 3, window: 4}
		twoSent      = budget{messages: [2]int{2, 0}, restarts: [2]int{0, 1}, challenges: 2, window: 4}
		bothRestart  = budget{messages: [2]int{1, 0}, restarts: [2]int{1, 1}, challenges: 2, window: 4}
		noRestart    = budget{messages: [2]int{2, 1}, challenges: 1, window: 4}
		bothClose    = budget{messages: [2]int{1, 0}, closes: [2]int{1, 1}, challenges: 1, window: 4}
	)
	for _, c := range []struct {
		name   string
		mutant mutation
		budget budget
		fair   int
		want   string
	}{
		{"no receiver in DATA", mutation{data: toAnybody}, theirRestart, 0, "not meant for it"},
		{"no sender in DATA", mutation{data: fromAnybody}, ourRestart, 0, "believes that 1 messages were delivered"},
		{"no receiver in ACK", mutation{ack: toAnybody}, ourRestart, 0, "believes that 1 messages were delivered"},
		{"no sender in ACK", mutation{ack: fromAnybody}, twoSent, 0, "believes that 1 messages were delivered"},
		{"no challenge: different means new", mutation{stranger: adopt}, ourRestart, 0, "went back"},
		{"no number in HELLOACK", mutation{helloAck: anyNonce}, ourRestart, 0, "believes that another life of it was alive"},
		{"no receiver in HELLOACK", mutation{helloAck: toAnybody}, bothRestart, 0, "went back"},
		{"strangers ignored", mutation{stranger: ignore}, ourRestart, 1, "does not come to rest"},
		{"repeated DATA delivered again", mutation{data: again}, noRestart, 0, "got message 1 of life 0, expected 2"},
		{"DATA delivered as it comes", mutation{data: asItComes}, noRestart, 0, "got message 2 of life 0, expected 1"},
		{"ACK for BYE", mutation{ack: sayBye}, bothClose, 1, "does not come to rest"},
		{"acknowledged before delivered", mutation{sent: ackEarly}, noRestart, 0, "believes that 2 messages were delivered"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := explorer{budget: c.budget, mutant: c.mutant, fair: c.fair}
			o := e.run(t)
			t.Logf("%d states: %s\n%s", o.states, o.fault, strings.Join(o.trace, "\n"))
			require.Contains(t, o.fault, c.want)
		})
	}
}

// A mutation is a mutant: it breaks rules by what it does to frames: to those of a kind before
// a session gets to see them, to those of strangers, and to those it sends.
type mutation struct {
	data, ack, helloAck rewrite
	stranger            func(s *Session, frame []byte) [][]byte
	sent                rewrite
}

// A rewrite changes the integers of a frame for a session.
type rewrite func(s *Session, ints []uint64)

func (r rewrite) apply(s *Session, frame []byte) []byte {
	if r == nil {
		return frame
	}
	ints, body := split(frame)
	r(s, ints)
	return join(ints, body)
}

func (m mutation) in(s *Session, frame []byte) [][]byte {
	ints, _ := split(frame)
	switch kind(ints[0]) {
	case data, fin:
		frame = m.data.apply(s, frame)
	case ack, bye, gap:
		frame = m.ack.apply(s, frame)
	case helloAck:
		frame = m.helloAck.apply(s, frame)
	}
	if m.stranger != nil {
		return m.stranger(s, frame)
	}
	return [][]byte{frame}
}

func (m mutation) out(s *Session, frame []byte) []byte {
	return m.sent.apply(s, frame)
}

// The places of integers in frames.
const (
	atFrom  = 1
	atTo    = 2
	atNonce = 3
	atSeq   = 3
	atAck   = 4
)

func toAnybody(s *Session, ints []uint64)   { ints[atTo] = s.cfg.Incarnation }
func fromAnybody(s *Session, ints []uint64) { ints[atFrom] = s.peer }

func again(s *Session, ints []uint64) {
	if ints[atSeq] < s.expect {
		ints[atSeq] = s.expect
	}
}

func asItComes(s *Session, ints []uint64) {
	if ints[atSeq] > s.expect {
		ints[atSeq] = s.expect
	}
}

func anyNonce(s *Session, ints []uint64) {
	if ints[atTo] == s.cfg.Incarnation {
		ints[atNonce] = s.nonce
	}
}

// sender returns who sent a frame.
func sender(ints []uint64) uint64 {
	if kind(ints[0]) == hello {
		return ints[3]
	}
	return ints[atFrom]
}

// ignore drops what is not of the peer, unless there is none.
func ignore(s *Session, frame []byte) [][]byte {
	if ints, _ := split(frame); s.peer != 0 && sender(ints) != s.peer {
		return nil
	}
	return [][]byte{frame}
}

// adopt takes the sender of any frame that is not the peer for the peer's next
// life.
func adopt(s *Session, frame []byte) [][]byte {
	ints, _ := split(frame)
	from := sender(ints)
	if from == s.peer {
		return [][]byte{frame}
	}
	s.challenge()
	answer := join([]uint64{uint64(helloAck), from, s.cfg.Incarnation, s.nonce}, nil)
	return [][]byte{answer, frame}
}

func sayBye(s *Session, ints []uint64) {
	if s.left {
		ints[0] = uint64(bye)
	}
}

// ackEarly acknowledges the latest frame received, not the last before a gap.
func ackEarly(s *Session, ints []uint64) {
	latest := s.expect - 1
	for _, e := range s.early {
		latest = max(latest, e.seq)
	}
	switch kind(ints[0]) {
	case ack, bye, gap:
		ints[0] = uint64(ack)
		ints[atNonce] = latest
	case data, fin:
		ints[atAck] = latest
	}
}
