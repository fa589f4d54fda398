package machinetest

import (
	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

// forgettable is a machine that tells when it may be forgotten.
type forgettable interface {
	dmutextest.Machine
	dmutex.Forgetter
}

// A Mutant replaces calls of a machine of type M: the machine with one rule
// broken. What is nil is as it should be.
type Mutant[M forgettable] struct {
	Request, Cancel, Release func(m M) ([]dmutex.Message, error)
	Handle                   func(m M, msg dmutex.Message) ([]dmutex.Message, error)
}

// Of returns the algorithm with each machine mutated.
func (x Mutant[M]) Of(algorithm dmutex.Algorithm) dmutex.Algorithm {
	return func(s dmutex.Start) (dmutex.Machine, error) {
		m, err := algorithm(s)
		if err != nil {
			return nil, err
		}
		return &mutated[M]{m.(M), x}, nil
	}
}

type mutated[M forgettable] struct {
	machine M
	mutant  Mutant[M]
}

func (x *mutated[M]) Request() ([]dmutex.Message, error) {
	if x.mutant.Request != nil {
		return x.mutant.Request(x.machine)
	}
	return x.machine.Request()
}

func (x *mutated[M]) Cancel() ([]dmutex.Message, error) {
	if x.mutant.Cancel != nil {
		return x.mutant.Cancel(x.machine)
	}
	return x.machine.Cancel()
}

func (x *mutated[M]) Release() ([]dmutex.Message, error) {
	if x.mutant.Release != nil {
		return x.mutant.Release(x.machine)
	}
	return x.machine.Release()
}

func (x *mutated[M]) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if x.mutant.Handle != nil {
		return x.mutant.Handle(x.machine, msg)
	}
	return x.machine.Handle(msg)
}

func (x *mutated[M]) Phase() dmutex.Phase                 { return x.machine.Phase() }
func (x *mutated[M]) Fence() uint64                       { return x.machine.Fence() }
func (x *mutated[M]) AppendText(b []byte) ([]byte, error) { return x.machine.AppendText(b) }

func (x *mutated[M]) Forget() (clock, fence uint64, ok bool) { return x.machine.Forget() }

func (x *mutated[M]) Clone() dmutex.Machine {
	return &mutated[M]{x.machine.Clone().(M), x.mutant}
}
