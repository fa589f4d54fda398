package stream

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/quicktest"
)

// TestEveryRun explores the real rules. Another number of states means that the
// protocol or the budget has changed. DMUTEX_LONG=1 explores the large budgets too.
func TestEveryRun(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	type row struct {
		budget
		states int
	}
	rows := []row{
		{budget{lives: [2]int{1, 1}, messages: [2]int{2, 1}}, 3784},
		{budget{lives: [2]int{1, 1}, messages: [2]int{4, 0}, window: 1}, 1722},
		{budget{lives: [2]int{1, 1}, messages: [2]int{3, 0}}, 1594},
		{budget{lives: [2]int{1, 1}, messages: [2]int{2, 0}, closes: [2]int{1, 0}}, 1603},
		{budget{lives: [2]int{1, 1}, messages: [2]int{1, 0}, closes: [2]int{1, 1}}, 4820},
		{budget{lives: [2]int{1, 2}, messages: [2]int{1, 0}}, 4420},
		{budget{lives: [2]int{1, 2}, messages: [2]int{0, 1}}, 6738},
		{budget{lives: [2]int{1, 2}, messages: [2]int{1, 0}, twins: true}, 9958},
		{budget{lives: [2]int{1, 2}, twins: true, paused: true}, 17638},
	}
	if os.Getenv("DMUTEX_LONG") == "1" {
		rows = append(rows, []row{
			{budget{lives: [2]int{1, 1}, messages: [2]int{4, 0}}, 22919},
			{budget{lives: [2]int{2, 2}}, 112511},
			{budget{lives: [2]int{1, 2}, messages: [2]int{1, 1}, twins: true}, 260001},
			{budget{lives: [2]int{1, 2}, messages: [2]int{1, 0}, twins: true, paused: true}, 92611},
			{budget{lives: [2]int{1, 2}, messages: [2]int{0, 1}, twins: true, paused: true}, 133794},
			{budget{lives: [2]int{1, 3}, messages: [2]int{1, 0}}, 341634},
			{budget{lives: [2]int{1, 1}, messages: [2]int{2, 2}}, 184587},
			{budget{lives: [2]int{1, 1}, messages: [2]int{1, 1}, closes: [2]int{1, 1}}, 213583},
			{budget{lives: [2]int{1, 2}, messages: [2]int{2, 0}}, 36992},
			{budget{lives: [2]int{1, 2}, messages: [2]int{1, 1}}, 93857},
			{budget{lives: [2]int{1, 2}, messages: [2]int{1, 0}, closes: [2]int{1, 0}}, 41019},
			{budget{lives: [2]int{1, 2}, messages: [2]int{0, 1}, closes: [2]int{0, 1}}, 157650},
		}...)
	}
	for _, c := range rows {
		t.Run(c.String(), func(t *testing.T) {
			if c.states > 9_000 && quicktest.On() {
				t.Skip("takes seconds; set CI=1")
			}
			g := game{budget: c.budget, fair: 16}
			states, err := g.explore()
			require.NoError(t, err)
			require.Equal(t, c.states, states)
		})
	}
}

