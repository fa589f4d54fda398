package machinetest

import (
	"github.com/dmutex/dmutex"
)

// A Mutant is a machine of type M with one rule broken: its functions replace the
// machine's methods. A method whose function is nil stays as it is.
type Mutant[M dmutex.Machine] struct {
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
		return &mutated[M]{wrap(m, s), x}, nil
	}
}

type mutated[M dmutex.Machine] struct {
	wrapped
	mutant Mutant[M]
}

func (x *mutated[M]) Request() ([]dmutex.Message, error) {
	if x.mutant.Request != nil {
		return x.mutant.Request(x.Machine.(M))
	}
	return x.Machine.Request()
}

func (x *mutated[M]) Cancel() ([]dmutex.Message, error) {
	if x.mutant.Cancel != nil {
		return x.mutant.Cancel(x.Machine.(M))
	}
	return x.Machine.Cancel()
}

func (x *mutated[M]) Release() ([]dmutex.Message, error) {
	if x.mutant.Release != nil {
		return x.mutant.Release(x.Machine.(M))
	}
	return x.Machine.Release()
}

func (x *mutated[M]) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if x.mutant.Handle != nil {
		return x.mutant.Handle(x.Machine.(M), msg)
	}
	return x.Machine.Handle(msg)
}

func (x *mutated[M]) Clone() dmutex.Machine { return &mutated[M]{x.clone(), x.mutant} }
