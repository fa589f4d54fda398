package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/dmutex/dmutex"
)

// A process is a member of a group. Once it has ended it can be started again,
// with the same number and, over TCP, at the same address.
type process struct {
	id    dmutex.NodeID
	trade string
	at    string // where it listens, as soon as it has said so

	cmd    *exec.Cmd
	orders *json.Encoder
	stdout io.Reader
	stderr lastWords
}

// name is the process for people, such as "teller 2".
func (p *process) name() string { return fmt.Sprint(p.trade, " ", p.id) }

// start starts this program as the process. What it says is left to listen,
// which must be called.
func (p *process) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "demo", p.trade)
	p.stderr = lastWords{}
	cmd.Stderr = &p.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	p.orders = json.NewEncoder(stdin)
	if p.stdout, err = cmd.StdoutPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name(), err)
	}
	p.cmd = cmd
	return nil
}

// order sends an order. If the process has ended the order is lost, and listen
// says why the process ended.
func (p *process) order(o order) { _ = p.orders.Encode(o) }

// signal sends a signal, which is lost if the process has ended.
func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// listen passes the process's reports to hear until the process has ended, and
// returns why it ended: nil only for exit status 0.
func (p *process) listen(hear func(report)) error {
	var garbled error
	for dec := json.NewDecoder(p.stdout); ; {
		var r report
		if err := dec.Decode(&r); err != nil {
			if err != io.EOF && !errors.Is(err, os.ErrClosed) {
				garbled = fmt.Errorf("%s sent a malformed report: %w", p.name(), err)
				p.signal(os.Kill)
			}
			break
		}
		hear(r)
	}
	err := p.cmd.Wait()
	if garbled != nil || err == nil {
		return garbled
	}
	why := fmt.Sprintf("%s died (process %d, %v)", p.name(), p.cmd.Process.Pid, err)
	if said := p.stderr.String(); said != "" {
		why += ": " + said
	}
	return errors.New(why)
}

// lastWords keeps the first few kilobytes of what is written to it: enough for
// an error, or for the head of a panic.
type lastWords struct{ buf bytes.Buffer }

func (w *lastWords) Write(b []byte) (int, error) {
	w.buf.Write(b[:min(len(b), max(0, 4<<10-w.buf.Len()))])
	return len(b), nil
}

func (w *lastWords) String() string { return strings.TrimSpace(w.buf.String()) }
