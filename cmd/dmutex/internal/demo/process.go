package demo

import (
	"fmt"
	"io"
	"os"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/child"
)

// A process is a member of a group. Once it has ended it can be started again,
// with the same number and, over TCP, at the same address.
type process struct {
	id    dmutex.NodeID
	trade string
	at    string // where it listens, as soon as it has said so
	child *child.Process

	killed bool // by the demo, since it was started last
}

// name is the process for people, such as "teller 2".
func (p *process) name() string { return fmt.Sprint(p.trade, " ", p.id) }

// order sends an order. If the process has ended the order is lost, and hear
// says why the process ended.
func (p *process) order(o order) { _ = p.child.Tell(o) }

// signal sends a signal, which is lost if the process has ended.
func (p *process) signal(s os.Signal) { _ = p.child.Signal(s) }

// hear waits for the next report of the process. The last one, with the word leave, is that
// it has ended; the error says why, and is nil only for exit status 0.
func (p *process) hear() (r report, err error) {
	switch err := p.child.Hear(&r); {
	case err == io.EOF:
		return report{Word: wordLeave}, nil
	case err != nil:
		return report{Word: wordLeave}, fmt.Errorf("%s: %w", p.name(), err)
	}
	return r, nil
}
