package machinetest

import (
	"github.com/dmutex/dmutex"
)

// A Probe gets between a machine of type M and its group. It may change what
// goes in and out, or check what should hold inside. What is nil is as it was.
type Probe[M forgettable] struct {
	Before func(m M, msg *dmutex.Message) (drop bool)                // a message is handled
	After  func(m M, out []dmutex.Message) ([]dmutex.Message, error) // each call
	Fence  func(m M) uint64                                          // while Held
}

// Of returns the algorithm with each machine probed. A probed machine does not
// tick.
func (p Probe[M]) Of(algorithm dmutex.Algorithm) dmutex.Algorithm {
	return func(s dmutex.Start) (dmutex.Machine, error) {
		m, err := algorithm(s)
		if err != nil {
			return nil, err
		}
		return &probed[M]{m.(M), p}, nil
	}
}

type probed[M forgettable] struct {
	machine M
	probe   Probe[M]
}

func (p *probed[M]) step(out []dmutex.Message, err error) ([]dmutex.Message, error) {
	if err != nil || p.probe.After == nil {
		return out, err
	}
	return p.probe.After(p.machine, out)
}

func (p *probed[M]) Request() ([]dmutex.Message, error) { return p.step(p.machine.Request()) }
func (p *probed[M]) Cancel() ([]dmutex.Message, error)  { return p.step(p.machine.Cancel()) }
func (p *probed[M]) Release() ([]dmutex.Message, error) { return p.step(p.machine.Release()) }

func (p *probed[M]) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if p.probe.Before != nil && p.probe.Before(p.machine, &msg) {
		return nil, nil
	}
	return p.step(p.machine.Handle(msg))
}

func (p *probed[M]) Phase() dmutex.Phase { return p.machine.Phase() }

func (p *probed[M]) Fence() uint64 {
	if p.probe.Fence != nil && p.Phase() == dmutex.Held {
		return p.probe.Fence(p.machine)
	}
	return p.machine.Fence()
}

func (p *probed[M]) AppendText(b []byte) ([]byte, error) { return p.machine.AppendText(b) }

func (p *probed[M]) Forget() (clock, fence uint64, ok bool) { return p.machine.Forget() }

// Keeps reports false for a machine that is no Keeper, which says as much as to
// be none.
func (p *probed[M]) Keeps() bool {
	k, ok := any(p.machine).(dmutex.Keeper)
	return ok && k.Keeps()
}

func (p *probed[M]) Clone() dmutex.Machine {
	return &probed[M]{p.machine.Clone().(M), p.probe}
}
