// Package child runs this program again as a child process, for demos, tests and
// measurements. Program and child talk in lines of JSON: orders to the standard input
// of the child, reports from its standard output. A child ends when its input does, so
// it does not outlive the program.
package child

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// A Process is a child. Tell and Signal may be called while another goroutine is in Hear.
type Process struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	orders  *json.Encoder
	reports *json.Decoder
	stderr  head
	ended   error // how, once it has
}

// Start starts this program with some arguments.
func Start(args ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(self, args...)}
	p.cmd.Stderr = &p.stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdin, p.orders, p.reports = stdin, json.NewEncoder(stdin), json.NewDecoder(stdout)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	return p, nil
}

// Pid returns the number of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Tell gives the child an order. It fails if the child has ended, and Hear says how.
func (p *Process) Tell(order any) error { return p.orders.Encode(order) }

// Signal sends a signal. It fails if the child has ended.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Hear waits for the next report. When there are no more, the child has ended: the
// error is io.EOF if its exit status is 0, and otherwise has the first words of its
// standard error. A child whose report cannot be read is killed.
func (p *Process) Hear(report any) error {
	if p.ended != nil {
		return p.ended
	}
	err := p.reports.Decode(report)
	if err == nil {
		return nil
	}
	garbled := err != io.EOF && !errors.Is(err, os.ErrClosed)
	if garbled {
		_ = p.Signal(os.Kill) // it may have ended
	}
	status := p.cmd.Wait()
	switch {
	case garbled:
		p.ended = fmt.Errorf("process %d sent a malformed report: %w", p.Pid(), err)
	case status == nil:
		p.ended = io.EOF
	default:
		p.ended = fmt.Errorf("process %d died (%w): %s", p.Pid(), status, bytes.TrimSpace(p.stderr.text))
	}
	return p.ended
}

// Close ends the input of the child and waits until the child has ended. It returns nil
// if the exit status is 0.
func (p *Process) Close() error {
	p.stdin.Close()
	var err error
	for err == nil {
		err = p.Hear(new(json.RawMessage))
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// head keeps the first kilobytes that are written to it: enough for an error, or for
// the beginning of a panic.
type head struct{ text []byte }

func (h *head) Write(b []byte) (int, error) {
	h.text = append(h.text, b[:min(len(b), 16<<10-len(h.text))]...)
	return len(b), nil
}
