package machinetest

import (
	"slices"

	"github.com/dmutex/dmutex"
)

// A Probe stands between a machine of type M and its group, and breaks a rule or checks
// what should hold inside. A function that is nil changes nothing.
//
// A probed machine is a [dmutex.Keeper] or a [dmutex.Sharer] if the machine is one, but never a
// [dmutex.Ticker]. It waits for all its peers and by itself excludes none, so that a broken
// rule does not show as a broken law of WaitsFor or Excludes.
type Probe[M dmutex.Machine] struct {
	// In place of the machine's method.
	Cancel        func(m M) ([]dmutex.Message, error)
	Release       func(m M) ([]dmutex.Message, error)
	Handle        func(m M, msg dmutex.Message) ([]dmutex.Message, error)
	Fence         func(m M) uint64 // while Held
	Excludes      func(m M, peer dmutex.NodeID) bool
	ExcludesAlone func(m M, peer dmutex.NodeID) bool
	Wanted        func(m M) bool

	// After each call that is not refused.
	After func(m M, out []dmutex.Message) ([]dmutex.Message, error)
}

// Of returns the algorithm with each machine probed.
func (p Probe[M]) Of(algorithm dmutex.Algorithm) dmutex.Algorithm {
	return func(s dmutex.Start) (dmutex.Machine, error) {
		m, err := algorithm(s)
		if err != nil {
			return nil, err
		}
		all := &probed[M]{m, slices.DeleteFunc(slices.Clone(s.Members), func(id dmutex.NodeID) bool { return id == s.Self }), p}
		if sharer, ok := m.(dmutex.Sharer); ok {
			return &probedSharer[M]{all, sharer}, nil
		}
		return all, nil
	}
}

type probed[M dmutex.Machine] struct {
	dmutex.Machine
	peers []dmutex.NodeID
	probe Probe[M]
}

func (p *probed[M]) step(out []dmutex.Message, err error) ([]dmutex.Message, error) {
	if err != nil || p.probe.After == nil {
		return out, err
	}
	return p.probe.After(p.Machine.(M), out)
}

func (p *probed[M]) Request() ([]dmutex.Message, error) { return p.step(p.Machine.Request()) }

func (p *probed[M]) Cancel() ([]dmutex.Message, error) {
	if p.probe.Cancel != nil {
		return p.step(p.probe.Cancel(p.Machine.(M)))
	}
	return p.step(p.Machine.Cancel())
}

func (p *probed[M]) Release() ([]dmutex.Message, error) {
	if p.probe.Release != nil {
		return p.step(p.probe.Release(p.Machine.(M)))
	}
	return p.step(p.Machine.Release())
}

func (p *probed[M]) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if p.probe.Handle != nil {
		return p.step(p.probe.Handle(p.Machine.(M), msg))
	}
	return p.step(p.Machine.Handle(msg))
}

func (p *probed[M]) Fence() uint64 {
	if p.probe.Fence != nil && p.Phase() == dmutex.Held {
		return p.probe.Fence(p.Machine.(M))
	}
	return p.Machine.Fence()
}

func (p *probed[M]) WaitsFor(b []dmutex.NodeID) []dmutex.NodeID {
	if p.Pending() {
		b = append(b, p.peers...)
	}
	return b
}

func (p *probed[M]) Excludes(peer dmutex.NodeID) bool {
	return p.probe.Excludes != nil && p.probe.Excludes(p.Machine.(M), peer)
}

func (p *probed[M]) Keeps() bool {
	k, ok := p.Machine.(dmutex.Keeper)
	return ok && k.Keeps()
}

// A probedSharer is a probed machine that is a [dmutex.Sharer].
type probedSharer[M dmutex.Machine] struct {
	*probed[M]
	sharer dmutex.Sharer // the machine
}

func (p *probedSharer[M]) Share() ([]dmutex.Message, error)          { return p.step(p.sharer.Share()) }
func (p *probedSharer[M]) Shared() bool                              { return p.sharer.Shared() }
func (p *probedSharer[M]) Sharers(b []dmutex.NodeID) []dmutex.NodeID { return b }

func (p *probedSharer[M]) Wanted() bool {
	if p.probe.Wanted != nil {
		return p.probe.Wanted(p.Machine.(M))
	}
	return p.sharer.Wanted()
}

func (p *probedSharer[M]) ExcludesAlone(peer dmutex.NodeID) bool {
	return p.probe.ExcludesAlone != nil && p.probe.ExcludesAlone(p.Machine.(M), peer)
}

func (p *probedSharer[M]) Clone() dmutex.Machine {
	c := p.probed.Clone().(*probed[M])
	return &probedSharer[M]{c, c.Machine.(dmutex.Sharer)}
}

func (p *probed[M]) Clone() dmutex.Machine { return &probed[M]{p.Machine.Clone(), p.peers, p.probe} }
