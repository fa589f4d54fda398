package tool

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/ricart"
)

// Broken is wrong on purpose, to show that a check notices it: every node takes
// the agreement of one peer for granted and enters on N-2 replies.
var Broken = Algorithm{"broken", newHasty, "2(N-1)", func(n int) (int, int) { return 2 * (n - 1), 2 * (n - 1) }, false, "Ricart and Agrawala on N-2 replies: wrong on purpose"}

// hasty is a machine of Ricart and Agrawala that does not wait for its first
// peer: it forges that peer's REPLY.
type hasty struct{ dmutex.Machine }

func newHasty(s dmutex.Start) (dmutex.Machine, error) {
	m, err := ricart.New(s)
	return hasty{m}, err
}

// AppendText implements [dmutex.Machine]: a trace names its algorithm so.
func (h hasty) AppendText(b []byte) ([]byte, error) {
	return h.Machine.AppendText(append(b, "hasty "...))
}

// Request implements [dmutex.Machine].
func (h hasty) Request() ([]dmutex.Message, error) {
	out, err := h.Machine.Request()
	if err != nil || len(out) == 0 {
		return out, err
	}
	out = slices.Clone(out)
	asked := out[0]
	more, err := h.Handle(dmutex.Message{Kind: dmutex.Reply, From: asked.To, To: asked.From, Attempt: asked.Attempt, Fence: asked.Fence})
	return append(out, more...), err
}
