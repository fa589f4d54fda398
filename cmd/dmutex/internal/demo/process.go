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
}

// name is the process for people, such as "teller 2".
func (p *process) name() string { return fmt.Sprint(p.trade, " ", p.id) }

// start starts this program as the process. What it says is left to listen,
// which must be called.
func (p *process) start() (err error) {
	if p.child, err = child.Start("demo", p.trade); err != nil {
		return fmt.Errorf("start %s: %w", p.name(), err)
	}
	return nil
}

// order sends an order. If the process has ended the order is lost, and listen
// says why the process ended.
func (p *process) order(o order) { _ = p.child.Tell(o) }

// signal sends a signal, which is lost if the process has ended.
func (p *process) signal(s os.Signal) { _ = p.child.Signal(s) }

// listen passes the process's reports to hear until the process has ended, and
// returns why it ended: nil only for exit status 0.
func (p *process) listen(hear func(report)) error {
	for {
		var r report
		switch err := p.child.Hear(&r); {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", p.name(), err)
		}
		hear(r)
	}
}
