package machinetest

import (
	"github.com/dmutex/dmutex"
)

// A Probe stands between a machine of type M and its group. It may change what
// goes in and out, or check what should hold inside. A nil function changes nothing.
type Probe[M dmutex.Machine] struct {
	Before func(m M, msg *dmutex.Message) (drop bool)                // a message is handled
	After  func(m M, out []dmutex.Message) ([]dmutex.Message, error) // each call
	Fence  func(m M) uint64                                          // while Held
}

// Of returns the algorithm with each machine probed.
func (p Probe[M]) Of(algorithm dmutex.Algorithm) dmutex.Algorithm {
	return func(s dmutex.Start) (dmutex.Machine, error) {
		m, err := algorithm(s)
		if err != nil {
			return nil, err
		}
		return &probed[M]{wrap(m, s), p}, nil
	}
}

type probed[M dmutex.Machine] struct {
	wrapped
	probe Probe[M]
}

func (p *probed[M]) step(out []dmutex.Message, err error) ([]dmutex.Message, error) {
	if err != nil || p.probe.After == nil {
		return out, err
	}
	return p.probe.After(p.Machine.(M), out)
}

func (p *probed[M]) Request() ([]dmutex.Message, error) { return p.step(p.Machine.Request()) }
func (p *probed[M]) Cancel() ([]dmutex.Message, error)  { return p.step(p.Machine.Cancel()) }
func (p *probed[M]) Release() ([]dmutex.Message, error) { return p.step(p.Machine.Release()) }

func (p *probed[M]) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if p.probe.Before != nil && p.probe.Before(p.Machine.(M), &msg) {
		return nil, nil
	}
	return p.step(p.Machine.Handle(msg))
}

func (p *probed[M]) Fence() uint64 {
	if p.probe.Fence != nil && p.Phase() == dmutex.Held {
		return p.probe.Fence(p.Machine.(M))
	}
	return p.Machine.Fence()
}

func (p *probed[M]) Clone() dmutex.Machine { return &probed[M]{p.clone(), p.probe} }