// TestEveryRuleIsNeeded breaks the rules one by one. The exploration must find the
// violation.
func TestEveryRuleIsNeeded(t *testing.T) {
	var (
		ourRestart   = budget{lives: [2]int{2, 1}, messages: [2]int{1, 0}}
		theirRestart = budget{lives: [2]int{1, 2}, messages: [2]int{1, 0}}
		twoSent      = budget{lives: [2]int{1, 2}, messages: [2]int{2, 0}}
		bothRestart  = budget{lives: [2]int{2, 2}, messages: [2]int{0, 0}}
		noRestart    = budget{lives: [2]int{1, 1}, messages: [2]int{2, 1}}
		twins        = budget{lives: [2]int{1, 2}, messages: [2]int{1, 1}, twins: true}
		paused       = budget{lives: [2]int{1, 2}, messages: [2]int{1, 1}, twins: true, paused: true}
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
		{"different means newer", mutation{stranger: adoptAny}, theirRestart, 0, "went back"},
		{"no receiver in HELLO", mutation{hello: toAnybody}, bothRestart, 0, "went back"},
		{"lower lives ignored", mutation{stranger: ignoreLower}, paused, 1, "neither met its peer nor was it refused"},
		{"frames to other lives ignored", mutation{stranger: ignoreMislead}, ourRestart, 1, "neither met its peer nor was it refused"},
		{"repeated DATA delivered again", mutation{data: again}, noRestart, 0, "got message 1 of life 0, expected 2"},
		{"DATA delivered as it comes", mutation{data: asItComes}, noRestart, 0, "got message 2 of life 0, expected 1"},
		{"acknowledged before delivered", mutation{sent: ackEarly}, noRestart, 0, "believes that 2 messages were delivered"},
		{"no grace", mutation{noGrace: true}, twins, 0, "replaced a peer that still answers"},
		{"answers ignored", mutation{hello: alwaysAsks}, twins, 1, "replaced a peer that still answers"},
		{"refusals out of date", mutation{refused: fromNobody}, theirRestart, 0, "believes a refusal that is out of date"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := game{budget: c.budget, mutant: c.mutant, fair: c.fair}
			states, err := g.explore()
			t.Logf("%d states: %v", states, err)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// A mutation breaks rules by changing frames: those of a kind before a stream handles
// them, and those that it sends. stranger may also change the stream, or drop a frame.
type mutation struct {
	data, ack, hello, refused rewrite
	stranger                  func(s *Stream, ints []uint64) (keep bool)
	sent                      rewrite
	noGrace                   bool
}

// A rewrite changes the integers of a frame for a stream.
type rewrite func(s *Stream, ints []uint64)

func (r rewrite) apply(s *Stream, frame []byte) []byte {
	if r == nil {
		return frame
	}
	ints, body := split(frame)
	r(s, ints)
	return join(ints, body)
}

func (m *mutation) breaks() bool {
	return m.data != nil || m.ack != nil || m.hello != nil || m.refused != nil || m.stranger != nil || m.sent != nil
}

// in returns what the stream gets in place of a frame, nil for nothing.
func (m *mutation) in(s *Stream, frame []byte) []byte {
	if !m.breaks() {
		return frame
	}
	ints, _ := split(frame)
	switch kind(ints[0]) {
	case data, fin:
		frame = m.data.apply(s, frame)
	case ack, bye, gap:
		frame = m.ack.apply(s, frame)
	case hello:
		frame = m.hello.apply(s, frame)
	case refused:
		frame = m.refused.apply(s, frame)
	}
	if m.stranger != nil && !m.stranger(s, ints) {
		return nil
	}
	return frame
}

// The places of integers in frames.
const (
	atFrom  = 1
	atTo    = 2
	atSeq   = 3
	atAck   = 4
	helloTo = 4
)

func toAnybody(s *Stream, ints []uint64) {
	if kind(ints[0]) == hello {
		ints[helloTo] = s.cfg.Life
		return
	}
	ints[atTo] = s.cfg.Life
}

func fromAnybody(s *Stream, ints []uint64) { ints[atFrom] = s.peer }

func fromNobody(_ *Stream, ints []uint64) { ints[atFrom] = 99 }

func again(s *Stream, ints []uint64) {
	if ints[atSeq] <= s.heard {
		ints[atSeq] = s.heard + 1
	}
}

func asItComes(s *Stream, ints []uint64) {
	if ints[atSeq] > s.heard+1 {
		ints[atSeq] = s.heard + 1
	}
}

// alwaysAsks takes every HELLO for a question while there is a rival, so the peer never seems to answer.
func alwaysAsks(s *Stream, ints []uint64) {
	if s.rival.life != 0 {
		ints[helloTo] = 0
	}
}

// sender returns who sent a frame.
func sender(ints []uint64) uint64 {
	if kind(ints[0]) == hello {
		return ints[3]
	}
	return ints[atFrom]
}

// adoptAny takes any life that is not the peer for its next one.
func adoptAny(s *Stream, ints []uint64) bool {
	if sender(ints) < s.peer && kind(ints[0]) != refused {
		s.peer = 0
	}
	return true
}

func ignoreLower(s *Stream, ints []uint64) bool { return sender(ints) >= s.peer }

// ignoreMislead drops frames for another life, except HELLO.
func ignoreMislead(s *Stream, ints []uint64) bool {
	return kind(ints[0]) == hello || ints[atTo] == s.cfg.Life
}

// ackEarly acknowledges the latest frame received, not the last before a gap.
func ackEarly(s *Stream, ints []uint64) {
	latest := max(s.heard, s.early)
	switch kind(ints[0]) {
	case ack, bye, gap:
		ints[0] = uint64(ack)
		ints[atSeq] = latest
	case data, fin:
		ints[atAck] = latest
	}
}
