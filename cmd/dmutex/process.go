package main

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

// A process is one of a crew as the demo sees it.
type process struct {
	id     dmutex.NodeID
	name   string // such as "teller 2"
	cmd    *exec.Cmd
	orders *json.Encoder
	stdout io.Reader
	stderr lastWords
}

// startWorker starts this program again, as a teller or another.
func startWorker(trade string, id dmutex.NodeID) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{id: id, name: fmt.Sprint(trade, " ", id), cmd: exec.Command(self, trade)}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	p.cmd.Stderr = &p.stderr
	p.orders = json.NewEncoder(stdin)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return p, nil
}

// order sends an order. One that cannot be sent is one to a process that has
// ended, of which listen tells more.
func (p *process) order(o order) { _ = p.orders.Encode(o) }

// kill ends the process, whatever it does. Listen then returns.
func (p *process) kill() { _ = p.cmd.Process.Kill() }

// listen passes the process's reports to hear until the process has ended, and
// returns why it ended. It is nil only for an exit with status 0.
func (p *process) listen(hear func(report)) error {
	var garbled error
	for dec := json.NewDecoder(p.stdout); ; {
		var r report
		if err := dec.Decode(&r); err != nil {
			if err != io.EOF && !errors.Is(err, os.ErrClosed) {
				garbled = fmt.Errorf("%s says what is no report: %w", p.name, err)
				p.kill()
			}
			break
		}
		hear(r)
	}
	err := p.cmd.Wait()
	switch {
	case garbled != nil:
		return garbled
	case err == nil:
		return nil
	}
	why := fmt.Sprintf("%s died (process %d, %v)", p.name, p.cmd.Process.Pid, err)
	if said := p.stderr.String(); said != "" {
		why += ": " + said
	}
	return errors.New(why)
}

// lastWords keeps the first few kilobytes of what is written to it: enough
// for an error, or for the head of a panic.
type lastWords struct{ buf bytes.Buffer }

func (w *lastWords) Write(b []byte) (int, error) {
	w.buf.Write(b[:min(len(b), max(0, 4<<10-w.buf.Len()))])
	return len(b), nil
}

func (w *lastWords) String() string { return strings.TrimSpace(w.buf.String()) }
